"""The isolation library for CUDA programs on this node: copied once per version, never replaced, preloaded.

A version is a folder named by the digest of its files. An upgrade makes another folder, so a running program
keeps the files it has mapped. A folder goes when no container is left that was ever started with it.

A folder's name proves nothing: programs run without a preloaded library that is not there.
"""

import hashlib
import logging
import os
import platform
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.files import write_bytes_atomically
from vc_egpu_node.vendors.base import LibraryError

log = logging.getLogger(__name__)

LIBRARY_NAME: Final = "libvgpu-egpu.so"
STUB_NAME: Final = "libvgpu-egpu-32.so"
"""Next to the library: an empty one for 32-bit programs, so that they are not told of a wrong file."""
HOOK_NAME: Final = "egpu-preload"
"""Next to the library: the program that adds our line to an image's own preload file."""
LIMITER_NAME: Final = "egpu-limits"
"""Next to the library: the program that has the agent set the driver's memory limit before a program
starts."""
CONTAINER_FOLDER: Final = "/usr/local/vc-egpu"
PRELOAD_FILE: Final = "/etc/ld.so.preload"
PRELOAD_LINE: Final = f"{CONTAINER_FOLDER}/$LIB/{LIBRARY_NAME}"
"""``$LIB`` is the dynamic linker's: it gives programs of each kind their own file."""

_MACHINES: Final = {"x86_64": 62, "aarch64": 183}
"""ELF's number of the machine."""
_PLACES: Final = {
    "x86_64": ("lib/x86_64-linux-gnu", "lib64", "lib"),
    "aarch64": ("lib/aarch64-linux-gnu", "lib64", "lib"),
}
"""What ``$LIB`` can be for 64-bit programs. In some distributions ``lib`` is the 32-bit one. There a 32-bit
program is told of a wrong ELF class and runs on. That is better than a 64-bit one without limits."""
_PLACES_32: Final = {
    "x86_64": ("lib/i386-linux-gnu", "lib32"),
    "aarch64": ("lib/arm-linux-gnueabihf",),
}
FILE_MODE: Final = 0o755
_READ_ONLY: Final = ("ro", "nosuid", "nodev", "bind")
_TEST_MARK: Final = b"EGPU_TEST_ROOT"


@dataclass(frozen=True, slots=True)
class CudaLibrary:
    """One installed version."""

    digest: str
    folder: Path
    """On the host."""
    hook: Path | None = None
    test_build: bool = False
    """Programs can choose their own limits: it looks for its pages where an environment variable says."""
    source: Path = Path()
    """What it was installed from."""
    machine: str = ""
    sizes: tuple[tuple[str, int], ...] = ()
    """Path in the folder and bytes of each file."""
    limiter: Path | None = None

    @property
    def whole(self) -> bool:
        """Whether all of its files are there, by their size and mode: cheap enough for each start."""
        files = all(_looks_right(self.folder / path, size) for path, size in self.sizes)
        return files and all(_is_open(one) for one in _folders(self.folder, dict(self.sizes)))

    def again(self) -> "CudaLibrary":
        """The same put right, or what lies at its source by now. Raises ``OSError``."""
        try:
            return install(self.source, self.folder.parent, self.machine)
        except LibraryError as error:
            cause = error.__cause__
            raise cause if isinstance(cause, OSError) else OSError(str(error)) from error

    def mounts(self) -> list[dict[str, Any]]:
        """What every container with the library gets."""
        mounts = [_mount(self.folder / "root", CONTAINER_FOLDER)]
        if self.hook is None:
            mounts.append(_mount(self.folder / "ld.so.preload", PRELOAD_FILE))
        return mounts

    def hooks(self, merged: Path) -> list[dict[str, Any]]:
        """Run by the runtime: the image's preload file with our line, written to ``merged`` and mounted."""
        if self.hook is None:
            return []
        arguments = [HOOK_NAME, PRELOAD_LINE, str(merged)]
        return [{"hookName": "createContainer", "path": str(self.hook), "args": arguments}]

    def drop_others(self, used: Collection[str]) -> None:
        """Remove the versions (and drafts of dead agents) that are not among these digests."""
        versions = self.folder.parent
        for path in versions.iterdir() if versions.is_dir() else ():
            if path.name not in used:
                log.info("version %s of the library is used no more", path.name)
                shutil.rmtree(path, ignore_errors=True)


def _mount(source: Path, target: str) -> dict[str, Any]:
    return {"hostPath": str(source), "containerPath": target, "options": list(_READ_ONLY)}


def install(library: Path, versions: Path, machine: str = "") -> CudaLibrary:
    """Copy the library and what lies next to it into a folder of its own below ``versions``, unless this
    very version is there. Raises :class:`LibraryError`."""
    machine = machine or platform.machine()
    files = {name: path for name in (LIBRARY_NAME, STUB_NAME, HOOK_NAME, LIMITER_NAME)
             if (path := library if name == LIBRARY_NAME else library.with_name(name)).is_file()}  # fmt: skip
    if LIBRARY_NAME not in files:
        raise LibraryError(f"there is no {library}")
    try:
        contents = {name: path.read_bytes() for name, path in files.items()}
        _check(contents[LIBRARY_NAME], machine, library)
        parts = (
            name.encode() + b"\0" + hashlib.sha256(data).digest() for name, data in sorted(contents.items())
        )
        digest = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
        folder = versions / digest
        wanted = _files_of(contents, machine)
        if folder.is_dir():
            _put_right(wanted, folder)
        else:
            _write_version(wanted, folder)
    except OSError as error:
        raise LibraryError(f"{library} was not installed: {error}") from error
    hook = folder / HOOK_NAME if HOOK_NAME in contents else None
    limiter = folder / LIMITER_NAME if LIMITER_NAME in contents else None
    sizes = tuple((path, len(data)) for path, data in wanted.items())
    test_build = _TEST_MARK in contents[LIBRARY_NAME]
    return CudaLibrary(digest, folder, hook, test_build, library, machine, sizes, limiter)


def _check(data: bytes, machine: str, library: Path) -> None:
    wanted = _MACHINES.get(machine)
    if wanted is None:
        raise LibraryError(f"there is no library for {machine}")
    if data[:6] != b"\x7fELF\x02\x01" or int.from_bytes(data[18:20], "little") != wanted:
        raise LibraryError(f"{library} is no 64-bit library for {machine}")


def _files_of(contents: dict[str, bytes], machine: str) -> dict[str, bytes]:
    """All of a version, by path in its folder."""
    places = dict.fromkeys(_PLACES[machine], LIBRARY_NAME)
    if STUB_NAME in contents:
        places |= dict.fromkeys(_PLACES_32[machine], STUB_NAME)
    files = {f"root/{place}/{LIBRARY_NAME}": contents[name] for place, name in places.items()}
    files["ld.so.preload"] = f"{PRELOAD_LINE}\n".encode()
    return files | {name: contents[name] for name in (HOOK_NAME, LIMITER_NAME) if name in contents}


def _put_right(files: dict[str, bytes], folder: Path) -> None:
    """Repair a version that is there: write files that are missing or differ. A program that has a file
    mapped keeps it."""
    for name, data in files.items():
        path = folder / name
        if not (_looks_right(path, len(data)) and path.read_bytes() == data):
            log.error("%s was not as it was installed, it is written again", path)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
            write_bytes_atomically(path, data, flush=True, mode=FILE_MODE)
    for path in _folders(folder, files):
        path.chmod(0o755)


def _folders(folder: Path, files: Iterable[str]) -> set[Path]:
    """All folders of a version with these files."""
    below = {folder / parent for name in files for parent in Path(name).parents}
    return below | {folder}


def _is_open(folder: Path) -> bool:
    """Whether users other than root reach what is in it."""
    return folder.stat().st_mode & 0o055 == 0o055


def _looks_right(path: Path, size: int) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and (status.st_size, stat.S_IMODE(status.st_mode)) == (
        size,
        FILE_MODE,
    )


def _write_version(files: dict[str, bytes], folder: Path) -> None:
    """All of it or nothing: made under another name, flushed, then renamed."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        for name, data in files.items():
            _write(draft / name, data)
        for path in _folders(draft, files):
            path.chmod(0o755)
        draft.rename(folder)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if not folder.is_dir():  # else another agent was quicker
            raise


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), FILE_MODE)
        file.flush()
        os.fsync(file.fileno())
