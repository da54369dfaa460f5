"""A live copy of one kind of object: list, then watch, and go on from where the watch ended.

The callback gets every change, one after the other, on the reflector's own thread. After a gap that the
server cannot fill (410) all objects are listed again, and those that vanished are reported as deleted. A
change is not reported twice. Changes in between may be skipped, as with every watch; the last state never is.

No answer, event or object stops a watch or is dropped in silence:

- What cannot be read is asked for in a new list.
- An object that ``transform`` fails on is kept whole.
- A server that ends each watch at once, or whose lists are too old when they come, is asked less and less
  often. The log says so.

A server that was restarted knows no earlier version, so all its clients list at the same moment. Thousands of
agents select what they see by fields, so they ask for what the server has in memory.

A server whose history was set back (etcd was restored from a backup) accepts a watch from a version that it
has not reached. It stays silent until it gets there, and never reports what changed before. So after each
break we first ask how far the server is.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import orjson

from vc_egpu.kube.backoff import Backoff
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.errors import (
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    RequestTimeout,
    Temporary,
    Unavailable,
    error_of,
)
from vc_egpu.kube.wire.reading import read
from vc_egpu.kube.wire.transport import Json, Stream

Key = tuple[str, str]
"""Namespace (empty for cluster-wide objects) and name."""

IDLE_TIMEOUT_S: Final = 100.0
"""A watch that says nothing for this long (bookmarks come about once a minute) is taken for dead."""
_SERVER_TIMEOUT_S: Final = (300, 600)
"""Drawn for each watch: watches that began together (after a restart of the server) do not end together."""
_LASTED_S: Final = 1.0
"""A watch that ended sooner was ended at once."""
_SILENCES: Final = 2
"""After so many in a row we no longer trust the version to go on from."""
_IN_VAIN: Final = 5
"""After so many watches in a row that ended at once, without an event or with an error, all is listed again.
An event that the server cannot send stays unsent to every watch from before it."""
_EARLY_S: Final = 2.0
"""A watch that the server ends this long before its time was cut off."""
_TOLD: Final = frozenset({1, 5, 20})
_TOLD_EVERY: Final = 60
"""Failures that are warned about; the last is about every ten minutes."""

logger = logging.getLogger(__name__)


class ChangeKind(Enum):
    """What happened to an object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change:
    """One change. Objects are shared with the store: never modify them."""

    kind: ChangeKind
    object: Json
    """The present state; for DELETED the last one known."""
    old: Json | None = None
    """The state before, if the object was known."""


def key_of(document: Json) -> Key:
    """(namespace, name) of an object."""
    metadata = document.get("metadata") or {}
    return metadata.get("namespace") or "", metadata.get("name") or ""


def drop_managed_fields(document: Json) -> Json:
    """A ``transform`` that saves about a third of the memory of a typical object."""
    metadata = document.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    return document


class Reflector:
    """Keeps ``store`` like the API server's state and reports each change to ``on_change``.

    ``synced`` is set once the first list was delivered. An exception from ``on_change`` or ``transform`` is
    logged with its traceback, counted in ``callback_failures`` or ``transform_failures``, and does not stop
    the stream. ``optional``: the cluster may lack the whole kind. Then there are no objects, it is looked for
    again and again, and nobody is warned.
    """

    def __init__(
        self,
        api: ApiConnection,
        resource: Resource,
        on_change: Callable[[Change], None] | None = None,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        transform: Callable[[Json], Json] = drop_managed_fields,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        backoff: Backoff | None = None,
        optional: bool = False,
    ) -> None:
        self.resource = resource
        self.synced = threading.Event()
        self.relists = 0
        self.callback_failures = 0
        self.transform_failures = 0
        self._api = api
        self._on_change = on_change
        self._path = resource.path(namespace)
        self._namespace = namespace
        self._selectors: dict[str, str | None] = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        self._transform = transform
        self._idle_timeout_s = idle_timeout_s
        self._backoff = backoff or Backoff()
        self._optional = optional
        self._draw = random.randint
        self._lock = threading.Lock()
        self._store: dict[Key, Json] = {}
        self._version: str | None = None
        self._at_least = ""
        """The version from which the server cannot go on; empty: a list from its memory is not enough."""
        self._reached = ""
        self._silences = self._in_vain = 0
        self._sure = False
        """Whether the server is the one that told what is known here."""
        self._doubted = threading.Event()
        self._failure: Exception | None = None
        self._stream: Stream | None = None
        self._stopping = threading.Event()
        self._contact_at = float("-inf")
        self._answered_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"watch-{resource.plural}", daemon=True)

    def start(self) -> "Reflector":
        """Begin on a thread of its own."""
        self._thread.start()
        return self

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread; no callback runs after this returns (unless one hangs beyond ``timeout_s``)."""
        self._stopping.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def list_again(self) -> None:
        """The caller knows more than this watch: end it and list all objects again.

        Nothing happens if there is no version to go on from, because then a list is under way or comes next.
        """
        if self._version is not None:
            self._doubted.set()
        with self._lock:
            stream = self._stream
        if stream is not None:
            stream.close()

    def wait_synced(self, timeout_s: float) -> bool:
        """Wait for the first list; False if it did not come in time."""
        return self.synced.wait(timeout_s)

    def get(self, name: str, namespace: str = "") -> Json | None:
        """The object as last seen, or None."""
        with self._lock:
            return self._store.get((namespace, name))

    def objects(self) -> list[Json]:
        """All objects as last seen."""
        with self._lock:
            return list(self._store.values())

    def silent_s(self) -> float:
        """Seconds since the API server last said anything here (infinite before the first list)."""
        return time.monotonic() - self._contact_at

    def unanswered_s(self) -> float:
        """Seconds since the API server last gave any answer here, a refusal too (or since this was made)."""
        return time.monotonic() - max(self._contact_at, self._answered_at)

    def reached(self) -> str:
        """The version up to which everything was reported; empty before the first list."""
        return self._reached

    def failure(self) -> Exception | None:
        """What the last try met; None as soon as the API server answers here again."""
        return self._failure

    # --- the thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._stopping.wait(self.turn())

    def turn(self) -> float:
        """List if need be and watch until the watch ends; returns how long to wait before the next turn.

        The reflector's thread does nothing else. No :class:`KubeError` comes out.
        """
        if self._doubted.is_set():
            self._doubted.clear()
            self._version = None
        try:
            if self._version is None:
                self._list()
            self._watch()
        except Gone as error:
            # Not at once: where lists take longer than the server remembers, each ends like this.
            if self._version is not None and self._selectors["fieldSelector"]:
                self._at_least = self._version
            self._version = None
            return self._pause_s(error, usual=True)
        except NotFound as error:
            # The CRD may come later: keep asking, and say so once in a while.
            self._version = None
            return self._absent() if self._optional else self._pause_s(error)
        except KubeError as error:
            if self._in_vain >= _IN_VAIN:
                self._version = None
            return self._pause_s(error)
        except Exception as error:
            logger.exception("watch %s: a fault of ours, listing again", self._path)
            self._version = None
            return self._pause_s(error)
        return 0.0

    def _pause_s(self, error: Exception, *, usual: bool = False) -> float:
        """How long to wait after this error; ``usual``: no warning unless it happens again and again."""
        self._failure = error
        if isinstance(error, KubeError) and error.status:
            self._answered_at = time.monotonic()
        delay_s = self._backoff.next_s()
        hint_s = error.retry_after_s if isinstance(error, Temporary) else None
        failures = self._backoff.failures
        told = failures in _TOLD or failures % _TOLD_EVERY == 0
        level = logging.WARNING if told and not (usual and failures == 1) else logging.DEBUG
        logger.log(level, "watch %s: %s; again in %.1f s", self._path, error, delay_s)
        return max(delay_s, hint_s or 0.0)

    def _list(self) -> None:
        at_least, self._at_least = self._at_least, ""
        listing = self._api.list(
            self.resource,
            self._namespace,
            label_selector=self._selectors["labelSelector"],
            field_selector=self._selectors["fieldSelector"],
            transform=self._item,
            not_older_than=at_least,
        )
        self._contact_at = time.monotonic()
        self.relists += 1
        fresh = {key_of(document): document for document in listing.items}
        with self._lock:
            known = dict(self._store)
        for key, old in known.items():
            if key not in fresh or _uid(fresh[key]) != _uid(old):
                self._apply(ChangeKind.DELETED, key, old)
        for key, document in fresh.items():
            self._apply(ChangeKind.MODIFIED, key, document)
        self._version = self._reached = listing.resource_version
        self._silences = self._in_vain = 0
        self._sure = True
        self._failure = None
        self.synced.set()

    def _absent(self) -> float:
        """The server does not have the kind: that is as good as a list. After how many s to ask again."""
        with self._lock:
            known = dict(self._store)
        for key, old in known.items():
            self._apply(ChangeKind.DELETED, key, old)
        self._contact_at, self._failure = time.monotonic(), None
        self.synced.set()
        delay_s = self._backoff.next_s()
        logger.debug("watch %s: no such kind; again in %.1f s", self._path, delay_s)
        return delay_s

    def _item(self, document: Json) -> Json:
        """An item of a list: it carries neither, watch events do, and callbacks are to see no difference."""
        self._contact_at = time.monotonic()
        document.setdefault("apiVersion", self.resource.api_version)
        document.setdefault("kind", self.resource.kind)
        return self._kept(document)

    def _kept(self, document: Json) -> Json:
        """What is kept of an object; all of it if ``transform`` fails, so that its reader can report the
        fault."""
        try:
            return self._transform(document)
        except Exception:
            self.transform_failures += 1
            where = "/".join(key_of(document))
            logger.exception("watch %s: %s cannot be made smaller, and is kept whole", self._path, where)
            return document

    def _was_set_back(self) -> bool:
        """Whether the server is behind our version: then all has to be listed again."""
        try:
            # Ask for any one object, without selectors: to find a matching one the server may have to read
            # all.
            page = self._api.request("GET", self._path, query={"limit": 1})
        except Forbidden:
            return False  # this account may list some objects by name only
        now, mine = str(page["metadata"].get("resourceVersion")), str(self._version)
        if not (now.isdecimal() and mine.isdecimal() and int(now) < int(mine)):
            return False
        text = "watch %s: the server is at version %s and was at %s: its history was set back, listing again"
        logger.warning(text, self._path, now, mine)
        self._version = None
        return True

    def _watch(self) -> None:
        sure, self._sure = self._sure, False
        if not sure and self._was_set_back():
            return
        seconds = self._draw(*_SERVER_TIMEOUT_S)
        query: dict[str, str | int | bool | None] = {
            **self._selectors,
            "watch": True,
            "allowWatchBookmarks": True,
            "resourceVersion": self._version,
            "timeoutSeconds": seconds,
        }
        stream = self._api.stream(self._path, query, idle_timeout_s=self._idle_timeout_s)
        began = time.monotonic()
        self._failure = None
        with self._lock:
            self._stream = stream
        try:
            if self._stopping.is_set() or self._doubted.is_set():
                return
            for line in stream.lines():
                self._contact_at = time.monotonic()
                self._receive(line)
                if self._stopping.is_set() or self._doubted.is_set():
                    return
            self._sure = time.monotonic() - began >= seconds - _EARLY_S
        except RequestTimeout:
            self._silent()
        finally:
            with self._lock:
                self._stream = None
            stream.close()
            if lasted := time.monotonic() - began >= _LASTED_S:
                self._backoff.reset()
            self._in_vain = 0 if lasted else self._in_vain + 1
        if not (lasted or self._doubted.is_set()):
            # A server that ends each watch at once must not be asked in a tight loop.
            raise Unavailable(f"WATCH {self._path}: ended by the server at once")

    def _silent(self) -> None:
        """Nothing happened for long, or the connection is dead without a word: going on from the same
        version costs one request and settles which."""
        self._silences += 1
        logger.info("watch %s: silent for %.0f s, asking again", self._path, self._idle_timeout_s)
        if self._silences >= _SILENCES:
            self._version = None

    def _receive(self, line: bytes) -> None:
        try:
            event = read(line, f"WATCH {self._path}")
            kind, document = event["type"], event["object"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            self._version = None  # from here on it may be there each time
            raise Unavailable(f"WATCH {self._path}: an event is garbled: {error}") from error
        if kind == "ERROR":
            raise error_of(int(document.get("code") or 500), document, context=f"WATCH {self._path}")
        version = document["metadata"]["resourceVersion"]
        if kind != "BOOKMARK":
            self._apply(ChangeKind(kind), key_of(document), self._kept(document))
        self._version = self._reached = version
        self._silences = self._in_vain = 0
        self._backoff.reset()

    def _apply(self, kind: ChangeKind, key: Key, document: Json) -> None:
        """Bring the store up to date, then report; ADDED or MODIFIED is decided by what was known."""
        with self._lock:
            old = self._store.get(key)
            if kind is ChangeKind.DELETED:
                self._store.pop(key, None)
                change = Change(kind, document, old)
            elif old is None:
                self._store[key] = document
                change = Change(ChangeKind.ADDED, document)
            else:
                self._store[key] = document
                if _version(old) == _version(document) and _uid(old) == _uid(document):
                    return
                change = Change(ChangeKind.MODIFIED, document, old)
        if self._on_change is None:
            return
        try:
            self._on_change(change)
        except Exception:
            self.callback_failures += 1
            logger.exception("watch %s: the callback failed on %s %s", self._path, kind.value, "/".join(key))


def _uid(document: Json) -> Any:
    return (document.get("metadata") or {}).get("uid")


def _version(document: Json) -> Any:
    return (document.get("metadata") or {}).get("resourceVersion")
