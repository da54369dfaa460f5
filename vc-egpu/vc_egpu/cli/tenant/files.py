"""Reads tenants' documents from files, folders and standard input, and writes rendered files."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from vc_egpu.tenants.document import DocumentError, Tenant, check_apart, read
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

_ENDINGS: Final = frozenset({".yaml", ".yml", ".json"})
GENERATED: Final = "# Made by `kubectl egpu tenant render` of the tenant's document. Edit that instead.\n"


class FileError(ValueError):
    """A file cannot be read or written; the text says which and why."""


def documents(paths: Sequence[str]) -> list[Tenant]:
    """All tenants that these hold. Raises :class:`FileError`, :class:`DocumentError`."""
    found = [tenant for path in paths for text, source in _texts(path) for tenant in read(text, source)]
    check_apart(found)
    return found


def table(path: str) -> ModelTable:
    """A table of models from a file. Raises :class:`FileError`."""
    try:
        return ModelTable.from_yaml(_text(Path(path)))
    except ModelTableError as error:
        raise FileError(f"{path}: {error}") from error


def save(path: Path, text: str) -> None:
    """Write a file, with the folders that it needs. Raises :class:`FileError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise FileError(f"{path}: cannot be written: {error.strerror}") from error


def _texts(path: str) -> Iterable[tuple[str, str]]:
    if path == "-":
        yield sys.stdin.read(), "standard input"
        return
    place = Path(path)
    if not place.is_dir():
        yield _text(place), path
        return
    inside = sorted(one for one in place.iterdir() if one.suffix in _ENDINGS)
    if not inside:
        raise DocumentError(f"{path}: there is no document in this folder")
    for one in inside:
        yield _text(one), str(one)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: is no UTF-8 text") from error
