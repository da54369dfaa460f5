"""Build the product image as an OCI archive: ``python -m image.build [--output FILE] [--rebuild]``.

``--machine amd64``, ``arm64`` or ``all`` builds for another machine, or one index for all. Nothing of the
other machine is run for it.
The name is read from ``manifests/components/release/kustomization.yaml``, the one place where it is set.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import yaml
from localcluster import room, surroundings
from localcluster.errors import LocalClusterError, in_words
from localcluster.oci import FileSource, ImageConfig, Text, build_image, digest_of, join
from localcluster.state import cache_root, locked
from localcluster.toolchain import Say

from image import base
from image.machines import MACHINES, Machine, this_machine

REPOSITORY = Path(__file__).resolve().parents[2]
KUSTOMIZATION = Path("manifests/components/release/kustomization.yaml")
IMAGE_PLACEHOLDER = "vc-egpu"
"""The name that the manifests use; kustomize replaces it."""

_SITE_PACKAGES = "/usr/local/lib/python3.11/dist-packages"
_MANYLINUX = ("_2_34", "_2_28", "_2_17", "2014")
_PRUNED = (
    "bin", "kubernetes/aio", "kubernetes/docs", "numpy/f2py", "numpy/distutils", "**/tests", "**/*.pyi",
    "**/direct_url.json",
)  # fmt: skip
"""What no process of ours imports; a test imports every module of ours from the finished tree."""
_RECIPE = f"{_MANYLINUX} {_PRUNED} 4"
_PACKAGES_IMAGE = "vc-egpu.local/packages:1"
_NATIVE = REPOSITORY / "device-plugin" / "native"
_LIBRARY_FOLDER = "/usr/local/lib/vc-egpu"
"""Where the node agent finds the isolation library (manifests/components/isolation)."""
_KEPT_ARCHIVES = 3
_SCRIPT = """#!/usr/bin/python3 -I
import sys

from {module} import main

sys.exit(main())
"""
_SOURCES = {"vc_egpu": Path("vc-egpu/vc_egpu"), "vc_egpu_node": Path("device-plugin/vc_egpu_node")}
_SOURCE_SUFFIXES = {".py", ".yaml", ".json", ".typed", ".html", ".css", ".js"}


@dataclass(frozen=True, slots=True)
class Built:
    """An archive on disk."""

    archive: Path
    name: str
    digest: str
    """That of its manifest or its index: ``sha256:`` and 64 digits."""
    size_mib: int
    seconds: float


def image_name(repository: Path = REPOSITORY) -> str:
    """``<name>:<tag>`` as kustomize will put it into the manifests."""
    document = yaml.safe_load((repository / KUSTOMIZATION).read_text(encoding="utf-8"))
    for entry in document.get("images", []):
        if entry.get("name") == IMAGE_PLACEHOLDER:
            return f"{entry['newName']}:{entry['newTag']}"
    raise LocalClusterError(f"{KUSTOMIZATION}: images has no entry named {IMAGE_PLACEHOLDER!r}")


def build(
    say: Say, output: Path | None = None, *, rebuild: bool = False, machine: Machine | None = None
) -> Built:
    """Build what is not cached yet, write the archive, and say where it is. ``machine``: this one's kind,
    unless it names another."""
    started = time.monotonic()
    machine = machine or this_machine()
    cache = cache_root() / "image"
    cache.mkdir(parents=True, exist_ok=True)
    name = image_name()
    with locked(cache / "lock"):
        if rebuild:
            _forget_all(cache, name)
        library = _isolation_library(machine)
        packages = _packages_image(cache, base.image(say, machine), machine, say)
        with tempfile.TemporaryDirectory(prefix="vc-egpu-product-") as work:
            archive = build_image(
                packages,
                name,
                dirs={_SITE_PACKAGES: _product(Path(work))},
                files={
                    **library,
                    "/usr/local/bin/vc-egpu": Text(_SCRIPT.format(module="vc_egpu.cli.main"), 0o755),
                    "/usr/local/bin/kubectl-egpu": Text(_SCRIPT.format(module="vc_egpu.cli.kubectl"), 0o755),
                },
                config=replace(_CONFIG, architecture=machine.foreign),
            )
        forget_old(archive, time.time())
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(archive, output)
    return _built(output or archive, name, started)


def build_all(say: Say, output: Path, *, rebuild: bool = False) -> Built:
    """One OCI index with the image for each kind of machine."""
    started = time.monotonic()
    archives = [
        build(say, rebuild=rebuild and machine is MACHINES[0], machine=machine).archive
        for machine in MACHINES
    ]
    join(archives, image_name(), output)
    return _built(output, image_name(), started)


def _built(archive: Path, name: str, started: float) -> Built:
    size_mib = archive.stat().st_size >> 20
    return Built(archive, name, digest_of(archive), size_mib, time.monotonic() - started)


_CONFIG = ImageConfig(
    entrypoint=("/usr/local/bin/vc-egpu",),
    env={"PATH": "/usr/local/bin:/usr/bin", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"},
    user=f"{base.USER_ID}:{base.USER_ID}",
    working_dir="/",
)


def _packages_image(cache: Path, below: Path, machine: Machine, say: Say) -> Path:
    lock = REPOSITORY / "requirements.lock"
    tree = cache / f"packages-{_hash(lock.read_text(encoding='utf-8'), f'{machine.kernel} {_RECIPE}')}"
    if not tree.exists():
        say(f"image: the locked Python packages for {machine.oci} (about 30 s)")
        with tempfile.TemporaryDirectory(prefix=".packages-", dir=cache) as work:
            fresh = Path(work) / "packages"
            _install(lock, fresh, machine)
            _prune(fresh)
            _compile(fresh)
            fresh.rename(tree)
    config = ImageConfig(architecture=machine.foreign)
    return build_image(below, machine.named(_PACKAGES_IMAGE), dirs={_SITE_PACKAGES: tree}, config=config)


def _isolation_library(machine: Machine) -> dict[str, FileSource]:
    """The library and what lies beside it, by their paths in the image; built where that is due."""
    command = ["make", "-s", "-C", str(_NATIVE), f"PYTHON={sys.executable}", "native-release"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LocalClusterError(f"make native-release failed: {result.stderr.strip()[-800:]}")
    built = sorted((_NATIVE / "build" / "release" / machine.kernel).iterdir())
    return {f"{_LIBRARY_FOLDER}/{path.name}": path for path in built if path.suffix != ".tmp"}


def _product(tree: Path) -> Path:
    for package, source in _SOURCES.items():
        for path in _source_files(REPOSITORY / source):
            target = tree / package / path.relative_to(REPOSITORY / source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    _compile(tree)
    return tree


def _source_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in _SOURCE_SUFFIXES and "__pycache__" not in path.parts
    )


def _install(lock: Path, tree: Path, machine: Machine) -> None:
    platforms = [f"manylinux{version}_{machine.kernel}" for version in _MANYLINUX]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-compile", "--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "abi3"]
    command += ["--abi", "none", *(f"--platform={platform}" for platform in platforms)]
    command += ["--target", str(tree), "-r", str(lock)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise LocalClusterError(f"pip could not install requirements.lock: {result.stderr.strip()[-800:]}")


def _prune(tree: Path) -> None:
    for pattern in _PRUNED:
        for path in list(tree.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _compile(tree: Path) -> None:
    if sys.version_info[:2] == base.PYTHON:
        base.compile_tree(tree, _SITE_PACKAGES)


def _forget_all(cache: Path, name: str) -> None:
    for tree in cache.glob("packages-*"):
        shutil.rmtree(tree, ignore_errors=True)
    between = [machine.named(image) for machine in MACHINES for image in (base.IMAGE, _PACKAGES_IMAGE)]
    for image in (*between, name):
        for archive in (cache_root() / "images").glob(f"{image.rpartition('/')[2].replace(':', '-')}-*.tar"):
            archive.unlink(missing_ok=True)


def forget_old(archive: Path, now_s: float) -> None:
    """Archives of earlier sources, a quarter of a GiB each.

    Other checkouts on this machine share the cache: those that were used last stay, and what somebody may be
    about to import.
    """
    stem = archive.name.rpartition("-")[0]
    for path in room.unused(archive.parent.glob(f"{stem}-*.tar"), _KEPT_ARCHIVES, now_s):
        if path != archive:
            path.unlink(missing_ok=True)


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def main(argv: list[str] | None = None) -> int:
    """Build, and print one JSON object about it as the last line."""
    parser = argparse.ArgumentParser(prog="image.build", description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="copy the archive there")
    parser.add_argument("--rebuild", action="store_true", help="take nothing from the cache")
    parser.add_argument(
        "--machine", choices=[*(one.oci for one in MACHINES), "all"], default=this_machine().oci,
        help="for which kind of machine (default: this one's); all: one index, which needs --output",
    )  # fmt: skip
    options = parser.parse_args(argv)
    if options.machine == "all" and options.output is None:
        parser.error("--machine all needs --output")
    surroundings.usual_umask()
    surroundings.interruptible()
    try:
        built = _asked(options)
    except LocalClusterError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"image: {in_words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(
        f"image {built.name} {built.digest}: {built.size_mib} MiB in {built.seconds:.1f} s, {built.archive}"
    )
    print(
        json.dumps(
            {
                "image": built.name,
                "archive": str(built.archive),
                "digest": built.digest,
                "size_mib": built.size_mib,
                "seconds": round(built.seconds, 1),
            }
        )
    )
    return 0


def _asked(options: argparse.Namespace) -> Built:
    def say(line: str) -> None:
        print(f"==> {line}", flush=True)

    if options.machine == "all":
        return build_all(say, options.output, rebuild=options.rebuild)
    (machine,) = (one for one in MACHINES if one.oci == options.machine)
    return build(say, options.output, rebuild=options.rebuild, machine=machine)


if __name__ == "__main__":
    sys.exit(main())
