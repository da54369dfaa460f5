"""A snapshot as a JSON document and back, without loss: equal snapshots, equal decisions.

What-if, replay and other clusters start from such a document. The form of every field follows from its
declared type; see :mod:`.values_codec`. A new field with a default needs no new version of the format: older
documents are read with that default. A change of what an existing field or default means raises
:data:`VERSION`.
"""

import json
from typing import Any, Final

import orjson

from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.report import values_codec

FORMAT: Final = "vc-egpu-snapshot"
VERSION: Final = 1

Json = dict[str, Any]


class SnapshotError(ValueError):
    """A document holds no snapshot that this version can read."""


class OtherFormatError(SnapshotError):
    """The document is of another version of the format, or something else altogether."""


class DamagedSnapshotError(SnapshotError):
    """The document says that it is a snapshot, and a part of it is missing or wrong."""


def encode(snapshot: Snapshot) -> Json:
    """The document."""
    values = values_codec.encode(snapshot, Snapshot)
    return {"format": FORMAT, "version": VERSION, "values": values}


def decode(document: Any) -> Snapshot:
    """The snapshot in a document. Raises :class:`SnapshotError`; the text names the place that is wrong."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise OtherFormatError(f"this is no snapshot: it has no format {FORMAT!r}")
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        raise OtherFormatError(f"the snapshot has version {version!r}; this program reads version {VERSION}")
    try:
        snapshot: Snapshot = values_codec.decode(document.get("values"), Snapshot)
        _check(snapshot)
    except values_codec.DamagedError as error:
        raise DamagedSnapshotError(f"the snapshot is damaged: {error}") from error
    return snapshot


def to_json(document: Json) -> bytes:
    """The document as text. Numbers beyond 64 bits, which are rare, take the slower way."""
    try:
        return orjson.dumps(document)
    except TypeError:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(text: bytes | str) -> Snapshot:
    """The snapshot in a file. Raises :class:`SnapshotError`.

    A saved page of ``/v1/snapshot`` will do: its snapshot stands under ``snapshot``.
    """
    try:
        document = json.loads(text)  # orjson makes floats of numbers beyond 64 bits
    except ValueError as error:
        raise DamagedSnapshotError(f"the snapshot is damaged: {error}") from error
    except RecursionError as error:
        raise DamagedSnapshotError("the snapshot is damaged: it is nested too deep") from error
    if isinstance(document, dict) and "format" not in document and "snapshot" in document:
        document = document["snapshot"]
    return decode(document)


def _check(snapshot: Snapshot) -> None:
    """Each object stands under its own name: decisions look it up by either."""
    for kind, named in (
        ("nodes", {key: node.name for key, node in snapshot.nodes.items()}),
        ("pods", {key: pod.uid for key, pod in snapshot.pods.items()}),
        ("kept", {key: pod.uid for key, pod in snapshot.kept.items()}),
        ("gangs", {key: gang.key for key, gang in snapshot.gangs.items()}),
        ("queues", {key: queue.name for key, queue in snapshot.queues.items()}),
    ):
        for key, name in named.items():
            if key != name:
                raise values_codec.DamagedError(f"it calls itself {name!r}", f"{kind}.{key}")
