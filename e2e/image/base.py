"""The lowest layer: Debian's Python 3.11 and the libraries it needs, no shell and no package manager's data.

mmdebstrap only unpacks the packages here (nothing is configured), which leaves about 50 MiB; its tar is
then rewritten: without device nodes, caches and documentation, without times, with a user of our own.
What dpkg would know of the packages is written too, and their licences stay. Nothing of it is run, so the
root of another kind of machine is made in the same way.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from localcluster import packages
from localcluster.errors import LocalClusterError
from localcluster.oci import ImageConfig, image_of_rootfs
from localcluster.toolchain import Say

from image import dpkg
from image.machines import Machine

SUITE = "bookworm"
PYTHON = (3, 11)
USER_ID = 65532
"""The unprivileged user that the image runs as; 65532 is what "nonroot" images use by habit."""

PACKAGES = ("python3-minimal", "libpython3-stdlib", "libstdc++6")
_DROPPED = (
    "dev/", "etc/apt/", "etc/cron", "etc/hostname", "etc/resolv.conf", "usr/share/doc", "usr/share/man",
    "usr/share/locale", "usr/share/lintian", "usr/share/zoneinfo", "usr/share/perl5", "usr/share/gcc",
    "usr/share/bash-completion", "usr/share/debconf", "usr/lib/systemd", "usr/bin/dpkg", "usr/bin/debconf",
    "usr/bin/update-alternatives", "usr/sbin/", "usr/lib/python3.11/pydoc_data", "usr/lib/python3.11/test",
    "usr/lib/python3.11/lib2to3", "var/lib/apt", "var/cache", "var/lib/dpkg/info", "var/lib/dpkg/lock",
    "var/lib/dpkg/status", "var/log",
)  # fmt: skip
_DROPPED_LIBRARIES = ("gconv", "libdb-")
_LICENCES = re.compile(r"usr/share/doc(/[^/]+(/copyright)?)?")
_FILES = {
    "etc/passwd": (
        f"root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"
        f"egpu:x:{USER_ID}:{USER_ID}:egpu:/:/sbin/nologin\n"
    ),
    "etc/group": f"root:x:0:\nnogroup:x:65534:\negpu:x:{USER_ID}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
IMAGE = "vc-egpu.local/python-slim:1"
"""Name of the intermediate image; nothing runs it."""
_RECIPE = f"{SUITE} {PACKAGES} {_DROPPED} {_DROPPED_LIBRARIES} {_LICENCES.pattern} {_FILES} 6"


def image(say: Say, machine: Machine) -> Path:
    """Archive of an image that holds this layer only; cached by what it is made from."""
    config = ImageConfig(architecture=machine.foreign)
    recipe = f"{_RECIPE} {machine.oci}"
    return image_of_rootfs(machine.named(IMAGE), recipe, lambda target: _write(target, machine, say), config)


def _write(target: Path, machine: Machine, say: Say) -> None:
    say(f"image: Debian with Python for {machine.oci} (about 15 s)")
    packages.ensure(packages.IMAGES, say)
    with tempfile.TemporaryDirectory(prefix="vc-egpu-base-") as work:
        raw = Path(work) / "raw.tar"
        _mmdebstrap(raw, machine)
        caches = _compile_standard_library(raw, Path(work), machine, say)
        files = {**_FILES, dpkg.STATUS: dpkg.status(dpkg.controls(raw, Path(work)))}
        with (
            tarfile.open(raw) as source,
            tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as out,
        ):
            _copy(source, out, machine)
            for name, path in caches.items():
                _add(out, name, path.read_bytes())
            for name, text in files.items():
                _add(out, name, text.encode())


def _mmdebstrap(target: Path, machine: Machine) -> None:
    command = ["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(PACKAGES)}"]
    command += [
        f"--architectures={machine.oci}",
        "--skip=cleanup/apt/cache",
    ]  # the packages are read afterwards
    hooks = Path("/usr/share/mmdebstrap/hooks/merged-usr")
    if hooks.is_dir():
        command.append(f"--hook-dir={hooks}")
    command += ['--aptopt=Apt::Install-Recommends "false"', SUITE, str(target)]
    result = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        env=os.environ | {"PATH": packages.search_path(), "SOURCE_DATE_EPOCH": "0"},
    )  # fmt: skip
    if result.returncode != 0:
        raise LocalClusterError(f"mmdebstrap could not make the base image: {result.stderr.strip()[-800:]}")


def _copy(source: tarfile.TarFile, out: tarfile.TarFile, machine: Machine) -> None:
    kept = [member for member in source if _wanted(member, machine)]
    for member in sorted(kept, key=lambda member: (member.islnk(), member.name)):
        data = source.extractfile(member) if member.isreg() else None
        member.name = member.name.removeprefix("./") or "."
        member.mtime = 0
        member.uname = member.gname = ""
        member.pax_headers = {}
        out.addfile(member, data)


def _wanted(member: tarfile.TarInfo, machine: Machine) -> bool:
    name = member.name.removeprefix("./")
    if _LICENCES.fullmatch(name):
        return True
    libraries = tuple(f"usr/lib/{machine.triplet}/{library}" for library in _DROPPED_LIBRARIES)
    return not (member.isdev() or name in _FILES or name.startswith((*_DROPPED, *libraries)))


def _compile_standard_library(raw: Path, work: Path, machine: Machine, say: Say) -> dict[str, Path]:
    """Byte code of the standard library: the image's file system is read-only when it runs."""
    if sys.version_info[:2] != PYTHON:
        say("image: no byte code, since this is not Python 3.11; its processes start slower")
        return {}
    root = work / "library"
    with tarfile.open(raw) as source:
        for member in source:
            if _wanted(member, machine) and member.name.startswith("./usr/lib/python3.11/"):
                _unpack(source, member, root)
    compile_tree(root, "/")
    return {path.relative_to(root).as_posix(): path for path in sorted(root.rglob("__pycache__/*.pyc"))}


def _unpack(source: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """A file with nothing but its content; Debian 12's own Python knows no filters for archives yet."""
    data = source.extractfile(member) if member.isreg() else None
    if data is not None:
        target = root / member.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data.read())


def compile_tree(root: Path, shown_as: str) -> None:
    """Byte-compile a tree; the files do not depend on times and are never checked against the source."""
    subprocess.run(
        [
            sys.executable, "-m", "compileall", "-q", "-j", "2", "--invalidation-mode", "unchecked-hash",
            "-s", str(root), "-p", shown_as, str(root),
        ],
        check=False,  # a package may carry files of another Python's syntax; those stay as they are
        stdout=subprocess.DEVNULL,
    )  # fmt: skip


def _add(out: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o644
    out.addfile(info, io.BytesIO(data))
