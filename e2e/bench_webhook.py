"""``python e2e/bench_webhook.py``: reviews per second over TLS on loopback, one JSON object as the last line.

The webhook is the real process on one core, with its caches filled from a stand-in for the API server that
serves the lists and answers SubjectAccessReviews (a cluster's own speed would be measured otherwise). The
load comes from another core over kept-alive connections, as the API server's own: half of the reviews are
pods as kubelets never see them (4 KiB, service account volumes and all), the rest Jobs and pods of Jobs.

    webhook_reviews_per_s   replies per second with all connections busy
    webhook_p99_ms          at 500 reviews/s, evenly spaced: time from the request to its reply

Both are medians of three rounds.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent))
from rigs.api_server import StandIn
from vc_egpu import __version__

Json = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[1]
QUEUES = 200
CONNECTIONS = 16
ROUNDS = 3
PACE_PER_S = 500.0
START_TIMEOUT_S = 60.0


def main() -> int:
    """Run the bench; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each of the six parts")
    parser.add_argument("--stand-in", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.stand_in:
        return _stand_in(flags.stand_in)
    result = asyncio.run(bench(flags.seconds))
    print(json.dumps(result))
    return 0


async def bench(seconds: float) -> Json:
    """Start everything, measure, and stop it."""
    with tempfile.TemporaryDirectory(prefix="bench-webhook-") as name:
        folder = Path(name)
        server_core, load_core = _cores()
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {server_core} or {server_core})
        api = subprocess.Popen(
            [sys.executable, __file__, "--stand-in", str(folder)], stdin=subprocess.PIPE, text=True
        )
        os.sched_setaffinity(0, {load_core})
        process = _start(folder, server_core)
        try:
            port = await _ready(process, folder)
            bodies = review_bodies()
            rounds = []
            for _ in range(ROUNDS):
                rate = await _throughput(port, bodies, seconds)
                rounds.append((rate, sorted(await _paced(port, bodies, PACE_PER_S, seconds))))
        finally:
            process.terminate()
            process.wait(timeout=20)
            api.communicate()
    return {
        "bench": "webhook",
        "webhook_reviews_per_s": round(statistics.median(rate for rate, _ in rounds), 1),
        "webhook_p50_ms": round(statistics.median(statistics.median(ms) for _, ms in rounds), 2),
        "webhook_p99_ms": round(statistics.median(_p99(ms) for _, ms in rounds), 2),
        "paced_reviews_per_s": PACE_PER_S,
        "rounds": [{"reviews_per_s": round(rate, 1), "p99_ms": round(_p99(ms), 2)} for rate, ms in rounds],
        "queues": QUEUES,
        "connections": CONNECTIONS,
        "cores": os.cpu_count(),
        "versions": {"vc_egpu": __version__, "python": platform.python_version()},
    }


def _p99(ordered_ms: list[float]) -> float:
    return ordered_ms[max(0, int(len(ordered_ms) * 0.99) - 1)]


def _cores() -> tuple[int, int]:
    """A core for the webhook, another for the load; the same one where there is no other."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1], allowed[0]


def _stand_in(folder: Path) -> int:
    """In a process of its own, so that it takes no time from the load: serve until stdin ends."""
    with StandIn(stand_in_objects()) as api:
        api.write_kubeconfig(folder)
        sys.stdin.read()
    return 0


def _start(folder: Path, core: int) -> subprocess.Popen[str]:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (folder / "kubeconfig").exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the stand-in for the API server did not start")
        time.sleep(0.05)
    command = [
        "taskset", "--cpu-list", str(core),
        sys.executable, "-m", "vc_egpu.webhook.main",
        "--kubeconfig", str(folder / "kubeconfig"),
        "--models", str(REPOSITORY / "manifests" / "base" / "config" / "models.yaml"),
        "--port", "0", "--metrics-port", "0", "--hosts", "127.0.0.1", "--drain-s", "0",
    ]  # fmt: skip
    log = (folder / "webhook.log").open("w")
    return subprocess.Popen(command, stderr=log, text=True)


async def _ready(process: subprocess.Popen[str], folder: Path) -> int:
    """The port, once the log says that reviews are answered."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        log = (folder / "webhook.log").read_text()
        if "webhook: ready" in log:
            return int(log.split("reviews on port ")[1].split(",")[0])
        await asyncio.sleep(0.05)
    raise RuntimeError(f"the webhook did not start:\n{(folder / 'webhook.log').read_text()[-3000:]}")


# --- load --------------------------------------------------------------------------------------------


async def _throughput(port: int, bodies: list[tuple[str, bytes]], seconds: float) -> float:
    """Replies per second with all connections busy; the first second is not counted."""
    counted, until, since = 0, time.perf_counter() + seconds + 1.0, time.perf_counter() + 1.0

    async def worker(send: Callable[[], Any]) -> None:
        nonlocal counted
        while time.perf_counter() < until:
            await send()
            if time.perf_counter() >= since:
                counted += 1

    async with _session() as session:
        send = _sender(session, port, bodies)
        await asyncio.gather(*(worker(send) for _ in range(CONNECTIONS)))
    return counted / seconds


async def _paced(port: int, bodies: list[tuple[str, bytes]], rate: float, seconds: float) -> list[float]:
    """Milliseconds of each review, sent evenly at ``rate`` whether or not earlier ones have come back."""
    latencies_ms: list[float] = []

    async def one(due: float) -> None:
        await send()
        latencies_ms.append((time.perf_counter() - due) * 1000)

    async with _session() as session:
        send = _sender(session, port, bodies)
        begin, tasks = time.perf_counter(), []
        for index in range(int(rate * seconds)):
            due = begin + index / rate
            if due > time.perf_counter():
                await asyncio.sleep(due - time.perf_counter())
            tasks.append(asyncio.create_task(one(max(due, time.perf_counter()))))
        await asyncio.gather(*tasks)
    return latencies_ms


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONNECTIONS, ssl=False))


def _sender(session: aiohttp.ClientSession, port: int, bodies: list[tuple[str, bytes]]) -> Callable[[], Any]:
    endless: Iterator[tuple[str, bytes]] = cycle(bodies)

    async def send() -> None:
        path, body = next(endless)
        async with session.post(f"https://127.0.0.1:{port}{path}?timeout=10s", data=body) as answer:
            reply = await answer.read()
        if answer.status != 200 or not orjson.loads(reply)["response"]["allowed"]:
            raise RuntimeError(f"{path} was not allowed: {answer.status} {reply[:500]!r}")

    return send


# --- what is reviewed --------------------------------------------------------------------------------


def stand_in_objects() -> dict[str, list[Json]]:
    """The lists that the webhook watches."""
    capability = {"volcano.sh/vgpu-h20": 64, "volcano.sh/vgpu-h20-memory": 6_000_000}
    queues = [
        {"metadata": {"name": f"team-{i}"}, "spec": {"weight": 1, "capability": capability}}
        for i in range(QUEUES)
    ]
    groups = [
        {
            "metadata": {
                "name": f"job-{i}-uid",
                "namespace": "team",
                "ownerReferences": [
                    {"kind": "Job", "name": f"job-{i}", "uid": f"uid-{i}", "controller": True}
                ],
            },
            "spec": {"queue": f"team-{i % QUEUES}", "minMember": 8},
        }
        for i in range(1000)
    ]
    classes = [
        {"metadata": {"name": f"egpu-{name}"}, "preemptionPolicy": "Never", "value": value}
        for name, value in (("high", 1000), ("standard", 0), ("low", -10))
    ]
    return {
        "queues": queues,
        "podgroups": groups,
        "jobs": [],
        "namespaces": [{"metadata": {"name": "team"}}],
        "priorityclasses": classes,
        "nodes": [],
    }


def review_bodies() -> list[tuple[str, bytes]]:
    """A mix as a busy cluster sends it."""
    bodies: list[tuple[str, bytes]] = []
    controller = "system:serviceaccount:volcano-system:volcano-controllers"
    for i in range(1000):
        owner = {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
            "name": f"job-{i}", "uid": f"uid-{i}", "controller": True,
        }  # fmt: skip
        grouped = _pod(i, {"scheduling.k8s.io/group-name": f"job-{i}-uid"}, [owner])
        bare = _pod(i, {"scheduling.volcano.sh/queue-name": f"team-{i % QUEUES}"}, [])
        bodies.append(("/mutate/pods", _review(grouped, controller, "pods")))
        bodies.append(("/mutate/pods", _review(bare, f"user-{i % QUEUES}", "pods")))
        if i % 8 == 0:
            bodies.append(("/mutate/jobs", _review(_job(i), f"user-{i % QUEUES}", "jobs")))
    return bodies


def _review(obj: Json, user: str, resource: str) -> bytes:
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": obj["kind"]},
        "resource": {"group": "", "version": "v1", "resource": resource},
        "operation": "CREATE",
        "namespace": "team",
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": None,
        "dryRun": False,
    }
    return orjson.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def _containers() -> list[Json]:
    limits = {"volcano.sh/vgpu-h20": "1", "volcano.sh/vgpu-memory": "4k", "volcano.sh/vgpu-cores": "30"}
    return [
        {
            "name": "main",
            "image": "registry.example/train:1",
            "command": ["python", "-m", "train", "--epochs", "10"],
            "env": [{"name": f"VARIABLE_{k}", "value": "x" * 40} for k in range(20)],
            "resources": {"limits": {**limits, "cpu": "4", "memory": "16Gi"}, "requests": {**limits}},
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        }
    ]


def _pod(index: int, annotations: Json, owners: list[Json]) -> Json:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"pod-{index}",
            "namespace": "team",
            "annotations": annotations,
            "labels": {"app": "train", "volcano.sh/job-name": f"job-{index}"},
            "ownerReferences": owners,
            "managedFields": [
                {"manager": "vc-controller-manager", "fieldsV1": {"f:spec": {"f:x" * 300: {}}}}
            ],
        },
        "spec": {
            "containers": _containers(),
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"key": f"k{k}", "operator": "Exists", "effect": "NoExecute"} for k in range(4)],
            "volumes": [
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
            ],
        },
    }


def _job(index: int) -> Json:
    template = {"spec": {"containers": _containers()}}
    tasks = [{"name": "worker", "replicas": 8, "template": template}]
    return {
        "kind": "Job",
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "metadata": {"name": f"job-{index}", "namespace": "team"},
        "spec": {"queue": f"team-{index % QUEUES}", "minAvailable": 8, "tasks": tasks},
    }


if __name__ == "__main__":
    sys.exit(main())
