"""PreStartContainer in the agent (call in to reply) with 16 pods of two containers started at once, and the
agent's footprint with 8 cards and 64 containers. Prints one JSON object as its last line.

Run on a machine that does nothing else: ``make bench-agent``.
"""

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from rigs.agent_on_node import AgentOnNode
from rigs.planned_pods import NAMESPACE, Planner, random_round
from stack.hostprocess import cpu_seconds
from stack.kit import Kit
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import PODS

PODS_AT_ONCE = 16
CONTAINERS = 2
CARDS = 8


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--idle-s", type=float, default=60.0)
    arguments = parser.parse_args()
    spec = ClusterSpec(name="bench-agent", real_nodes=1, services=False, dns=False)
    with LocalCluster.up(spec, _say) as cluster:
        agent = AgentOnNode.with_h20(cluster, cluster.nodes[0], CARDS)
        agent.start()
        agent.wait_ready()
        result = measure(cluster, agent, arguments.rounds, arguments.idle_s)
    print(json.dumps(result))
    return 0


def measure(cluster: LocalCluster, agent: AgentOnNode, rounds: int, idle_s: float) -> dict[str, object]:
    """The figures, times of PreStartContainer over all rounds."""
    api = ApiConnection.connect(cluster.kubeconfig)
    kit, planner = Kit(api, cluster.kubectl), Planner(api, agent.node.name)
    uuids = [card.uuid for card in agent.fake.cards]
    _await_slots(cluster, agent)
    for number in range(rounds):
        batch = random_round(random.Random(number), uuids, pods=PODS_AT_ONCE, containers=CONTAINERS)
        planner.start(batch)
        _await_running(kit, PODS_AT_ONCE)
        _say(f"round {number + 1} of {rounds}: {PODS_AT_ONCE} pods run")
        planner.delete(batch)
        kit.until("pods gone", PODS, lambda pods: not pods or None, namespace=NAMESPACE)
    times_ms = prestart_times_ms(agent.process.log_file)
    many = random_round(random.Random(99), uuids, pods=32, containers=CONTAINERS, prefix="idle")
    planner.start(many)
    _await_running(kit, len(many))
    time.sleep(15)  # the cluster settles: nothing in particular to wait for
    pid = agent.process.pid
    assert pid is not None
    _say(f"idle for {idle_s:.0f} s with {CARDS} cards and {2 * len(many)} containers")
    before_s, began_s = cpu_seconds(pid), time.monotonic()
    time.sleep(idle_s)
    cpu_percent = 100 * (cpu_seconds(pid) - before_s) / (time.monotonic() - began_s)
    rss_mib = _rss_mib(pid)
    return {
        "prestart_p50_ms": _percentile(times_ms, 50),
        "prestart_p99_ms": _percentile(times_ms, 99),
        "prestart_max_ms": round(times_ms[-1], 2),
        "prestarts": len(times_ms),
        "rss_mib": round(rss_mib, 1),
        "cpu_percent": round(cpu_percent, 2),
        "cores": os.cpu_count(),
        "cards": CARDS,
        "containers": 2 * len(many),
        "pods_at_once": PODS_AT_ONCE,
    }


def prestart_times_ms(log: Path) -> list[float]:
    """The agent's own times, one for each container let in, sorted."""
    lines = log.read_text().splitlines()
    starts = [line for line in lines if " starts on " in line and line.endswith(" ms)")]
    return sorted(float(line.rsplit("(", 1)[1].removesuffix(" ms)")) for line in starts)


def _percentile(values: list[float], percent: float) -> float:
    """The smallest value that ``percent`` of all do not exceed."""
    rank = max(0, -(-len(values) * percent // 100) - 1)
    return round(values[int(rank)], 2)


def _await_slots(cluster: LocalCluster, agent: AgentOnNode) -> None:
    def offered() -> bool:
        node = json.loads(cluster.kubectl("get", "node", agent.node.name, "-o", "json").stdout)
        return int(node["status"]["allocatable"].get("volcano.sh/vgpu-h20", 0)) == CARDS * 100

    wait_until("slots offered", offered, 60)


def _await_running(kit: Kit, count: int) -> None:
    def check(pods: dict[str, dict[str, object]]) -> bool | None:
        up = [pod for pod in pods.values() if (pod.get("status") or {}).get("phase") == "Running"]  # type: ignore[attr-defined]
        return len(up) == count or None

    kit.until(f"{count} pods running", PODS, check, namespace=NAMESPACE, timeout_s=120)


def _rss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
