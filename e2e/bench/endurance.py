"""The command ``make bench-endurance``: hours of load on a full cluster, and what becomes of the leader."""

import argparse
import json
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from localcluster.cluster import LocalCluster
from stack.hostprocess import cpu_seconds, rss_mib
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import KubeError, NotFound

from bench.our_side import CONTROLLER, OurSetup
from bench.sides import Running
from bench.watching import BenchError, BindWatch, GangTimes, PodWatch
from bench.workload import GANG, NAMESPACE, quantile, submit, wait_listed

_LEASE_S = 600
"""kwok renews the lease of each node in a quarter of it. With the usual 40 s it would do little else."""
_FILL_TIMEOUT_S = 3600.0
_SETTLE_S = 120.0


@dataclass(slots=True)
class Minute:
    """What one minute of load showed."""

    latencies_s: list[float]
    leader_rss_mib: float
    leader_cpu_s: float
    api_server_rss_mib: float
    waiting: int
    """Gangs that were made and do not run yet."""


@dataclass(slots=True)
class Gangs:
    """The gangs under way, fed by a watch: from the last pod that was made to the last one bound."""

    under_way: dict[str, GangTimes] = field(default_factory=dict)
    done_s: list[float] = field(default_factory=list)
    error: Exception | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, name: str) -> None:
        """A Job of this name is about to be made."""
        with self.lock:
            self.under_way[name] = GangTimes(name + "-")

    def read(self, watch: PodWatch) -> None:
        """Take all events until the watch is closed."""
        try:
            for line in watch.lines():
                with self.lock:
                    self._see(line)
        except (BenchError, KubeError) as error:
            self.error = error

    def _see(self, line: bytes) -> None:
        for name, times in list(self.under_way.items()):
            if f'"{name}-'.encode() not in line:
                continue
            times.see(line)
            if len(times.bound) == GANG:
                self.done_s.append(times.latency_s())
                del self.under_way[name]

    def taken(self) -> tuple[list[float], int]:
        """The latencies since the last call, and how many gangs are under way."""
        with self.lock:
            found, self.done_s = self.done_s, []
            return found, len(self.under_way)


def say(text: str) -> None:
    """One line for people."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def main(argv: Sequence[str]) -> int:
    """Run it; exit status 0 when all gangs ran and no invariant was broken."""
    options = _options(argv)
    side = OurSetup("ours", "default-scheduler", None, vc_scheduler=False, binder="direct").side()
    spec = replace(
        side.spec("endurance"),
        node_monitor_grace_s=_LEASE_S,
        extra_args={"kwok": (f"--node-lease-duration-seconds={_LEASE_S}",)},
    )
    began = time.monotonic()
    with LocalCluster.up(spec) as cluster:
        cluster.add_kwok_nodes(options.nodes, side.node)
        say(f"{options.nodes} nodes after {time.monotonic() - began:.0f} s")
        api = ApiConnection.connect(cluster.kubeconfig, pool_size=16, user_agent="bench")
        try:
            api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            wait_listed("service account", api, SERVICE_ACCOUNTS, bool, namespace=NAMESPACE, timeout_s=60)
            running = side.start(cluster, api)
            names = _fill(running, options.pods // GANG)
            minutes = _load(running, names, options)
            say("the load has ended: all invariants are checked")
            running.verify([pod for pod in api.list(PODS, NAMESPACE).items if pod["spec"].get("nodeName")])
        finally:
            api.close()
    print(json.dumps(_report(options, minutes)))
    return 0


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-endurance", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000, help="simulated nodes of 8 cards")
    parser.add_argument("--pods", type=int, default=20_000, help="pods that run at any time, in gangs of 8")
    parser.add_argument("--minutes", type=int, default=120, help="how long gangs come and go")
    parser.add_argument("--gangs-per-minute", type=int, default=60, help="gangs that come; as many end")
    options = parser.parse_args(argv)
    for name in ("nodes", "minutes", "gangs_per_minute"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(options, name)}: must be at least 1")
    if options.pods < GANG:
        parser.error(f"--pods {options.pods}: at least one gang of {GANG}")
    return options


def _fill(running: Running, gangs: int) -> deque[str]:
    """Jobs until the cluster is as full as it shall be; their names, the oldest first."""
    began = time.monotonic()
    names = [f"fill{number}" for number in range(gangs)]
    with BindWatch(running.cluster.kubeconfig, NAMESPACE) as watch:
        submit(running.api, [running.make_job(name) for name in names])
        done = watch.wait_for(gangs * GANG, _FILL_TIMEOUT_S, running.check_alive)
    say(f"{gangs * GANG} pods bound in {done - began:.0f} s: {gangs * GANG / (done - began):.1f} pods/s")
    return deque(names)


@contextmanager
def _watched(running: Running) -> Iterator[Gangs]:
    gangs = Gangs()
    watch = PodWatch(running.cluster.kubeconfig, NAMESPACE)
    thread = threading.Thread(target=gangs.read, args=(watch,), name="gangs", daemon=True)
    thread.start()
    try:
        yield gangs
    finally:
        watch.close()
        thread.join(10)


def _load(running: Running, names: deque[str], options: argparse.Namespace) -> list[Minute]:
    """Gangs come and go evenly; one row a minute."""
    leader = _pid_of(running)
    minutes: list[Minute] = []
    pause_s, made, cpu_s = 60.0 / options.gangs_per_minute, 0, cpu_seconds(leader)
    with _watched(running) as gangs:
        began = time.monotonic()
        for number in range(options.minutes):
            while time.monotonic() < began + 60 * (number + 1):
                name = f"load{made}"
                gangs.begin(name)
                running.api.create(VOLCANO_JOBS, running.make_job(name))
                names.append(name)
                _end(running.api, names.popleft())
                made += 1
                running.check_alive()
                if gangs.error is not None:
                    raise BenchError(f"the watch ended: {gangs.error}")
                threading.Event().wait(max(0.0, began + made * pause_s - time.monotonic()))
            minute = _minute(running, gangs, leader, cpu_s)
            cpu_s += minute.leader_cpu_s
            minutes.append(minute)
            say(f"minute {number + 1}: {_told(minute)}")
        _settle(gangs)
    return minutes


def _end(api: ApiConnection, name: str) -> None:
    try:
        api.delete(VOLCANO_JOBS, name, NAMESPACE)
    except NotFound:
        say(f"Job {name} was gone already")


def _settle(gangs: Gangs) -> None:
    """Wait for those that are under way; raises :class:`BenchError` where some do not come to run."""
    deadline = time.monotonic() + _SETTLE_S
    while gangs.under_way:
        if time.monotonic() > deadline:
            raise BenchError(f"{len(gangs.under_way)} gangs wait after {_SETTLE_S:.0f} s without load")
        threading.Event().wait(0.5)


def _pid_of(running: Running) -> int:
    (leader,) = (process for process in running.processes if process.name == CONTROLLER)
    if leader.pid is None:
        raise BenchError(f"{CONTROLLER} does not run")
    return leader.pid


def _minute(running: Running, gangs: Gangs, leader: int, cpu_before_s: float) -> Minute:
    latencies_s, waiting = gangs.taken()
    server = running.cluster.component("kube-apiserver").pid
    return Minute(
        latencies_s,
        rss_mib(leader),
        cpu_seconds(leader) - cpu_before_s,
        rss_mib(server) if server is not None else 0.0,
        waiting,
    )


def _told(minute: Minute) -> str:
    some = minute.latencies_s
    shown = (
        f"last bind p50 {quantile(some, 0.5) * 1000:.0f} ms, p99 {quantile(some, 0.99) * 1000:.0f} ms"
        if some
        else "no gang came to run"
    )
    return (
        f"{len(some)} gangs, {shown}; {minute.waiting} wait; leader {minute.leader_rss_mib:.0f} MiB, "
        f"{minute.leader_cpu_s:.1f} s of CPU; API server {minute.api_server_rss_mib:.0f} MiB; "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _report(options: argparse.Namespace, minutes: Sequence[Minute]) -> dict[str, object]:
    """First and last tenth side by side: both are equal where nothing grows."""
    tenth = max(1, len(minutes) // 10)
    parts = {"first": minutes[:tenth], "last": minutes[-tenth:]}
    report: dict[str, object] = {
        "nodes": options.nodes,
        "pods": options.pods,
        "minutes": len(minutes),
        "gangs": sum(len(minute.latencies_s) for minute in minutes),
        "cores": os.cpu_count(),
        "leader_rss_most_mib": round(max(minute.leader_rss_mib for minute in minutes)),
    }
    for name, part in parts.items():
        latencies = [one for minute in part for one in minute.latencies_s]
        report[f"last_bind_p50_{name}_ms"] = round(quantile(latencies, 0.5) * 1000)
        report[f"last_bind_p99_{name}_ms"] = round(quantile(latencies, 0.99) * 1000)
        report[f"leader_rss_{name}_mib"] = round(sum(m.leader_rss_mib for m in part) / len(part))
        report[f"leader_cpu_{name}_percent"] = round(sum(m.leader_cpu_s for m in part) / len(part) / 0.6, 1)
    return report


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
