"""The command ``make bench-admission``: sides in turn, each round on a cluster of its own, medians of all."""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster import toolchain
from localcluster.cluster import LocalCluster
from localcluster.controlplane import GOGC_PERCENT
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, VOLCANO_JOBS
from volcano.processes import JOB_WORKERS, QPS, NoVolcanoError, Volcano

from bench.our_side import OurSetup
from bench.sides import RATE, Running, Side
from bench.volcano_side import volcano_side
from bench.watching import BindWatch, PodWatch
from bench.workload import (
    GANG,
    NAMESPACE,
    idle_latencies,
    quantile,
    submit,
    wait_listed,
)

VOLCANO = "volcano"
OURS = "ours"
"""We bind the pods ourselves."""
BY_SCHEDULER = "ours-by-scheduler"
"""Gate and pin, and the kube-scheduler binds."""
BESIDE = "ours-vc-scheduler"
COUNTED = "ours-vc-scheduler-counts"
"""The kube-scheduler binds; vc-scheduler runs beside it and counts. Only when asked for."""
_BIND_TIMEOUT_S = 900.0
_IDLE_PAUSE_S = 0.5
WEBHOOK_BENCH = Path(__file__).resolve().parents[1] / "bench_webhook.py"


@dataclass(slots=True)
class Result:
    """What one side showed over all rounds."""

    pods_per_s: list[float] = field(default_factory=list)
    controller_cpu_s: list[float] = field(default_factory=list)
    idle_s: list[float] = field(default_factory=list)


def say(text: str) -> None:
    """One line for people."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark; exit status 0 when every side ran to its end."""
    options = _options(argv)
    # The cluster has to come down when somebody ends us, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    volcano = _volcano()
    sides = _sides(options, volcano)
    pods = options.jobs * GANG
    say(
        f"{options.jobs} Jobs of {GANG} one-slice pods ({pods}) on {options.nodes} nodes, median of "
        f"{options.rounds}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    say(
        f"client rates: Volcano's programs {QPS}/{QPS} with {JOB_WORKERS} Job workers, kube-scheduler "
        f"{RATE.qps}/{RATE.burst}, ours unlimited; API fairness off, "
        f"GOGC of API server and etcd {GOGC_PERCENT}, for all"
    )
    results = {side.name: Result() for side in sides}
    for number in range(options.rounds):
        for side in sides:
            _round(side, options, number, results[side.name])
    for name, result in results.items():
        say(f"{name}: {_median(result.pods_per_s)} pods/s of {[round(v, 1) for v in result.pods_per_s]}")
    webhook = _webhook_bench() if options.webhook else {}
    print(json.dumps(_report(options, results, volcano, webhook)))
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=625, help="Jobs of 8 pods")
    parser.add_argument("--nodes", type=int, default=1000, help="simulated nodes of 8 cards")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each side")
    parser.add_argument("--idle-gangs", type=int, default=100, help="gangs of the idle-cluster run; 0: none")
    parser.add_argument(
        "--sides",
        default="",
        help=f"comma list of {VOLCANO}, {OURS}, {BY_SCHEDULER}, {BESIDE}, {COUNTED} "
        "(default: the first three that can run)",
    )
    parser.add_argument(
        "--webhook", action=argparse.BooleanOptionalAction, default=True, help="measure the webhook as well"
    )
    options = parser.parse_args(argv)
    for name in ("jobs", "nodes", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: must be at least 1")
    return options


def _volcano() -> Volcano | None:
    try:
        return Volcano.from_environment()
    except NoVolcanoError as error:
        say(f"no Volcano here ({error}): its figures are null, and our own Job controller makes the pods")
        return None


def _sides(options: argparse.Namespace, volcano: Volcano | None) -> list[Side]:
    sides: list[Side] = []
    if volcano is not None:
        sides.append(volcano_side(volcano))
    sides.append(OurSetup(OURS, "default-scheduler", volcano, vc_scheduler=False, binder="direct").side())
    sides.append(OurSetup(BY_SCHEDULER, "default-scheduler", volcano, vc_scheduler=False).side())
    if volcano is not None:
        sides.append(OurSetup(BESIDE, "volcano", volcano, vc_scheduler=True).side())
        sides.append(OurSetup(COUNTED, "default-scheduler", volcano, vc_scheduler=True).side())
    wanted = [name for name in options.sides.split(",") if name]
    unknown = set(wanted) - {side.name for side in sides}
    if unknown:
        raise SystemExit(f"--sides {','.join(sorted(unknown))}: there are {[side.name for side in sides]}")
    return [side for side in sides if side.name in (wanted or {VOLCANO, OURS, BY_SCHEDULER})]


def _round(side: Side, options: argparse.Namespace, number: int, result: Result) -> None:
    label = f"{side.name}, round {number + 1}"
    with LocalCluster.up(side.spec("bench")) as cluster:
        cluster.add_kwok_nodes(options.nodes, side.node)
        api = ApiConnection.connect(cluster.kubeconfig, pool_size=16, user_agent="bench")
        try:
            _namespace(api)
            running = side.start(cluster, api)
            _burst(running, options, label, result)
            if side.name == "ours" and number == 0 and options.idle_gangs:
                _idle(running, options, label, result)
        finally:
            api.close()


def _burst(running: Running, options: argparse.Namespace, label: str, result: Result) -> None:
    api, pods = running.api, options.jobs * GANG
    # A cluster of a minute's age closes watches at every burst: its buffers grow with what they have seen.
    warm = max(1, options.jobs // 10)
    with BindWatch(running.cluster.kubeconfig, NAMESPACE) as watch:
        submit(api, [running.make_job(f"warm{index}") for index in range(warm)])
        watch.wait_for(warm * GANG, _BIND_TIMEOUT_S, running.check_alive)
    wait_listed(
        "the first Jobs run",
        api,
        VOLCANO_JOBS,
        lambda jobs: all((job.get("status") or {}).get("running") == GANG for job in jobs),
        namespace=NAMESPACE,
        timeout_s=120,
    )
    jobs = [running.make_job(f"j{index}") for index in range(options.jobs)]
    before, began_load = running.cpu(), os.getloadavg()[0]
    with BindWatch(running.cluster.kubeconfig, NAMESPACE) as watch:
        began = time.monotonic()
        submit(api, jobs)
        submitted = time.monotonic()
        done = watch.wait_for(pods, _BIND_TIMEOUT_S, running.check_alive)
        first = watch.times[0]
    used = {name: value - before.get(name, 0.0) for name, value in running.cpu().items()}
    rate = pods / (done - began)
    result.pods_per_s.append(rate)
    if running.controller:
        result.controller_cpu_s.append(used[running.controller])
    say(
        f"{label}: {rate:.1f} pods/s ({done - began:.1f} s; submitted in {submitted - began:.1f} s, first "
        f"bind after {first - began:.1f} s; load before {began_load:.1f})"
    )
    say("    CPU s: " + ", ".join(f"{name} {value:.1f}" for name, value in sorted(used.items())))
    running.verify(api.list(PODS, NAMESPACE).items)


def _idle(running: Running, options: argparse.Namespace, label: str, result: Result) -> None:
    watch = PodWatch(running.cluster.kubeconfig, NAMESPACE)
    try:
        result.idle_s = idle_latencies(
            running.api,
            watch,
            lambda index: running.make_job(f"idle{index}"),
            options.idle_gangs,
            _IDLE_PAUSE_S,
        )
    finally:
        watch.close()
    say(
        f"{label}: idle, {options.idle_gangs} gangs one after the other: last bind p50 "
        f"{quantile(result.idle_s, 0.5) * 1000:.0f} ms, p99 {quantile(result.idle_s, 0.99) * 1000:.0f} ms"
    )


def _webhook_bench() -> dict[str, Any]:
    """What the webhook does by itself, on one core: the benchmark of its own."""
    say("the webhook by itself (e2e/bench_webhook.py)")
    done = subprocess.run(
        [sys.executable, str(WEBHOOK_BENCH)], stdout=subprocess.PIPE, text=True, timeout=300, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _namespace(api: ApiConnection) -> None:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    api.create(NAMESPACES, document)
    wait_listed("service account", api, SERVICE_ACCOUNTS, bool, namespace=NAMESPACE, timeout_s=60)


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 1) if values else None


def _report(
    options: argparse.Namespace,
    results: dict[str, Result],
    volcano: Volcano | None,
    webhook: dict[str, Any],
) -> dict[str, Any]:
    ours, beside = results.get(OURS, Result()), results.get(BESIDE, Result())
    idle = [round(quantile(ours.idle_s, share) * 1000, 1) if ours.idle_s else None for share in (0.5, 0.99)]
    versions = {up.name: up.version() for up in toolchain.made_of() if up.name in {"etcd", "kwok"}}
    versions["kubernetes"] = toolchain.kubernetes().version()
    versions["python"] = platform.python_version()
    if volcano is not None:
        versions["volcano"] = volcano.version()
    return {
        "pods_per_s": _median(ours.pods_per_s),
        "pods_per_s_by_scheduler": _median(results.get(BY_SCHEDULER, Result()).pods_per_s),
        "pods_per_s_vc_scheduler": _median(beside.pods_per_s),
        "volcano_pods_per_s": _median(results.get(VOLCANO, Result()).pods_per_s),
        "last_bind_p50_ms": idle[0],
        "last_bind_p99_ms": idle[1],
        "webhook_reviews_per_s": webhook.get("webhook_reviews_per_s"),
        "webhook_p99_ms": webhook.get("webhook_p99_ms"),
        "controller_cpu_s": _median(ours.controller_cpu_s),
        "nodes": options.nodes,
        "pods": options.jobs * GANG,
        "cores": os.cpu_count(),
        "versions": versions,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
