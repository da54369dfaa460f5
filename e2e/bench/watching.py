"""A watch on the benchmark's pods that goes on where the API server breaks it off."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import KubeError, Temporary
from vc_egpu.kube.wire.transport import Query

_IDLE_S: Final = 300.0
_VERSION: Final = re.compile(rb'"resourceVersion":"(\d+)"')
"""The first one of a line is the object's own: lines start with its type, then its metadata."""


class BenchError(RuntimeError):
    """The load did not run as it should; a figure would mean nothing."""


class PodWatch:
    """All events of one namespace's pods, in order. Close it from any thread.

    The API server closes a watch whose reader is behind for some tens of milliseconds, and on a loaded
    machine that happens in every burst: the next watch then starts at the version of the last event.
    """

    def __init__(self, kubeconfig: Path, namespace: str, field_selector: str | None = None) -> None:
        self._api = ApiConnection.connect(kubeconfig, user_agent="bench-watch")
        self._namespace = namespace
        self._selector = field_selector
        self._version = self._api.list(PODS, namespace, field_selector=field_selector).resource_version
        self._closed = threading.Event()
        self._stream = self._open()
        self.reopened = 0

    def _open(self) -> Any:
        query: Query = {
            "watch": True,
            "resourceVersion": self._version,
            "fieldSelector": self._selector,
            "allowWatchBookmarks": True,
        }
        return self._api.stream(PODS.path(self._namespace), query, idle_timeout_s=_IDLE_S)

    def lines(self) -> Iterator[bytes]:
        """Raw events until it is closed; raises :class:`BenchError` where events may have been missed."""
        while not self._closed.is_set():
            last = b""
            try:
                for line in self._stream.lines():
                    if line.startswith(b'{"type":"ERROR"'):
                        raise BenchError(f"the watch broke: {line[:300].decode(errors='replace')}")
                    last = line
                    yield line
            except Temporary as error:
                if not self._closed.is_set():
                    raise BenchError(f"the watch broke: {error}") from error
            finally:
                if match := _VERSION.search(last):
                    self._version = match.group(1).decode()
            if not self._closed.is_set():
                self.reopened += 1
                self._stream = self._open()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self._stream.close()
        self._api.close()


@dataclass(slots=True)
class BindWatch:
    """Counts pods as they get a node; times are of this process's monotonic clock."""

    kubeconfig: Path
    namespace: str
    times: list[float] = field(default_factory=list)
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _watch: PodWatch = field(init=False)
    _thread: threading.Thread | None = None
    _error: Exception | None = None

    def __enter__(self) -> "BindWatch":
        self._watch = PodWatch(self.kubeconfig, self.namespace, "spec.nodeName!=")
        self._thread = threading.Thread(target=self._read, name="bind-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()
        if self._thread is not None:
            self._thread.join(10)

    def _read(self) -> None:
        try:
            for line in self._watch.lines():
                # A pod begins to match when it gets a node; the rest of the line is not looked at, since
                # this process shares the cores with what it measures.
                if line.startswith(b'{"type":"ADDED"'):
                    now = time.monotonic()
                    with self._wake:
                        self.times.append(now)
                        self._wake.notify_all()
        except (BenchError, KubeError) as error:
            with self._wake:
                self._error = error
                self._wake.notify_all()

    def wait_for(self, count: int, timeout_s: float, alive: Callable[[], None]) -> float:
        """Wait until ``count`` pods are bound; the time of the last. Raises :class:`BenchError`."""
        deadline = time.monotonic() + timeout_s
        with self._wake:
            while len(self.times) < count:
                if self._error is not None:
                    raise BenchError(f"{len(self.times)} of {count} pods bound, then {self._error}")
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise BenchError(f"{len(self.times)} of {count} pods bound within {timeout_s:.0f} s")
                self._wake.wait(min(left_s, 1.0))
                alive()
            return self.times[count - 1]


@dataclass(slots=True)
class GangTimes:
    """When the members of one gang were first seen, and first seen with a node."""

    prefix: str
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)

    def see(self, line: bytes) -> None:
        """Take one event."""
        now = time.monotonic()
        event = orjson.loads(line)
        pod = event["object"]
        name = str(pod["metadata"].get("name", ""))
        if event["type"] == "BOOKMARK" or not name.startswith(self.prefix):
            return
        self.created.setdefault(name, now)
        if pod["spec"].get("nodeName"):
            self.bound.setdefault(name, now)
        if (pod.get("status") or {}).get("phase") == "Running":
            self.running.add(name)

    def latency_s(self) -> float:
        """From the last member that appeared to the last that was bound."""
        return max(self.bound.values()) - max(self.created.values())
