"""Reads the lock file, and what the installed packages say of themselves."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from importlib import metadata

_LINE = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class LockError(ValueError):
    """The lock file and the environment do not fit; the text names the package."""


@dataclass(frozen=True, slots=True)
class Locked:
    """One line of the lock file."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of each file that may be installed."""


@dataclass(frozen=True, slots=True)
class Package:
    """The same with what its own metadata says."""

    locked: Locked
    licence: str
    """As the package writes it; empty where it says nothing."""
    files: tuple[str, ...]
    """Paths below site-packages, or in the image."""


def read(text: str) -> list[Locked]:
    """All packages of a lock file. Raises :class:`LockError` for one without a hash."""
    found: list[Locked] = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        match = _LINE.match(block)
        if match is None:
            continue
        hashes = tuple(_HASH.findall(block))
        if not hashes:
            raise LockError(f"{match['name']}: the lock file has no hash of it")
        found.append(Locked(match["name"], match["version"], hashes))
    return found


def installed(locked: Locked) -> Package:
    """The installed package. Raises :class:`LockError` where it is another version, or missing."""
    try:
        found = metadata.distribution(locked.name)
    except metadata.PackageNotFoundError as error:
        raise LockError(f"{locked.name}: is not installed; run `make venv`") from error
    if found.version != locked.version:
        raise LockError(f"{locked.name}: {found.version} is installed, {locked.version} is locked")
    files = tuple(sorted(str(path) for path in found.files or ()))
    return Package(locked, licence_of(found.metadata), files)


def licence_of(said: metadata.PackageMetadata | Message) -> str:
    """As a package's own metadata name it; empty where they do not."""
    return next(filter(None, _licences(said)), "")


def _licences(said: metadata.PackageMetadata | Message) -> Iterator[str]:
    """In the order in which they are to be believed."""
    yield str(said["License-Expression"] or "") if "License-Expression" in said else ""
    yield _one_line(str(said["License"] or "")) if "License" in said else ""
    named = [text for text in said.get_all("Classifier") or () if text.startswith("License ::")]
    yield " AND ".join(text.rpartition(" :: ")[2] for text in named)


def _one_line(text: str) -> str:
    """Some put the whole licence there: its first line is its name."""
    return text.strip().splitlines()[0].strip() if text.strip() else ""
