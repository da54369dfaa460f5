"""Small random clusters: filled to 60 to 95 percent, with cpu, taints, caps and card kinds mixed."""

import random
from dataclasses import dataclass, replace

from property import brute
from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Mode,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Resources,
    Share,
    ShareClass,
    Snapshot,
    Taint,
    Toleration,
)
from vc_egpu.core.model.neighbours import NO_NEIGHBOURS, Neighbours, Spread

GIB = 1 << 30
MEMORY = {"h20": 98304, "t4": 15360}
LEAST_FILL, MOST_FILL = 0.6, 0.95
_LOAD = (0.3, 0.4, 0.5, 0.6, 0.7, 0.9)
"""Fractions of a card that running members hold."""
_ASKED = (0.05, 0.05, 0.1, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6)
_CLASSES = [ShareClass.UNSET, ShareClass.UNSET, ShareClass.UNSET, ShareClass.LOW, ShareClass.HIGH]
_SILENT = 0.3
_WITHOUT_LINES = 0.4
_MAX_RUNNING = 6
_TRIES = 6
_RULED = 0.4
_RULES_THERE = [
    *[NO_NEIGHBOURS] * 4,
    Neighbours((), (), ("web",)),
    Neighbours(("web",)),
    Neighbours(("web",), (), ("web",)),
]
"""Of members that run: a label, a rule about it, or both."""
_SHARES = ("volcano.sh/vgpu-{}", "volcano.sh/gpu-{}")


@dataclass
class Case:
    """One generated cluster and the gangs that ask, in the order in which they do."""

    snapshot: Snapshot
    asking: list[str]
    alike: dict[str, bool]


def case(seed: int, *, shares: bool = False) -> Case:
    """The cluster of this seed, always the same. ``shares``: more is asked for what queues deserve."""
    rng = random.Random(seed)
    snapshot = _filled(rng)
    while not LEAST_FILL <= fill(snapshot) <= MOST_FILL:
        snapshot = _filled(rng)
    snapshot = _with_lines(
        random.Random(f"lines {seed}"), snapshot, without=0.0 if shares else _WITHOUT_LINES
    )
    asking, alike = [], {}
    for number in range(2):
        key = f"ns/ask{number}"
        snapshot, same = _ask(rng, snapshot, key, number)
        asking.append(key)
        alike[key] = same
        if shares:
            asks = random.Random(f"class {seed} {number}").choice(_CLASSES)
            gangs = {**snapshot.gangs, key: replace(snapshot.gangs[key], share_class=asks)}
            snapshot = replace(snapshot, gangs=gangs)
    return Case(_one_falls_silent(random.Random(f"silent {seed}"), snapshot), asking, alike)


def _with_lines(rng: random.Random, snapshot: Snapshot, *, without: float) -> Snapshot:
    """In most of the cases queues name what they deserve, and gangs run in a queue of another tree too."""
    if rng.random() < without:
        return snapshot
    other = QueueName("green")
    queues = {**snapshot.queues, other: Queue(other, capability=_caps(rng, 4, 24))}
    for name, queue in queues.items():
        names = rng.random() < (0.2 if name == "org" else 0.8)
        queues[name] = replace(
            queue,
            deserved=_deserved(rng) if names else {},
            reclaimable=rng.random() > 0.1,
            preempts_within=rng.random() > 0.1,
        )
    gangs = {
        key: replace(gang, queue=other) if rng.random() < 0.4 else gang
        for key, gang in snapshot.gangs.items()
    }
    return replace(snapshot, queues=queues, gangs=gangs)


def _deserved(rng: random.Random) -> dict[str, int]:
    found: dict[str, int] = {}
    for model, memory in MEMORY.items():
        for form in _SHARES:
            if rng.random() < 0.8:
                found[form.format(model)] = rng.choice([0, 0, 1, 1, 2, 4])
        if rng.random() < 0.3:
            found[f"volcano.sh/vgpu-{model}-memory"] = rng.randint(0, 6) * memory // 2
        if rng.random() < 0.3:
            found[f"volcano.sh/vgpu-{model}-cores"] = rng.randint(0, 6) * 50
    return found


def _one_falls_silent(rng: random.Random, snapshot: Snapshot) -> Snapshot:
    """In a part of the cases, one node of several: who runs there stays there. Best one that a low gang has
    in common with others, or nobody would have a choice."""
    if len(snapshot.nodes) == 1 or rng.random() > _SILENT:
        return snapshot
    on: dict[str, set[NodeName]] = {}
    for pod in snapshot.pods.values():
        if pod.gang and pod.node and snapshot.gangs[pod.gang].share_class is ShareClass.LOW:
            on.setdefault(pod.gang, set()).add(pod.node)
    spread = set().union(*(nodes for nodes in on.values() if len(nodes) > 1))
    name = rng.choice(sorted(spread or snapshot.nodes))
    return replace(snapshot, nodes={**snapshot.nodes, name: replace(snapshot.nodes[name], ready=False)})


def _filled(rng: random.Random) -> Snapshot:
    nodes = random_nodes(rng)
    snapshot = Snapshot(1, {n.name: n for n in nodes}, {}, {}, random_queues(rng), MEMORY)
    target = rng.uniform(LEAST_FILL, MOST_FILL - 0.05)
    for number in range(4):
        snapshot = _run(rng, snapshot, f"ns/run{number}", target * (number + 1) / 4)
    return snapshot


def random_nodes(rng: random.Random) -> list[Node]:
    nodes = []
    for number in range(rng.randint(1, 4)):
        native = rng.random() < 0.12
        mixed = rng.random() < 0.2
        model = rng.choice(["h20", "h20", "t4"])
        cards = []
        for index in range(rng.randint(1, 4)):
            name = rng.choice(["h20", "t4"]) if mixed else model
            usable = rng.random() > 0.05
            cards.append(Card(CardId(f"GPU-{number}-{index}"), index, name, MEMORY[name], usable=usable))
        stretched = not native and rng.random() < 0.35
        crowd = random.Random(rng.random())
        taints = (Taint("dedicated", "gpu", "NoSchedule"),) if rng.random() < 0.2 else ()
        nodes.append(
            Node(
                name=NodeName(f"n{number}"),
                allocatable=Resources(
                    rng.choice([4000, 8000, 16000]), rng.choice([16, 64]) * GIB, 0, rng.choice([6, 110])
                ),
                labels={"zone": rng.choice("ab")},
                taints=taints,
                unschedulable=rng.random() < 0.04,
                mode=Mode.NATIVE if native else Mode.SHARED,
                cards=tuple(cards),
                max_sharers=rng.choice([100, 100, 2, 3]),
                memory_ratio=rng.choice([1.1, 1.5, 2.0, 3.0]) if stretched else 1.0,
                core_ratio=crowd.choice([1.0, 1.0, 1.25, 1.5]),
                ratio_class=crowd.choice([None, None, None, ShareClass.LOW, ShareClass.HIGH]),
                host_memory_mib=rng.choice([0, 30_000, 90_000, 400_000, 400_000]),
            )
        )
    return nodes


def random_queues(rng: random.Random) -> dict[QueueName, Queue]:
    queues = {}
    parent = QueueName("org")
    queues[parent] = Queue(parent, capability=_caps(rng, 8, 20) if rng.random() < 0.3 else {})
    for name in ("red", "blue"):
        caps = _caps(rng, 4, 24)
        if rng.random() < 0.3:
            caps["volcano.sh/vgpu-h20-memory"] = rng.randint(2, 8) * MEMORY["h20"]
        if rng.random() < 0.2:
            caps["cpu"] = rng.choice([8000, 20000])
        guarantee = {"volcano.sh/vgpu-h20": rng.randint(1, 3)} if rng.random() < 0.2 else {}
        queues[QueueName(name)] = Queue(QueueName(name), parent=parent, capability=caps, guarantee=guarantee)
    return queues


def _caps(rng: random.Random, low: int, high: int) -> dict[str, int]:
    return {form.format(model): rng.randint(low, high) for form in _SHARES for model in MEMORY}


def random_shape(
    rng: random.Random, snapshot: Snapshot, *, cards: bool = True, native: bool = False, load: bool = False
) -> PodShape:
    """A random shape. ``load``: of a running one, which is to fill cards before it fills nodes."""
    asks: list[CardAsk] = []
    mode = Mode.NATIVE if native else Mode.SHARED
    models = sorted({c.model for n in snapshot.nodes.values() if n.mode is mode for c in n.cards}) or ["h20"]
    if cards:
        for container in range(2 if rng.random() < 0.06 else 1):
            model = rng.choice(models) if rng.random() < 0.95 else "t4"
            total = MEMORY[model]
            count = rng.choice([1, 1, 1, 1, 2])
            if native:
                asks.append(CardAsk(f"c{container}", model, count, total, 100, native=True, whole=True))
            elif rng.random() < (0.12 if load else 0.06):
                asks.append(CardAsk(f"c{container}", model, count, total, 100, whole=True))
            else:
                memory = int(total * rng.choice(_LOAD if load else _ASKED))
                spill = rng.random() < 0.35
                asks.append(
                    CardAsk(
                        f"c{container}",
                        model,
                        count,
                        memory,
                        rng.choice([0, 20, 25, 40, 50, 60, 100] if load else [0, 0, 10, 20, 25, 50, 100]),
                        spill=spill,
                        host_limit_mib=rng.choice([None, None, 4_000, 30_000]) if spill else None,
                    )
                )
    tolerations = (Toleration("dedicated", "Exists"),) if rng.random() < 0.5 else ()
    return PodShape(
        asks=tuple(asks),
        requests=Resources(
            rng.choice([0, 500, 500] if load else [0, 500, 1000, 2000, 3000]), rng.choice([0, 1, 2]) * GIB
        ),
        node_selector=(("zone", rng.choice("ab")),) if rng.random() < 0.12 else (),
        tolerations=tolerations,
        host_ports=(("", "TCP", 8080),) if rng.random() < 0.05 else (),
        card_policy=rng.choice(["", "", "binpack", "spread"]),
        node_policy=rng.choice(["", "", "binpack", "spread"]),
    )


def _run(rng: random.Random, snapshot: Snapshot, key: str, target: float) -> Snapshot:
    """Add a running gang, at random places that the rules allow, until the cluster is filled."""
    share_class = rng.choice(
        [ShareClass.LOW, ShareClass.LOW, ShareClass.LOW, ShareClass.UNSET, ShareClass.HIGH]
    )
    queue = QueueName(rng.choice(["red", "blue"]))
    protected, suspendable = rng.random() < 0.1, rng.random() < 0.4
    # Drawn from elsewhere: what was found with other cases is found again.
    bare = random.Random(f"{key} {rng.getstate()[1][:2]}").random() < 0.1
    odd = random.Random(f"{key} class {rng.getstate()[1][:2]}")
    some = random.Random(f"{key} some {rng.getstate()[1][:2]}")
    likely = some.choice([0.4, 1.0])
    lately = random.Random(f"{key} lately {rng.getstate()[1][:2]}")
    fresh, often = lately.random() < 0.25, lately.random() < 0.08
    gangs = {**snapshot.gangs, key: Gang(key, key, queue, share_class, 0, 1, 0.0)}
    alike = rng.random() < 0.5
    pods = dict(snapshot.pods)
    rules = random.Random(f"{key} rules {rng.getstate()[1][:2]}").choice(_RULES_THERE)
    shape = random_shape(rng, snapshot, native=rng.random() < 0.1, load=True)
    for index in range(_MAX_RUNNING):
        for _ in range(_TRIES):
            now = replace(snapshot, pods=pods, gangs=gangs)
            ruled = replace(shape, neighbours=rules)
            pod = _placed(rng, now, key, index, ruled, runs_as=_other_class(odd))
            if pod is not None:
                # Of some gangs not every member is so, and each counts for all of them.
                pods[pod.uid] = replace(
                    pod,
                    protected=protected and some.random() < likely,
                    bare=bare and some.random() < likely,
                    suspendable=suspendable,
                    started=float(lately.randint(1890, 1995)) if fresh else pod.started,
                )
                break
            shape = random_shape(rng, snapshot, native=rng.random() < 0.1, load=True)
        if not alike:
            shape = random_shape(rng, snapshot, native=rng.random() < 0.1, load=True)
        if fill(replace(snapshot, pods=pods)) >= target:
            break
    count = len(pods) - len(snapshot.pods)
    if not count:
        return snapshot
    least = count if rng.random() < 0.7 else rng.randint(max(1, count - 2), count)
    gang = Gang(key, f"uid-{key}", queue, share_class, 0, least, 0.0, single=rng.random() < 0.2)
    gang = replace(gang, victim_at=(500.0, 900.0, 1500.0) if often else ())
    return replace(snapshot, pods=pods, gangs={**snapshot.gangs, key: gang})


def fill(snapshot: Snapshot) -> float:
    """How much of all cards' memory is taken."""
    total = sum(card.memory_mib for node in snapshot.nodes.values() for card in node.cards)
    used = sum(share.on_card_mib for pod in snapshot.pods.values() for _, share in pod.shares)
    return used / total


def _other_class(rng: random.Random) -> ShareClass | None:
    """The class of a member that had its cards before its gang became what it is; mostly there is none."""
    return rng.choice(list(ShareClass)) if rng.random() < 0.05 else None


def _placed(
    rng: random.Random,
    snapshot: Snapshot,
    key: str,
    index: int,
    shape: PodShape,
    *,
    runs_as: ShareClass | None,
) -> Pod | None:
    share_class = snapshot.gangs[key].share_class if runs_as is None else runs_as
    nodes = brute.world(snapshot)
    rng.shuffle(nodes)
    for node in nodes:
        if not brute.node_takes(node, shape, share_class):
            continue
        rng.shuffle(node.cards)
        for choice in brute.card_choices(node, shape.asks, share_class):
            shares = tuple(
                (
                    ask.container,
                    Share(
                        CardId(card.uuid),
                        ask.memory_mib,
                        ask.cores_percent,
                        ask.whole,
                        ask.native,
                        on_card if (on_card := node.on_card(ask, share_class)) < ask.memory_mib else None,
                    ),
                )
                for card, ask in choice
            )
            return Pod(
                PodUid(f"{key}-{index}"),
                "ns",
                f"{key[3:]}-{index}",
                shape,
                PodPhase.PLACED,
                node.node.name,
                key,
                "w",
                index,
                shares,
                "1-0",
                0.0,
                started=float(rng.randint(0, 1000)),
                runs_as=runs_as,
            )
    return None


def _ruled(
    rng: random.Random, members: list[tuple[str, PodShape]], *, same: bool
) -> list[tuple[str, PodShape]]:
    """The members with rules between pods, in a part of the cases. What is spread has one ask, as it is
    placed exactly then."""
    kinds = [Neighbours(("web",), (), ("web",)), Neighbours(("web",)), Neighbours((), (), ("web",))]
    if same and len(members[0][1].asks) == 1:
        kinds += [Neighbours((), (Spread("web", rng.choice([1, 1, 2])),), ("web",))] * 3
    rules = rng.choice(kinds) if rng.random() < _RULED else NO_NEIGHBOURS
    odd = rng.randrange(len(members)) if not same else -1
    return [
        (task, replace(shape, neighbours=NO_NEIGHBOURS if at == odd else rules))
        for at, (task, shape) in enumerate(members)
    ]


def _ask(rng: random.Random, snapshot: Snapshot, key: str, number: int) -> tuple[Snapshot, bool]:
    same = rng.random() < 0.6
    share_class = rng.choice(
        [ShareClass.HIGH, ShareClass.HIGH, ShareClass.HIGH, ShareClass.UNSET, ShareClass.LOW]
    )
    native = rng.random() < 0.06
    members: list[tuple[str, PodShape]] = []
    if same:
        shape = random_shape(rng, snapshot, native=native)
        members = [("w", shape)] * rng.randint(1, 4)
    else:
        for task in ("a", "b", "c")[: rng.randint(2, 3)]:
            shape = random_shape(rng, snapshot, cards=rng.random() < 0.75, native=native)
            members += [(task, shape)] * rng.randint(1, 2)
    members = _ruled(random.Random(f"{key} rules {rng.getstate()[1][:2]}"), members, same=same)
    least = len(members) if rng.random() < 0.75 else rng.randint(1, len(members))
    minimums = {"a": 1} if not same and rng.random() < 0.3 and least > 1 else {}
    gang = Gang(
        key,
        f"uid-{key}",
        QueueName(rng.choice(["red", "blue"])),
        share_class,
        0,
        least,
        100.0 + number,
        min_task_member=minimums,
    )
    pods = dict(snapshot.pods)
    counts: dict[str, int] = {}
    for task, shape in members:
        index = counts.get(task, 0)
        counts[task] = index + 1
        uid = PodUid(f"{key}-{task}-{index}")
        pods[uid] = Pod(uid, "ns", uid[3:], shape, PodPhase.GATED, None, key, task, index, created=100.0)
    return replace(snapshot, pods=pods, gangs={**snapshot.gangs, key: gang}), same
