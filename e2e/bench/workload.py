"""The load of the admission benchmark: Jobs of eight one-slice pods, and the watch that times them."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import VOLCANO_JOBS, Resource
from vc_egpu.kube.wire.errors import NotFound, Temporary

from bench.watching import BenchError, GangTimes, PodWatch

Json = dict[str, Any]
NAMESPACE: Final = "bench"
GANG: Final = 8
MEMORY_MIB: Final = 24000
"""Of each slice; four fit on a card."""
CORES_PERCENT: Final = 25
SUBMITTERS: Final = 8
"""Jobs are created by so many threads."""


def job(name: str, limits: Mapping[str, str], queue: str) -> Json:
    """One Job of one gang, in every field that a webhook would fill in."""
    container = {
        "name": "main",
        "image": "bench.local/none:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": dict(limits)},
    }
    template: Json = {
        "spec": {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "schedulerName": "volcano",
            "queue": queue,
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


def idle_latencies(
    api: ApiConnection,
    watch: PodWatch,
    make: Callable[[int], Json],
    gangs: int,
    pause_s: float,
) -> list[float]:
    """Gangs one after the other on an idle cluster: seconds from the last pod seen to the last bind seen.

    Both are taken at one watch. The next gang starts ``pause_s`` after the last one runs.
    """
    latencies: list[float] = []
    lines = watch.lines()
    for index in range(gangs):
        document = make(index)
        times = GangTimes(document["metadata"]["name"] + "-")
        api.create(VOLCANO_JOBS, document)
        for line in lines:
            times.see(line)
            if len(times.running) == GANG:
                break
        latencies.append(times.latency_s())
        # Writes that follow the binding (phases, counts) are not part of the next gang's figure.
        threading.Event().wait(pause_s)
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
