"""``python e2e/bench_needs.py``: what distinct texts of needs cost a decision. Prints one JSON object.

Gangs wait that are all unlike. Each has needs of its own text, and one node after the other changes. The
same is measured without needs, and the difference is what the needs cost. Times are of the CPU.

- ``plain_ms``, ``needs_ms``: a node changes → what is decided about all that wait, without and with needs
- ``more_ms``: the median of the differences, each between two neighbouring rounds
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.decide import decide
from vc_egpu.core.environments.needs import NO_NEEDS, Needs
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Resources,
    ShareClass,
)
from vc_egpu.core.model.policy import Policy
from vc_egpu.volcano.needs.text import read

CARDS = 8
MEMORY_MIB = 98304
GIB = 1 << 30
DRIVERS = (("535.104.05", "12.2"), ("550.54.14", "12.4"), ("570.26", "12.8"), ("580.65.06", "13.0"))


def node(number: int, turn: int = 0) -> Node:
    """A node with eight cards and one of four drivers."""
    name = NodeName(f"node-{number:05d}")
    driver, cuda = DRIVERS[number % len(DRIVERS)]
    return Node(
        name,
        Resources(128_000, 1024 * GIB, 0, 250),
        labels={"kubernetes.io/hostname": name, "turn": str(turn)},
        cards=tuple(Card(CardId(f"{name}-{i}"), i, "h20", MEMORY_MIB) for i in range(CARDS)),
        environment=(("capability", ("9.0",)), ("cuda", (cuda,)), ("driver", (driver,))),
    )


def world(nodes: int, texts: int, *, with_needs: bool) -> ClusterState:
    """Nodes, and as many gangs of one pod as there are texts. Each asks for more cpu than a node has."""
    state = ClusterState({"h20": MEMORY_MIB})
    state.put_queue(Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": 10**9}))
    for number in range(nodes):
        state.put_node(node(number))
    for number in range(texts):
        text = f"cuda>=12.{number % 3},driver>=535.{number % 100}.{number}"
        needs = Needs(text, (read(text),)) if with_needs else NO_NEEDS
        asks = (CardAsk("main", "h20", 1, 40_000 + number, 10),)
        shape = PodShape(asks=asks, requests=Resources(200_000, 4 * GIB), needs=needs)
        key = f"wait/{number}"
        state.put_gang(Gang(key, key, QueueName("all"), ShareClass.UNSET, 0, 1, float(number)))
        uid = PodUid(f"{key}-0")
        state.put_pod(Pod(uid, "ask", uid, shape, PodPhase.GATED, None, key, "w", 0, created=float(number)))
    return state


def decided_ms(state: ClusterState, turn: int, nodes: int) -> float:
    """A node changes; what is decided takes so long."""
    found = node(turn % nodes, turn)
    started = time.process_time()
    state.put_node(found)
    plan = decide(state.snapshot(turn), Policy(preemption=False), 1e6 + turn)
    took = time.process_time() - started
    assert not plan.admissions
    return took * 1000


def main() -> int:
    """Measure; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=40)
    flags = parser.parse_args()
    plain = world(flags.nodes, flags.texts, with_needs=False)
    needs = world(flags.nodes, flags.texts, with_needs=True)
    for state in (plain, needs):
        decided_ms(state, 0, flags.nodes)
    pairs = [
        (decided_ms(plain, turn, flags.nodes), decided_ms(needs, turn, flags.nodes))
        for turn in range(1, flags.rounds + 1)
    ]
    print(
        json.dumps(
            {
                "bench": "needs",
                "nodes": flags.nodes,
                "texts": flags.texts,
                "plain_ms": round(statistics.median(one for one, _ in pairs), 2),
                "needs_ms": round(statistics.median(two for _, two in pairs), 2),
                "more_ms": round(statistics.median(two - one for one, two in pairs), 2),
                "cores": os.cpu_count(),
                "python": platform.python_version(),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
