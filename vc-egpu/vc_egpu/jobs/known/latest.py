"""The newest state of each object that we know, from the watch or from the answers to our own writes.

A controller may be quicker than its watch. Without the answers it would decide on a world without its own
last write, and would write again.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from vc_egpu.kube import Change, ChangeKind, Json, Key, key_of

T = TypeVar("T")
_TOMBSTONES: Final = 20_000


class Latest(Generic[T]):
    """Thread-safe. ``read`` turns a document into what is kept; ``indexes`` name groups of kept values."""

    def __init__(
        self, read: Callable[[Json], T], indexes: dict[str, Callable[[T], Hashable | None]] | None = None
    ) -> None:
        self._read = read
        self._indexers = indexes or {}
        self._lock = threading.RLock()
        self._values: dict[Key, tuple[int, str, T]] = {}
        self._indexes: dict[str, dict[Hashable, set[Key]]] = {name: {} for name in self._indexers}
        self._gone: OrderedDict[str, bool] = OrderedDict()
        """UIDs of deleted objects, and whether the watch reported the end."""

    def watch(self, change: Change) -> tuple[T | None, T]:
        """Take a change from the watch; returns the value that the watch reported before, and the new one.

        Both values are from the watch, never from an answer to our own write. Such an answer may already hold
        changes by others, so the caller would see no difference.

        The watch is believed even when it goes back. An API server that was restored from a backup reports
        older versions, and objects whose end it had reported.
        """
        key, document, before = key_of(change.object), change.object, change.old
        value = self._read(document)
        old = self._read(before) if before is not None else None
        uid = document["metadata"]["uid"]
        with self._lock:
            if change.kind is ChangeKind.DELETED:
                self._bury(key, uid, told=True)
                return old, value
            if self._gone.get(uid):
                del self._gone[uid]
            if uid not in self._gone:
                if before is not None and _version(before) > _version(document) and key in self._values:
                    self._remove(key)
                self._store(key, document, value)
        return old, value

    def gone(self, key: Key, uid: str) -> None:
        """We deleted the object, whatever the watch still reports about it."""
        with self._lock:
            self._bury(key, uid, told=self._gone.get(uid, False))

    def put(self, document: Json) -> None:
        """Take the answer to a write of ours."""
        if "metadata" not in document or "uid" not in document["metadata"]:
            return
        with self._lock:
            # The watch may have seen the end of the object before we saw the answer.
            if document["metadata"]["uid"] not in self._gone:
                self._store(key_of(document), document, self._read(document))

    def get(self, key: Key) -> T | None:
        """The value of one object."""
        with self._lock:
            entry = self._values.get(key)
            return entry[2] if entry is not None else None

    def by(self, index: str, value: Hashable) -> list[T]:
        """The values that the index puts under ``value``, in the order of their keys."""
        with self._lock:
            keys = self._indexes[index].get(value)
            return [self._values[key][2] for key in sorted(keys)] if keys else []

    def all(self) -> list[T]:
        """All values."""
        with self._lock:
            return [entry[2] for entry in self._values.values()]

    def _bury(self, key: Key, uid: str, *, told: bool) -> None:
        self._gone[uid] = told
        while len(self._gone) > _TOMBSTONES:
            self._gone.popitem(last=False)
        known = self._values.get(key)
        if known is not None and known[1] == uid:
            self._remove(key)

    def _store(self, key: Key, document: Json, value: T) -> None:
        version, uid = _version(document), document["metadata"]["uid"]
        before = self._values.get(key)
        if before is not None:
            if before[0] > version:
                return
            self._remove(key)
        self._values[key] = (version, uid, value)
        for name, indexer in self._indexers.items():
            where = indexer(value)
            if where is not None:
                self._indexes[name].setdefault(where, set()).add(key)

    def _remove(self, key: Key) -> None:
        _, _, value = self._values.pop(key)
        for name, indexer in self._indexers.items():
            where = indexer(value)
            keys = self._indexes[name].get(where) if where is not None else None
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._indexes[name][where]


def _version(document: Json) -> int:
    return int(document["metadata"].get("resourceVersion") or 0)
