"""Events for people (``kubectl describe``): sent in the background, counted instead of repeated."""

import logging
import queue
import threading
import time
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import EVENTS
from vc_egpu.kube.wire.errors import KubeError, NotFound
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.kube.wire.transport import Json

EventType = Literal["Normal", "Warning"]
_MAX_NOTE: Final = 1024
_REMEMBERED: Final = 4096
_SAME_FOR_S: Final = 360.0
"""The same event within this time becomes a count on the first one."""
_COUNT_EVERY_S: Final = 30.0
"""A count is written at most this often."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Note:
    regarding: Json
    kind: EventType
    reason: str
    action: str
    note: str

    @property
    def key(self) -> tuple[str, ...]:
        about = self.regarding
        return (str(about.get("uid") or about.get("name")), self.kind, self.reason, self.note)


@dataclass(slots=True)
class _Sent:
    name: str
    namespace: str
    first_at: float
    written_at: float
    count: int = 1


class EventRecorder:
    """Sends events about objects. ``event`` returns at once; with the server away the oldest are dropped."""

    def __init__(
        self,
        api: ApiConnection,
        component: str,
        instance: str,
        *,
        qps: float = 20.0,
        burst: int = 100,
        capacity: int = 2000,
    ) -> None:
        self.dropped = 0
        self._api = api
        self._component = component
        self._instance = instance[:128]
        self._limit = TokenBucket(qps, burst)
        self._queue: queue.Queue[_Note | None] = queue.Queue(capacity)
        self._sent: OrderedDict[tuple[str, ...], _Sent] = OrderedDict()
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)
        self._started = threading.Lock()

    def event(self, about: Json, kind: EventType, reason: str, note: str, action: str = "") -> None:
        """Record one event about an object (its apiVersion, kind and metadata are read, nothing else)."""
        metadata = about.get("metadata") or {}
        regarding: Json = {
            "apiVersion": about.get("apiVersion"),
            "kind": about.get("kind"),
            "name": metadata.get("name"),
            "namespace": metadata.get("namespace"),
            "uid": metadata.get("uid"),
        }
        self._ensure_thread()
        value = _Note({k: v for k, v in regarding.items() if v}, kind, reason, action or reason, _fit(note))
        while True:
            try:
                self._queue.put_nowait(value)
            except queue.Full:
                try:
                    self._queue.get_nowait()
                    self.dropped += 1
                except queue.Empty:
                    continue
            else:
                return

    def stop(self, timeout_s: float = 3.0) -> None:
        """Send what is queued, as far as the time goes."""
        if self._thread.is_alive():
            try:
                self._queue.put(None, timeout=timeout_s)
            except queue.Full:
                return
            self._thread.join(timeout_s)

    def _ensure_thread(self) -> None:
        with self._started:
            if self._thread.ident is None:
                self._thread.start()

    def _run(self) -> None:
        while (value := self._queue.get()) is not None:
            try:
                self._send(value)
            except KubeError as error:
                self.dropped += 1
                logger.debug("event %s not sent: %s", value.reason, error)
            except Exception:
                logger.exception("event %s: a fault of ours", value.reason)

    def _send(self, value: _Note) -> None:
        now = time.monotonic()
        known = self._sent.get(value.key)
        if known is not None and now - known.first_at < _SAME_FOR_S:
            known.count += 1
            if now - known.written_at < _COUNT_EVERY_S:
                return
            self._limit.take()
            known.written_at = now
            series = {"count": known.count, "lastObservedTime": _micro_now()}
            try:
                self._api.patch(EVENTS, known.name, {"series": series}, known.namespace)
            except NotFound:
                self._sent.pop(value.key, None)
            return
        self._limit.take()
        namespace = value.regarding.get("namespace") or "default"
        about = str(value.regarding.get("name"))[:200].rstrip("-.")  # no part of a name ends in these
        name = f"{about}.{uuid.uuid4().hex[:16]}"
        self._api.create(EVENTS, self._document(value, name, namespace), namespace)
        self._sent[value.key] = _Sent(name, namespace, now, now)
        self._sent.move_to_end(value.key)
        while len(self._sent) > _REMEMBERED:
            self._sent.popitem(last=False)

    def _document(self, value: _Note, name: str, namespace: str) -> Json:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": _micro_now(),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "action": value.action,
            "reason": value.reason,
            "regarding": value.regarding,
            "note": value.note,
            "type": value.kind,
        }


def _micro_now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _fit(note: str) -> str:
    """The API takes 1024 bytes of note."""
    data = note.encode()
    return note if len(data) <= _MAX_NOTE else data[: _MAX_NOTE - 3].decode("utf-8", "ignore") + "..."
