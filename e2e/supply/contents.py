"""What an image holds, read from its OCI archive: every file, and whose it is.

No program of the image is run, so it may be one for another machine.
"""

import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, Final

from image.dpkg import STATUS

from supply import debian
from supply.lock import Locked, LockError, Package, licence_of

SITE_PACKAGES: Final = "usr/local/lib/python3.11/dist-packages/"
OURS: Final = ("vc_egpu/", "vc_egpu_node/")
_OWN_FOLDERS: Final = ("usr/local/lib/vc-egpu/", "usr/local/bin/")
_METADATA: Final = ".dist-info/METADATA"
_RECORD: Final = ".dist-info/RECORD"


@dataclass(frozen=True, slots=True)
class Contents:
    """One image."""

    machine: str
    """In the words of OCI."""
    files: frozenset[str]
    """Paths of all files and links, without the first slash."""
    texts: Mapping[str, str] = field(repr=False)
    """What tells of packages, by path."""

    @classmethod
    def read(cls, archive: Path) -> "Contents":
        """Raises ``OSError`` or ``tarfile.TarError`` for what is no archive of one image."""
        files: set[str] = set()
        texts: dict[str, str] = {}
        with tarfile.open(archive) as tar:
            manifest = _json(tar, _json(tar, "index.json")["manifests"][0]["digest"])
            if "layers" not in manifest:
                raise LockError(f"{archive} holds an index of several images; name the archive of one")
            for layer in manifest["layers"]:
                with tarfile.open(fileobj=tar.extractfile(_blob(layer["digest"]))) as found:
                    for member in found:
                        name = member.name.removeprefix("./")
                        if not member.isdir():
                            files.add(name)
                        if _tells(name) and (data := found.extractfile(member)) is not None:
                            texts[name] = data.read().decode()
            machine = str(_json(tar, manifest["config"]["digest"])["architecture"])
        return cls(machine, frozenset(files), texts)

    def debian(self) -> list[debian.Package]:
        """The packages that dpkg's own file names. Raises :class:`LockError` where it names none."""
        found = list(debian.read(self.texts.get(STATUS, "")))
        if not found:
            raise LockError(f"{STATUS} of the image names no package")
        return found

    def python(self, locked: Iterable[Locked]) -> list[Package]:
        """Each locked package as it is in the image. Raises :class:`LockError` for one that is missing, is
        another version, or is not locked."""
        there = {_canonical(str(said["Name"])): (path, said) for path, said in self._metadata()}
        found = []
        for one in locked:
            path, said = there.pop(_canonical(one.name), ("", Message()))
            if said["Version"] != one.version:
                raise LockError(f"{one.name}: {said['Version']} is in the image, {one.version} is locked")
            found.append(Package(one, licence_of(said), tuple(self._recorded(path))))
        if there:
            raise LockError(f"{', '.join(sorted(there))}: is in the image and not in the lock file")
        return found

    def ours(self) -> tuple[str, ...]:
        """Files of our own."""
        own = (*(f"{SITE_PACKAGES}{folder}" for folder in OURS), *_OWN_FOLDERS)
        return tuple(sorted(path for path in self.files if path.startswith(own)))

    def of_nobody(self, packages: Iterable[Package]) -> list[str]:
        """Files of site-packages and of /usr/local that no package has, and that are not ours."""
        known = {path for package in packages for path in package.files} | set(self.ours())
        return sorted(path for path in self.files if path.startswith("usr/local/") and path not in known)

    def _metadata(self) -> Iterator[tuple[str, Message]]:
        for path, text in self.texts.items():
            if path.endswith(_METADATA):
                yield path, HeaderParser().parsestr(text)

    def _recorded(self, path: str) -> Iterator[str]:
        """Those files of a package's record that are in the image; with its byte code, which pip made not."""
        record = self.texts[path.removesuffix(_METADATA) + _RECORD]
        for line in record.splitlines():
            name = SITE_PACKAGES + line.rsplit(",", 2)[0].strip('"')
            if name in self.files:
                yield name
            folder, _, module = name.rpartition("/")
            compiled = f"{folder}/__pycache__/{module.removesuffix('.py')}.cpython-311.pyc"
            if module.endswith(".py") and compiled in self.files:
                yield compiled


def _tells(name: str) -> bool:
    ours = name.startswith(SITE_PACKAGES) and name.endswith((_METADATA, _RECORD))
    return name == STATUS or ours


def _canonical(name: str) -> str:
    """As package indexes compare names."""
    return name.lower().replace("_", "-").replace(".", "-")


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(tar: tarfile.TarFile, name: str) -> Any:
    data = tar.extractfile(_blob(name) if name.startswith("sha256:") else name)
    if data is None:
        raise LockError(f"the image is no OCI archive: {name} is missing")
    return json.load(data)
