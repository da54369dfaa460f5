"""Objects as last heard of: from the watch or from the answers to our own writes, whichever is newer.

Without the second source a controller that is quicker than its watch decides on a world in which its own
last write has not happened, and does it again.
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
        """UIDs of what is gone, and whether the watch said so."""

    def watch(self, change: Change) -> tuple[T | None, T]:
        """Take a change from the watch; returns the value that the watch told before, and the one it tells.

        Never an answer to a write of ours in their place: that may already hold what others did at the same
        time, and whoever compares would take their change for no change.

        What the watch takes back itself is so: an API server whose history was set back (restored from a
        backup) tells of older versions, and of objects again whose end it had told.
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
        """We deleted the object, whatever the watch still tells of it."""
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
