"""What the images in an archive say of themselves, and the operator's row that says the same.

Archives are tar files as ``docker save``, ``podman save`` and ``ctr images export`` write them. Nothing is
asked of a registry.
"""

import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from vc_egpu.volcano.needs import nvidia

MOST_BYTES: Final = 4 << 20
"""An index, a manifest or a configuration is no larger; the specification of OCI asks for as much."""
MOST_IMAGES: Final = 64
MOST_TEXTS: Final = 16
"""A row of the table has no more."""
_DEEPEST: Final = 3
_NAMES: Final = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
_UNTOLD: Final = "brand"
"""What images may ask of a card and no node tells: taken for met, so that a row leaves it out."""

Json = dict[str, Any]


class ArchiveError(ValueError):
    """The file is no archive of images; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image, and the variables that its containers get."""

    name: str
    """Empty: the archive names none."""
    environment: Mapping[str, str] = field(default_factory=dict)


def images_in(file: Path) -> tuple[Image, ...]:
    """All images, those of each platform singly. Raises :class:`ArchiveError` or OSError."""
    try:
        with tarfile.open(file) as tar:
            return _Archive(tar).images()
    except tarfile.TarError as error:
        raise ArchiveError(f"is no tar file: {' '.join(str(error).split())}") from error


def row_of(image: Image, pattern: str = "") -> tuple[Json | None, tuple[str, ...]]:
    """(the row for the operator's table, warnings); no row where the image says nothing.

    ``pattern``: the names of images that the row is for; the image's own where it is empty.
    """
    words = nvidia.read(image.environment)
    ways = (tuple(atom for atom in way if atom.fact != _UNTOLD) for way in words.ways)
    texts = list(dict.fromkeys(",".join(map(str, way)) for way in ways))
    if not texts or "" in texts:  # a way without conditions is met everywhere
        return None, words.warnings
    if len(texts) > MOST_TEXTS:
        asks = f"asks for any of {len(texts)} things, and a row has {MOST_TEXTS} at most"
        return None, (*words.warnings, f"{', '.join(words.names)}: {asks}")
    needs = texts[0] if len(texts) == 1 else texts
    return {"image": pattern or image.name, "needs": needs}, words.warnings


class _Archive:
    """An open archive, with its members by name."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._read_already: set[str] = set()
        self._members = {one.name.removeprefix("./"): one for one in tar if one.isfile()}

    def images(self) -> tuple[Image, ...]:
        if "index.json" in self._members:
            found = list(self._of_index(self._read("index.json"), "", 0))
        elif "manifest.json" in self._members:
            found = list(self._of_docker(self._read("manifest.json")))
        else:
            raise ArchiveError("has neither index.json nor manifest.json")
        if not found:
            raise ArchiveError("has no image")
        return tuple(found[:MOST_IMAGES])

    def _of_index(self, index: object, name: str, depth: int) -> Iterator[Image]:
        """Images of an OCI index. An archive may lack the blobs of some platforms."""
        for entry in _entries(_mapping(index).get("manifests")):
            marks = _mapping(entry.get("annotations"))
            named = next((str(marks[key]) for key in _NAMES if marks.get(key)), name)
            path = _blob(entry)
            if path not in self._members or path in self._read_already:
                continue
            self._read_already.add(path)
            document = _mapping(self._read(path))
            if "manifests" in document:
                if depth < _DEEPEST:
                    yield from self._of_index(document, named, depth + 1)
                continue
            config = _blob(_mapping(document.get("config")))
            if config in self._members:
                yield from self._of_config(named, self._read(config))

    def _of_docker(self, manifest: object) -> Iterator[Image]:
        for entry in _entries(manifest):
            tags = entry.get("RepoTags")
            name = str(tags[0]) if isinstance(tags, list) and tags else ""
            config = str(entry.get("Config") or "")
            if config in self._members:
                yield from self._of_config(name, self._read(config))

    def _of_config(self, name: str, document: object) -> Iterator[Image]:
        """Attestations have a configuration without the part that runs."""
        config = _mapping(document).get("config")
        if not isinstance(config, dict):
            return
        listed = config.get("Env")
        pairs = (str(entry).partition("=") for entry in (listed if isinstance(listed, list) else ()))
        yield Image(name, {key: value for key, _, value in pairs if key})

    def _read(self, path: str) -> object:
        member = self._members[path]
        if member.size > MOST_BYTES:
            raise ArchiveError(f"{path} has {member.size} bytes, the limit is {MOST_BYTES}")
        file = self._tar.extractfile(member)
        try:
            return json.loads(file.read() if file is not None else b"")
        except (ValueError, RecursionError) as error:
            raise ArchiveError(f"{path} is no JSON: {error}") from error


def _blob(descriptor: Mapping[str, Any]) -> str:
    """Where what a descriptor names lies."""
    return f"blobs/{str(descriptor.get('digest') or '').replace(':', '/', 1)}"


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _entries(value: object) -> list[Json]:
    return [_mapping(entry) for entry in value] if isinstance(value, list) else []
