"""The Jobs that are known, each kept in a compact form: their specs are what users make large.

Read into Python's objects, a Job takes six times the memory of its JSON. Between two looks nothing but its
queue is read, so the rest of the spec is kept as JSON.
"""

from typing import Final

import orjson

from vc_egpu.jobs.known.latest import Latest
from vc_egpu.kube import Change, Json, Key, key_of
from vc_egpu.volcano.words import names

_PACKED: Final = "packed"
"""Stands in the place of the spec; no field of a Job has this name."""


def pack(document: Json) -> Json:
    """The Job with its spec as JSON, without fields that no decision reads. One that is packed stays so."""
    if _PACKED in document:
        return document
    metadata = {key: value for key, value in document["metadata"].items() if key != "managedFields"}
    if names.LAST_APPLIED in (metadata.get("annotations") or {}):
        metadata["annotations"] = {
            key: value for key, value in metadata["annotations"].items() if key != names.LAST_APPLIED
        }
    kept = {key: value for key, value in document.items() if key not in {"metadata", "spec"}}
    # The writer leaves much room behind what it wrote: a copy has none.
    packed = bytes(memoryview(orjson.dumps(document.get("spec") or {})))
    return {**kept, "metadata": metadata, _PACKED: packed}


def unpack(packed: Json) -> Json:
    """A document of its own, as the API server has it."""
    rest = {key: value for key, value in packed.items() if key != _PACKED}
    return {**rest, "spec": orjson.loads(packed[_PACKED])}


class Jobs:
    """Thread-safe."""

    def __init__(self) -> None:
        self._latest: Latest[Json] = Latest(pack, {"queue": _queue_of})

    def watch(self, change: Change) -> None:
        """Take a change from the watch, packed or not."""
        self._latest.watch(change)

    def put(self, document: Json) -> None:
        """Take the answer to a write of ours."""
        self._latest.put(document)

    def get(self, key: Key) -> Json | None:
        """The whole Job. The caller may change it, but not its metadata and status."""
        packed = self._latest.get(key)
        return unpack(packed) if packed is not None else None

    def uid(self, key: Key) -> str | None:
        """The UID of the Job of this name, if there is one."""
        packed = self._latest.get(key)
        return str(packed["metadata"]["uid"]) if packed is not None else None

    def all_keys(self) -> list[Key]:
        """Namespace and name of all."""
        return [key_of(packed) for packed in self._latest.all()]

    def of_queue(self, name: str) -> list[Key]:
        """Those that name this queue."""
        return [key_of(packed) for packed in self._latest.by("queue", name)]


def _queue_of(packed: Json) -> str:
    """Asked once for each state of a Job that comes."""
    spec = orjson.loads(packed[_PACKED])
    return str(spec.get("queue") or "default")
