"""How long a decision takes on a big cluster, without any cluster: prints one JSON object as its last line.

    python e2e/bench_decide.py [--nodes 5000] [--cards 8] [--waiting 10000] [--rounds 300]
                               [--unlike 100] [--events 40] [--queues 100] [--binpack fullest]
                               [--cut 0.33] [--needs 1000] [--measured]

The cluster is filled to half of its cards' memory. Measured are: one decision for one gang of 8 whose
placing changes the mirror each time (``decide_*``), an event with many gangs waiting (``backlog_*``), a
count of everything from the values (``rebuild_s``), and the memory of the process. ``backlog_first_ms`` is
the first look at gangs that have just come.

``--cut``: that part of the nodes has cards that are cut into slices of fixed size. Every third gang of
``decide_*`` asks for slices then.

``unlike_*`` is the time from an event to the end of its decision with some of the waiting gangs replaced.
Each of these has eight members that are all different. Two kinds fit nowhere, any five members would do, and
their queue may use eight cards.

``shares_*`` is the same cluster with its gangs in 100 queues below ten parents. Each queue names what it
deserves: some have more, and some have less and would take back. ``shares_decide_*`` are gangs of 8 that are
placed.
``shares_event_*`` is an event with all waiting gangs in these queues, with preemption and reclaim on.

``--needs``: so many gangs wait for cards on nodes of 15 kinds of software, and nothing else is measured.
``plain_*``: all ask for the same, and no program needs anything. ``needs_*``: the same gangs, each of which
needs something else. ``sizes_*``, ``sizes_needs_*``: a tenth as many gangs, each of another size.
``*_event_*`` is an event as above, ``*_decide_*`` a decision for one more gang, with a need that is new.

``--measured``: every node says how busy it was, and nothing else is measured. ``free_decide_*`` is a decision
for one gang of 8 whose shares have no guaranteed cores, without a look at that, ``measured_decide_*`` with
it, by turns. ``spread_*`` is the same for gangs that are spread.
"""

import argparse
import json
import random
import resource
import time
from dataclasses import replace
from typing import Final

from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.core.books.state import ClusterState, fresh_index
from vc_egpu.core.decide import decide
from vc_egpu.core.environments.needs import Facts, Needs
from vc_egpu.core.layouts.table import Layout, Template
from vc_egpu.core.measured.use import CardUse, NodeUse
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Node,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Resources,
    Share,
    ShareClass,
    plan_key,
)
from vc_egpu.core.model.policy import BINPACK_RULES, Policy
from vc_egpu.core.placing.learning import Experience, seen
from vc_egpu.volcano.needs.pods import needs_of

CUT_MIB: Final = 65536
LAYOUT: Final = Layout(
    "cut",
    {"aicore": 20, "aicpu": 7},
    (
        Template("small", 16384, 25, {"aicore": 5, "aicpu": 1}),
        Template("large", 32768, 50, {"aicore": 10, "aicpu": 3}),
    ),
)
GIB = 1 << 30
H20_MIB = 98304
GANG = 8


def shape(memory_mib: int, cores: int, cards: int = 1) -> PodShape:
    asks = (CardAsk("main", "h20", cards, memory_mib, cores),)
    return PodShape(asks=asks, requests=Resources(cpu_milli=2000, memory_bytes=4 * GIB))


def cut_nodes(state: ClusterState, nodes: int, cards: int, rng: random.Random) -> None:
    """Nodes whose cards are cut into slices of fixed size, half of them with a slice or two on each card."""
    serial = 0
    for number in range(nodes):
        name = NodeName(f"cut-{number:05d}")
        state.put_node(
            Node(
                name,
                Resources(128_000, 1024 * GIB, 0, 250),
                labels={"kubernetes.io/hostname": name},
                cards=tuple(
                    Card(CardId(f"{name}-{i}"), i, "cut", CUT_MIB, layout=LAYOUT, stack=False)
                    for i in range(cards)
                ),
            )
        )
        for card in range(cards):
            for _ in range(rng.choice([0, 1, 1, 2])):
                template, key = LAYOUT.templates[rng.randrange(2)], f"cutfill/{serial}"
                share = Share(
                    CardId(f"{name}-{card}"), template.memory_mib, template.cores_percent, slice=template.name
                )
                state.put_gang(Gang(key, key, QueueName("all"), ShareClass.LOW, 0, 1, float(serial)))
                pod = Pod(
                    PodUid(key), "fill", f"c{serial}", slices(template), PodPhase.PLACED,
                    name, key, "w", 0, (("main", share),), "1-0",
                )  # fmt: skip
                state.put_pod(pod)
                serial += 1


def slices(template: Template) -> PodShape:
    """A pod that asks for one slice."""
    ask = CardAsk("main", "cut", 1, template.memory_mib, template.cores_percent, slice=template.name)
    return PodShape(asks=(ask,), requests=Resources(2000, 4 * GIB))


def fill(state: ClusterState, nodes: int, cards: int, rng: random.Random) -> None:
    """Nodes, and pods that hold half of the cards' memory."""
    state.put_queue(
        Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": 10**9, "volcano.sh/vgpu-cut": 10**9})
    )
    for number in range(nodes):
        name = NodeName(f"node-{number:05d}")
        state.put_node(
            Node(
                name,
                Resources(128_000, 1024 * GIB, 0, 250),
                labels={"kubernetes.io/hostname": name},
                cards=tuple(Card(CardId(f"{name}-{i}"), i, "h20", H20_MIB) for i in range(cards)),
            )
        )
    taken = [[0] * cards for _ in range(nodes)]
    target = nodes * cards * H20_MIB // 2
    used, serial = 0, 0
    while used < target:
        key = f"fill/{serial}"
        share_class = rng.choice([ShareClass.LOW, ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH])
        state.put_gang(Gang(key, key, QueueName("all"), share_class, 0, GANG, float(serial)))
        memory = rng.choice([8192, 16384, 24576, 49152])
        for index in range(GANG):
            node = rng.randrange(nodes)
            card = rng.randrange(cards)
            if taken[node][card] + memory > H20_MIB:
                continue
            taken[node][card] += memory
            used += memory
            cores = memory * 100 // H20_MIB
            name = NodeName(f"node-{node:05d}")
            pod = Pod(
                PodUid(f"{key}-{index}"), "fill", f"p{serial}-{index}", shape(memory, cores), PodPhase.PLACED,
                name, key, "w", index, (("main", Share(CardId(f"{name}-{card}"), memory, cores)),), "1-0",
            )  # fmt: skip
            state.put_pod(pod)
        serial += 1


def submit(
    state: ClusterState,
    key: str,
    asks: PodShape,
    share_class: ShareClass,
    *,
    created: float,
    queue: str = "all",
) -> None:
    state.put_gang(Gang(key, key, QueueName(queue), share_class, 0, GANG, created))
    for index in range(GANG):
        uid = PodUid(f"{key}-{index}")
        state.put_pod(Pod(uid, "ask", uid, asks, PodPhase.GATED, None, key, "w", index, created=created))


def submit_unlike(state: ClusterState, number: int) -> None:
    """A gang of eight kinds. Two of them ask for more cpu than a node has."""
    key = f"unlike/{number}"
    state.put_gang(Gang(key, key, QueueName("capped"), ShareClass.UNSET, 0, 5, 1e5 + number))
    for kind in range(GANG):
        cpu_milli = 200_000 + 2 * number + kind if kind < 2 else 2000
        asks = replace(shape(1000 + 10 * kind + 100 * number, 1), requests=Resources(cpu_milli, 4 * GIB))
        uid = PodUid(f"{key}-{kind}")
        state.put_pod(Pod(uid, "ask", uid, asks, PodPhase.GATED, None, key, f"t{kind}", 0, created=1e5))


def replace_by_unlike(state: ClusterState, gangs: int) -> None:
    """As many gangs wait as before, some of them with unlike members."""
    state.put_queue(Queue(QueueName("capped"), capability={"volcano.sh/vgpu-h20": 8}))
    for number in range(gangs):
        for index in range(GANG):
            state.remove_pod(PodUid(f"wait/{number}-{index}"))
        state.remove_gang(f"wait/{number}")
        submit_unlike(state, number)


def event(state: ClusterState, turn: int, collector: Collector, policy: Policy) -> float:
    """Seconds from a change of a node to what is decided about all that wait. Nothing is admitted."""
    node = state.snapshot(0).nodes[NodeName("node-00000")]
    started = time.perf_counter()
    with collector.held_off():
        state.put_node(replace(node, labels={**node.labels, "turn": str(turn)}))
        plan = decide(state.snapshot(turn), policy, 1e6)
    took = time.perf_counter() - started
    assert not plan.admissions
    return took


def carry_out(
    state: ClusterState,
    key: str,
    revision: int,
    collector: Collector,
    policy: Policy = Policy(),  # noqa: B008
) -> float:
    """Time one decision for one gang, then do what it says."""
    started = time.perf_counter()
    with collector.held_off():
        plan = decide(state.snapshot(revision), policy, 1e6, only=[key])
    took = time.perf_counter() - started
    snapshot = state.snapshot(revision)
    for admission in plan.admissions:
        gang = snapshot.gangs[key]
        written = PlanInForce(f"1-{revision}", dict(admission.members), frozenset(), 1e6)
        state.put_gang(replace(gang, plan=written))
        for index in range(GANG):
            pod = snapshot.pods[PodUid(f"{key}-{index}")]
            member = admission.members[plan_key(pod)]
            state.put_pod(
                replace(
                    pod,
                    phase=PodPhase.PLACED,
                    node=member.node,
                    shares=member.shares,
                    plan_id=written.plan_id,
                )
            )
        state.put_gang(gang)
    return took


def with_backlog(state: ClusterState, waiting: int, rng: random.Random, policy: Policy) -> dict[str, float]:
    """Events while gangs wait for a cap, then for cards. Nothing is admitted."""
    for number in range(waiting):
        # Eight empty cards of one node for each member: there are none, in eight shapes of asking.
        asks = shape(H20_MIB - rng.randrange(8), 100, cards=8)
        submit(state, f"wait/{number}", asks, ShareClass.UNSET, created=1e5 + number)
    state.put_queue(Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": 1}))
    backlog = {}
    for name, cap in (("cap", 1), ("cards", 10**9)):
        state.put_queue(Queue(QueueName("all"), capability={"volcano.sh/vgpu-h20": cap}))
        times = []
        for turn in range(5):
            node = state.snapshot(0).nodes[NodeName("node-00000")]
            state.put_node(replace(node, labels={**node.labels, "turn": str(turn)}))
            started = time.perf_counter()
            plan = decide(state.snapshot(turn), policy, 1e6)
            times.append(time.perf_counter() - started)
        backlog[f"{name}_first"], backlog[name] = times[0], max(times[1:])
        assert not plan.admissions
    return backlog


def with_shares(nodes: int, cards: int, waiting: int, queues: int, rounds: int) -> dict[str, float]:
    """Decisions where queues deserve what others have."""
    rng = random.Random(2)
    state, collector = ClusterState({"h20": H20_MIB, "cut": CUT_MIB}), Collector()
    collector.begin()
    fill(state, nodes, cards, rng)
    each = nodes * cards // queues
    for number in range(queues):
        parent = QueueName(f"org-{number % 10}")
        state.put_queue(Queue(parent))
        deserved = {"volcano.sh/vgpu-h20": (0, each // 4, each // 2, each, 2 * each)[number % 5]}
        cap = {"volcano.sh/vgpu-h20": 10**9}
        state.put_queue(Queue(QueueName(f"q-{number}"), parent, capability=cap, deserved=deserved))
    for gang in state.snapshot(0).gangs.values():
        state.put_gang(replace(gang, queue=QueueName(f"q-{rng.randrange(queues)}")))
    carry_out(state, "fill/0", 0, collector)
    collector.loaded(time.monotonic())
    singles = []
    for number in range(rounds):
        memory, cores = rng.choice([(8192, 10), (16384, 25), (49152, 50), (73728, 100)])
        share_class, key = rng.choice(list(ShareClass)), f"ask/{number}"
        queue = f"q-{rng.randrange(queues)}"
        submit(state, key, shape(memory, cores), share_class, created=float(number), queue=queue)
        singles.append(carry_out(state, key, number + 1, collector))
    for number in range(waiting):
        asks, queue = shape(H20_MIB - rng.randrange(8), 100, cards=8), f"q-{rng.randrange(queues)}"
        submit(state, f"wait/{number}", asks, ShareClass.UNSET, created=1e5 + number, queue=queue)
    events = [event(state, turn, collector, Policy()) for turn in range(11)][1:]
    return {
        "shares_decide_p50_ms": round(1000 * percentile(singles, 50), 3),
        "shares_decide_p99_ms": round(1000 * percentile(singles, 99), 3),
        "shares_event_p50_ms": round(1000 * percentile(events, 50), 1),
        "shares_event_max_ms": round(1000 * max(events), 1),
    }


def node_facts(number: int) -> Facts:
    """What one of 15 kinds of nodes tells of its software."""
    driver, cuda = (("535.104.05", "12.2"), ("550.54.14", "12.4"), ("570.26", "12.8"))[number % 3]
    capability = ("7.0", "7.5", "8.0", "8.9", "9.0")[number // 3 % 5]
    return (("arch", ("amd64",)), ("capability", (capability,)), ("cuda", (cuda,)), ("driver", (driver,)))


def needs_text(number: int) -> Needs:
    """No two are equal; some nodes meet each, and others do not."""
    cards = (">=7.5,capability<=9.0", "==8.9")
    ways = tuple(f"driver>=535.{number},capability{row},cuda>=12.2" for row in cards)
    return needs_of(f"driver>=535.{number},torch==2.6", ways, presumed=False)


def with_needs(nodes: int, cards: int, waiting: int, events: int, rounds: int) -> dict[str, float]:
    """Decisions while programs wait that need different things of their nodes; and the same without needs."""
    found: dict[str, float] = {}
    for name, sizes, needy in (
        ("plain", False, False),
        ("needs", False, True),
        ("sizes", True, False),
        ("sizes_needs", True, True),
    ):
        state, collector = ClusterState({"h20": H20_MIB, "cut": CUT_MIB}), Collector()
        collector.begin()
        fill(state, nodes, cards, random.Random(3))
        for number, node in enumerate(list(state.snapshot(0).nodes.values())):
            state.put_node(replace(node, environment=node_facts(number)))
        carry_out(state, "fill/0", 0, collector)
        collector.loaded(time.monotonic())
        calm = Policy(preemption=False)
        for number in range(waiting // 10 if sizes else waiting):
            asks = shape(H20_MIB - (number if sizes else 0), 100, cards=8)
            asks = replace(asks, needs=needs_text(number)) if needy else asks
            submit(state, f"wait/{number}", asks, ShareClass.UNSET, created=1e5 + number)
        first = event(state, 0, collector, calm)
        times = [event(state, turn, collector, calm) for turn in range(1, events + 1)]
        singles = []
        for number in range(rounds):
            asks = shape(8192, 10)
            asks = replace(asks, needs=needs_text(waiting + number)) if needy else asks
            submit(state, f"ask/{number}", asks, ShareClass.LOW, created=float(number))
            singles.append(carry_out(state, f"ask/{number}", number + 1, collector, calm))
        found |= {
            f"{name}_first_ms": round(1000 * first, 1),
            f"{name}_event_p50_ms": round(1000 * percentile(times, 50), 2),
            f"{name}_event_max_ms": round(1000 * max(times), 2),
            f"{name}_decide_p50_ms": round(1000 * percentile(singles, 50), 3),
            f"{name}_decide_p99_ms": round(1000 * percentile(singles, 99), 3),
        }
        collector.end()
    return found


def with_measured(nodes: int, cards: int, rounds: int) -> dict[str, float]:
    """Decisions that look at what nodes were measured to use, by turns with decisions that do not."""
    rng = random.Random(4)
    state, collector = ClusterState({"h20": H20_MIB}), Collector()
    collector.begin()
    fill(state, nodes, cards, rng)
    names = list(state.snapshot(0).nodes)

    def say(name: NodeName) -> None:
        busy = {f"{name}-{i}": CardUse(rng.randrange(0, 101, 10), 50) for i in range(cards)}
        state.set_measured(name, NodeUse(1e6, rng.randrange(0, 101, 10), 50, busy))

    for name in names:
        say(name)
    carry_out(state, "fill/0", 0, collector)
    collector.loaded(time.monotonic())
    found: dict[str, float] = {}
    for word, asks in (("", shape(8192, 0)), ("spread_", replace(shape(8192, 10), node_policy="spread"))):
        times: dict[bool, list[float]] = {False: [], True: []}
        for number in range(2 * rounds):
            say(rng.choice(names))
            key, heeds = f"{word}ask/{number}", number % 2 == 1
            submit(state, key, asks, ShareClass.LOW, created=float(number))
            times[heeds].append(carry_out(state, key, number + 1, collector, Policy(heeds_measured=heeds)))
        for heeds, kind in ((False, "free"), (True, "measured")):
            for percent in (50, 99):
                took = percentile(times[heeds], percent)
                found[f"{word}{kind}_decide_p{percent}_ms"] = round(1000 * took, 3)
    collector.end()
    return found


def percentile(values: list[float], percent: float) -> float:
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--cards", type=int, default=8)
    parser.add_argument("--cut", type=float, default=0.0)
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--needs", type=int, default=0)
    parser.add_argument("--measured", action="store_true")
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--unlike", type=int, default=100)
    parser.add_argument("--events", type=int, default=40)
    parser.add_argument("--queues", type=int, default=100)
    parser.add_argument("--binpack", choices=BINPACK_RULES, default=Policy().binpack)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    if found := of_one_kind(arguments):
        print(json.dumps(found))
        return
    rng = random.Random(1)
    state = ClusterState({"h20": H20_MIB, "cut": CUT_MIB})
    collector = Collector()
    collector.begin()
    cut = int(arguments.nodes * arguments.cut)
    fill(state, arguments.nodes - cut, arguments.cards, rng)
    if cut:
        cut_nodes(state, cut, arguments.cards, rng)
    carry_out(state, "fill/0", 0, collector)
    # Garbage is collected as in the controller, which keeps it off the path of decisions.
    collector.loaded(time.monotonic())

    experience = seen(Experience(), (pod.shape for pod in state.snapshot(0).pods.values()))
    policy = Policy(binpack=arguments.binpack, mix=experience.mix)
    singles = []
    for number in range(arguments.rounds):
        memory, cores = rng.choice([(8192, 10), (16384, 25), (49152, 50), (73728, 100)])
        share_class = rng.choice([ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH])
        asks = shape(memory, cores)
        if cut and number % 3 == 0:
            asks = slices(rng.choice(LAYOUT.templates))
        submit(state, f"ask/{number}", asks, share_class, created=float(number))
        # As the controller learns: a new mix now and then, and what it costs counts.
        experience = seen(experience, [asks] * GANG)
        policy = replace(policy, mix=experience.mix)
        singles.append(carry_out(state, f"ask/{number}", number + 1, collector, policy))

    calm = replace(policy, preemption=False)
    backlog = with_backlog(state, arguments.waiting, rng, calm)
    replace_by_unlike(state, arguments.unlike)
    event(state, 99, collector, calm)  # the first look
    unlike = [event(state, 100 + turn, collector, calm) for turn in range(arguments.events)]

    started = time.perf_counter()
    fresh_index(state.snapshot(0))
    rebuild = time.perf_counter() - started
    pods = len(state.snapshot(0).pods)
    del state
    shares = with_shares(
        arguments.nodes, arguments.cards, arguments.waiting, arguments.queues, arguments.rounds
    )
    print(
        json.dumps(
            {
                "binpack": arguments.binpack,
                "nodes": arguments.nodes,
                "cards": arguments.nodes * arguments.cards,
                "pods": pods,
                "cut_cards": cut * arguments.cards,
                "decide_p50_ms": round(1000 * percentile(singles, 50), 3),
                "decide_p99_ms": round(1000 * percentile(singles, 99), 3),
                "decide_max_ms": round(1000 * max(singles), 3),
                "waiting": arguments.waiting,
                "backlog_by_cap_ms": round(1000 * backlog["cap"], 1),
                "backlog_by_cards_ms": round(1000 * backlog["cards"], 1),
                "backlog_first_ms": round(1000 * backlog["cap_first"], 1),
                "unlike_p50_ms": round(1000 * percentile(unlike, 50), 1),
                "unlike_p99_ms": round(1000 * percentile(unlike, 99), 1),
                **shares,
                "rebuild_s": round(rebuild, 2),
                "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
        )
    )


def of_one_kind(arguments: argparse.Namespace) -> dict[str, float]:
    """What is measured by itself; nothing where none of it is asked for."""
    nodes, cards, rounds = arguments.nodes, arguments.cards, arguments.rounds
    if arguments.measured:
        return with_measured(nodes, cards, rounds)
    return with_needs(nodes, cards, arguments.needs, arguments.events, rounds) if arguments.needs else {}


if __name__ == "__main__":
    main()
