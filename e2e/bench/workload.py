"""The load of the admission benchmark: Jobs of eight one-slice pods, and the watch that times them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.errors import Gone, NotFound, Temporary
from vc_egpu.kube.resources import PODS, VOLCANO_JOBS, Resource
from vc_egpu.kube.transport import Query

Json = dict[str, Any]
NAMESPACE: Final = "bench"
GANG: Final = 8
MEMORY_MIB: Final = 24000
"""Of each slice; four fit on a card."""
CORES_PERCENT: Final = 25
SUBMITTERS: Final = 8
"""Jobs are created by so many threads."""
_IDLE_S: Final = 300.0


class BenchError(RuntimeError):
    """The load did not run as it should; a figure would mean nothing."""


def job(name: str, limits: Mapping[str, str], scheduler: str | None, annotations: Mapping[str, str]) -> Json:
    """One Job of one gang; ``scheduler`` is the pods' scheduler where it is not the Job's."""
    container = {
        "name": "main",
        "image": "bench.local/none:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": dict(limits)},
    }
    template: Json = {
        "metadata": {"annotations": dict(annotations)},
        "spec": {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False},
    }
    if scheduler is not None:
        template["spec"]["schedulerName"] = scheduler
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": GANG,
            "maxRetry": 3,
            "tasks": [
                {
                    "name": "w",
                    "replicas": GANG,
                    "minAvailable": GANG,
                    "maxRetry": 3,
                    "template": template,
                }
            ],
        },
    }


def submit(api: ApiConnection, jobs: Sequence[Json]) -> None:
    """Create all Jobs."""
    with ThreadPoolExecutor(SUBMITTERS) as pool:
        for _ in pool.map(lambda one: api.create(VOLCANO_JOBS, one), jobs):
            pass


@dataclass(slots=True)
class BindWatch:
    """Counts pods as they get a node, at one watch; times are of this process's monotonic clock."""

    api: ApiConnection
    times: list[float] = field(default_factory=list)
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _stream: Any = None
    _thread: threading.Thread | None = None
    _error: Exception | None = None

    def __enter__(self) -> "BindWatch":
        selector = "spec.nodeName!="
        listed = self.api.list(PODS, NAMESPACE, field_selector=selector)
        query: Query = {
            "watch": True,
            "resourceVersion": listed.resource_version,
            "fieldSelector": selector,
        }
        self._stream = self.api.stream(PODS.path(NAMESPACE), query, idle_timeout_s=_IDLE_S)
        self._thread = threading.Thread(target=self._read, name="bind-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
        if self._thread is not None:
            self._thread.join(10)

    def _read(self) -> None:
        try:
            for line in self._stream.lines():
                # A pod begins to match when it gets a node; the rest of the line is not looked at, since
                # this process shares the cores with what it measures.
                if line.startswith(b'{"type":"ADDED"'):
                    now = time.monotonic()
                    with self._wake:
                        self.times.append(now)
                        self._wake.notify_all()
        except (Gone, Temporary) as error:
            with self._wake:
                self._error = error
                self._wake.notify_all()

    def wait_for(self, count: int, timeout_s: float, alive: Callable[[], None]) -> float:
        """Wait until ``count`` pods are bound; the time of the last. Raises :class:`BenchError`."""
        deadline = time.monotonic() + timeout_s
        with self._wake:
            while len(self.times) < count:
                if self._error is not None:
                    raise BenchError(f"the watch broke: {self._error}")
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise BenchError(f"{len(self.times)} of {count} pods bound within {timeout_s:.0f} s")
                self._wake.wait(min(left_s, 1.0))
                alive()
            return self.times[count - 1]


@dataclass(slots=True)
class _Gang:
    created: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)


def idle_latencies(
    api: ApiConnection,
    make: Callable[[int], Json],
    gangs: int,
    alive: Callable[[], None],
    pause_s: float,
) -> list[float]:
    """Gangs one after the other on an idle cluster: seconds from the last pod seen to the last bind seen.

    Both are taken at one watch. The next gang starts ``pause_s`` after the last one runs.
    """
    listed = api.list(PODS, NAMESPACE)
    query: Query = {"watch": True, "resourceVersion": listed.resource_version}
    stream = api.stream(PODS.path(NAMESPACE), query, idle_timeout_s=60)
    latencies: list[float] = []
    try:
        lines = stream.lines()
        for index in range(gangs):
            document = make(index)
            prefix = document["metadata"]["name"] + "-"
            gang, running = _Gang(), set[str]()
            api.create(VOLCANO_JOBS, document)
            for line in lines:
                now = time.monotonic()
                alive()
                event = orjson.loads(line)
                name = event["object"]["metadata"]["name"]
                if not name.startswith(prefix):
                    continue
                gang.created.setdefault(name, now)
                if event["object"]["spec"].get("nodeName"):
                    gang.bound.setdefault(name, now)
                if (event["object"].get("status") or {}).get("phase") == "Running":
                    running.add(name)
                if len(running) == GANG:
                    break
            if len(gang.bound) != GANG:
                raise BenchError(f"gang {index}: {len(gang.bound)} of {GANG} bound when the watch ended")
            latencies.append(max(gang.bound.values()) - max(gang.created.values()))
            # Writes that follow the binding (phases, counts) are not part of the next gang's figure.
            threading.Event().wait(pause_s)
    finally:
        stream.close()
    return latencies


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of all lie (nearest rank)."""
    if not values:
        raise BenchError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def wait_listed(
    what: str,
    api: ApiConnection,
    resource: Resource,
    check: Callable[[list[Json]], bool],
    *,
    namespace: str | None,
    timeout_s: float,
) -> None:
    """Look at a list now and then until ``check`` holds (used only outside of what is timed)."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if check(api.list(resource, namespace).items):
                return
        except (NotFound, Temporary):
            pass
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {timeout_s:.0f} s")
        threading.Event().wait(0.2)
