"""``python -m supply.krew --output FOLDER --uri URL``: archives and manifest of ``kubectl egpu`` for krew.

Each archive is for one kind of machine and holds what our image has of Python packages. It needs a Python
3.11 of the machine. ``egpu.yaml`` names the archives below ``URL`` with their checksums.
"""

import argparse
import gzip
import hashlib
import io
import re
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from image.build import build
from image.machines import MACHINES
from localcluster import oci
from localcluster.errors import LocalClusterError
from vc_egpu import __version__

from supply.contents import SITE_PACKAGES, Contents
from supply.lock import LockError

Json = dict[str, Any]
NAME: Final = "egpu"
BIN: Final = "kubectl-egpu"
LICENSE: Final = Path(__file__).resolve().parents[2] / "LICENSE"
_LAUNCH: Final = """#!/bin/sh
# Python 3.11 runs it: what is compiled in lib is for that version.
here=$(dirname "$(readlink -f "$0")")
for python in python3.11 python3; do
	command -v "$python" >/dev/null || continue
	if "$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
		exec "$python" -I "$here/run.py" "$@"
	fi
done
echo "kubectl-egpu: needs Python 3.11 on the PATH; or use pip install or uv tool install" >&2
exit 1
"""
_RUN: Final = """import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "lib"))
from vc_egpu.cli.kubectl import main  # noqa: E402

sys.exit(main())
"""
_API: Final = "krew.googlecontainertools.github.com/v1alpha2"
_VERSION: Final = re.compile(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?")
_SHA256: Final = re.compile("[0-9a-f]{64}")
_SYSTEMS: Final = {
    "os": {"linux", "darwin", "windows"},
    "arch": {"386", "amd64", "arm", "arm64", "ppc64le", "s390x"},
}


def archive(image: Path) -> bytes:
    """The plugin for the machine of an image, a compressed tar file. The same image gives the same bytes."""
    files = {
        BIN: _LAUNCH.encode(),
        "run.py": _RUN.encode(),
        "LICENSE": LICENSE.read_bytes(),
        **_library(image),
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name in sorted(files):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(files[name]), 0o755 if name == BIN else 0o644
            tar.addfile(info, io.BytesIO(files[name]))
    return gzip.compress(packed.getvalue(), compresslevel=6, mtime=0)


def _library(image: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for layer in oci.read_parts(image):
        with tarfile.open(fileobj=io.BytesIO(layer.content)) as tar:
            for member in tar:
                data = tar.extractfile(member) if member.isreg() else None
                if data is not None and member.name.startswith(SITE_PACKAGES):
                    found[f"lib/{member.name.removeprefix(SITE_PACKAGES)}"] = data.read()
    return found


def manifest(uri: str, sums: Mapping[str, str]) -> Json:
    """The plugin's manifest. ``sums``: SHA-256 of each archive, by the machine in the words of OCI."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": machine}},
            "uri": f"{uri.rstrip('/')}/{file_of(machine)}",
            "sha256": digest,
            "bin": BIN,
        }
        for machine, digest in sorted(sums.items())
    ]
    spec = {
        "version": f"v{__version__}",
        "shortDescription": "See and steer shared GPUs: cards, queues, why a Job waits",
        "description": "Cards and their shares, queues and caps, and the reason of everything that waits.\n"
        "It needs Python 3.11 on the PATH, and a cluster with vc-egpu.\n",
        "platforms": platforms,
    }
    return {"apiVersion": _API, "kind": "Plugin", "metadata": {"name": NAME}, "spec": spec}


def file_of(machine: str) -> str:
    """Name of the archive for a machine."""
    return f"{BIN}-{__version__}-linux-{machine}.tar.gz"


def problems(document: Json, file: str) -> Iterator[str]:
    """What krew would refuse, as its developers' guide and its own validation say: a sentence each."""
    spec = document.get("spec") or {}
    name = (document.get("metadata") or {}).get("name")
    if document.get("apiVersion") != _API or document.get("kind") != "Plugin":
        yield f"is no Plugin of {_API}"
    if not re.fullmatch(r"[\w-]+", str(name)) or file != f"{name}.yaml":
        yield f"the file of plugin {name!r} is {file}"
    if not _VERSION.fullmatch(str(spec.get("version"))):
        yield f"version {spec.get('version')!r} is no semantic version with a v"
    short = str(spec.get("shortDescription") or "")
    if not short or "\n" in short:
        yield "shortDescription is not one line"
    seen = []
    for number, one in enumerate(spec.get("platforms") or []):
        chosen = (one.get("selector") or {}).get("matchLabels") or {}
        if not chosen or any(value not in _SYSTEMS.get(key, ()) for key, value in chosen.items()):
            yield f"platforms.{number}: krew knows no machine {chosen}"
        if chosen in seen:
            yield f"platforms.{number}: {chosen} is there twice"
        seen.append(chosen)
        if not str(one.get("uri", "")).startswith("https://"):
            yield f"platforms.{number}: uri is not https"
        if not _SHA256.fullmatch(str(one.get("sha256"))):
            yield f"platforms.{number}: sha256 has not 64 digits"
        if not one.get("bin") or Path(str(one["bin"])).is_absolute() or ".." in Path(str(one["bin"])).parts:
            yield f"platforms.{number}: bin is no path inside the archive"
    if not seen:
        yield "platforms is empty"


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where the image cannot be built, or krew would refuse the manifest."""
    flags = argparse.ArgumentParser(prog="supply.krew", description=__doc__)
    flags.add_argument("--output", type=Path, required=True, help="folder for the archives and egpu.yaml")
    flags.add_argument("--uri", required=True, help="where the archives will be: https://...")
    flags.add_argument(
        "--image", type=Path, action="append", help="of one machine; without any, all are built"
    )
    options = flags.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    sums = {}
    try:
        for image in options.image or _built():
            machine, packed = Contents.read(image).machine, archive(image)
            (options.output / file_of(machine)).write_bytes(packed)
            sums[machine] = hashlib.sha256(packed).hexdigest()
    except (LocalClusterError, LockError, OSError, tarfile.TarError) as error:
        print(f"supply.krew: {error}", file=sys.stderr)
        return 1
    document = manifest(options.uri, sums)
    path = options.output / f"{NAME}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    against = list(problems(document, path.name))
    for sentence in against:
        print(f"supply.krew: {path}: {sentence}", file=sys.stderr)
    print(f"{path}: {', '.join(map(file_of, sums))}")
    return 1 if against else 0


def _built() -> Iterator[Path]:
    for machine in MACHINES:
        yield build(lambda line: print(f"==> {line}", flush=True), machine=machine).archive


if __name__ == "__main__":
    sys.exit(main())
