"""The dumb alternative: every rule spelt out, every placement and every set of victims tried.

Shares nothing with the core but the value types. Slow on purpose; for clusters of a handful of cards.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations, product

from vc_egpu.core.cluster import (
    CardAsk,
    Gang,
    Mode,
    Node,
    Pod,
    PodPhase,
    PodShape,
    Queue,
    ShareClass,
    Snapshot,
    SuspensionState,
)

Sitting = tuple[int, int, ShareClass, bool, int]


@dataclass
class BruteCard:
    """One card: who sits on it, as (memory, cores, class, alone, on the card). Suspended ones only count."""

    uuid: str
    model: str
    memory: int
    usable: bool
    seats: list[Sitting] = field(default_factory=list)
    asleep: int = 0


@dataclass
class BruteNode:
    """One node with its free amounts."""

    node: Node
    cpu: int
    mem: int
    pods: int
    ports: list[tuple[str, int]]
    cards: list[BruteCard]
    host: int = 0
    """MiB of host memory that are left."""

    def on_card(self, ask: CardAsk, share_class: ShareClass) -> int:
        """What of a share lies on the card, rounded up."""
        if not ask.spill or self.node.memory_ratio <= 1 or self.node.ratio_class not in (None, share_class):
            return ask.memory_mib
        return math.ceil(Fraction(ask.memory_mib) / Fraction(str(self.node.memory_ratio)))

    def seat(self, ask: CardAsk, share_class: ShareClass) -> Sitting:
        alone = ask.whole or ask.native
        return (ask.memory_mib, ask.cores_percent, share_class, alone, self.on_card(ask, share_class))

    def spilled(self, shape: PodShape, share_class: ShareClass) -> int:
        """What a pod of this shape may move to the host."""
        return sum(ask.cards * (ask.memory_mib - self.on_card(ask, share_class)) for ask in shape.asks)

    def limits_allow(self, shape: PodShape, share_class: ShareClass) -> bool:
        """Whether each container's own memory limit is enough for what it may spill."""
        limited = [ask for ask in shape.asks if ask.host_limit_mib is not None]
        return all(
            ask.cards * (ask.memory_mib - self.on_card(ask, share_class)) <= (ask.host_limit_mib or 0)
            for ask in limited
        )

    def limit(self, end: ShareClass) -> int:
        """Cores that high and unset (or unset and low) may have together."""
        return int(100 * self.node.core_ratio) if self.node.ratio_class in (None, end) else 100

    def takes_card(self, card: BruteCard, ask: CardAsk, share_class: ShareClass) -> bool:  # noqa: PLR0911  a list of rules
        if not card.usable or card.model != ask.model or self.node.problem:
            return False
        if (self.node.mode is Mode.NATIVE) != ask.native:
            return False
        seats = [*card.seats, self.seat(ask, share_class)]
        if sum(seat[0] for seat in seats) > card.memory * Fraction(str(self.node.memory_ratio)):
            return False
        if sum(seat[4] for seat in seats) > card.memory:
            return False
        high = sum(seat[1] for seat in seats if seat[2] is not ShareClass.LOW)
        low = sum(seat[1] for seat in seats if seat[2] is not ShareClass.HIGH)
        # What overlaps already is not made worse by a share without cores.
        if ask.cores_percent and share_class is not ShareClass.LOW and high > self.limit(ShareClass.HIGH):
            return False
        if ask.cores_percent and share_class is not ShareClass.HIGH and low > self.limit(ShareClass.LOW):
            return False
        if any(seat[3] for seat in seats) and len(seats) > 1:
            return False
        return len(seats) + card.asleep <= self.node.max_sharers


def world(snapshot: Snapshot, without: Iterable[str] = (), suspended: Iterable[str] = ()) -> list[BruteNode]:
    """The cluster with everything booked, except for some pods, and with others suspended."""
    gone, sleeping = set(without), set(suspended)
    nodes = {
        node.name: BruteNode(
            node,
            node.allocatable.cpu_milli,
            node.allocatable.memory_bytes,
            node.allocatable.pods,
            [],
            [BruteCard(c.uuid, c.model, c.memory_mib, c.usable) for c in node.cards],
            node.host_memory_mib,
        )
        for node in snapshot.nodes.values()
    }
    for pod in snapshot.pods.values():
        if pod.uid in gone or pod.node is None or pod.phase not in {PodPhase.PLACED, PodPhase.TERMINATING}:
            continue
        there = nodes[pod.node]
        _take_node(there, pod.shape, 1)
        gang = snapshot.gangs.get(pod.gang) if pod.gang else None
        share_class = gang.share_class if gang else ShareClass.UNSET
        for _, share in pod.shares:
            card = next(card for card in there.cards if card.uuid == share.card)
            asleep = pod.uid in sleeping or (
                pod.suspend_ordered and pod.suspension is SuspensionState.SUSPENDED
            )
            on_card = share.memory_mib if share.physical_mib is None else share.physical_mib
            moving = pod.suspend_ordered or pod.suspension is not SuspensionState.RUNNING
            there.host -= share.memory_mib if asleep or moving else share.memory_mib - on_card
            if asleep:
                card.asleep += 1
            else:
                alone = share.whole or share.native
                card.seats.append((share.memory_mib, share.cores_percent, share_class, alone, on_card))
    for gang in snapshot.gangs.values():
        if gang.plan is not None:
            raise NotImplementedError("the oracle is asked between plans only")
    return [nodes[name] for name in sorted(nodes)]


def _take_host(node: BruteNode, shape: PodShape, share_class: ShareClass, sign: int) -> None:
    node.host -= sign * node.spilled(shape, share_class)


def _take_node(node: BruteNode, shape: PodShape, sign: int) -> None:
    node.cpu -= sign * shape.requests.cpu_milli
    node.mem -= sign * shape.requests.memory_bytes
    node.pods -= sign
    for _, protocol, port in shape.host_ports:
        if sign > 0:
            node.ports.append((protocol, port))
        else:
            node.ports.remove((protocol, port))


def node_takes(node: BruteNode, shape: PodShape, share_class: ShareClass) -> bool:  # noqa: PLR0911  a list of rules
    """Everything about a node but its cards."""
    if not node.node.ready or node.node.unschedulable:
        return False
    for taint in node.node.taints:
        tolerated = any(
            (not t.key or t.key == taint.key)
            and (not t.effect or t.effect == taint.effect)
            and (t.operator == "Exists" or (t.key and t.value == taint.value))
            for t in shape.tolerations
        )
        if taint.effect != "PreferNoSchedule" and not tolerated:
            return False
    if any(node.node.labels.get(key) != value for key, value in shape.node_selector):
        return False
    if node.pods < 1:
        return False
    if shape.requests.cpu_milli > node.cpu and shape.requests.cpu_milli:
        return False
    if shape.requests.memory_bytes > node.mem and shape.requests.memory_bytes:
        return False
    spilled = node.spilled(shape, share_class)
    if not node.limits_allow(shape, share_class) or (spilled and spilled > node.host):
        return False
    return not any((protocol, port) in node.ports for _, protocol, port in shape.host_ports)


def card_choices(
    node: BruteNode, asks: tuple[CardAsk, ...], share_class: ShareClass
) -> Iterator[list[tuple[BruteCard, CardAsk]]]:
    """Every way to give the asks their cards; taken while it is yielded."""
    if not asks:
        yield []
        return
    ask = asks[0]
    open_cards = [card for card in node.cards if node.takes_card(card, ask, share_class)]
    for group in combinations(open_cards, ask.cards):
        for card in group:
            card.seats.append(node.seat(ask, share_class))
        for rest in card_choices(node, asks[1:], share_class):
            yield [*((card, ask) for card in group), *rest]
        for card in group:
            card.seats.pop()


def fits(nodes: list[BruteNode], shapes: list[PodShape], share_class: ShareClass) -> bool:
    """Whether all shapes find a place at once. Equal states met again are not tried again."""
    dead: set[object] = set()

    def mark(depth: int) -> object:
        return depth, tuple(
            (n.cpu, n.mem, n.pods, n.host, *sorted(n.ports), *(tuple(sorted(c.seats)) for c in n.cards))
            for n in nodes
        )

    def descend(depth: int) -> bool:
        if depth == len(shapes):
            return True
        here = mark(depth)
        if here in dead:
            return False
        shape = shapes[depth]
        for node in nodes:
            if not node_takes(node, shape, share_class):
                continue
            _take_node(node, shape, 1)
            _take_host(node, shape, share_class, 1)
            for _ in card_choices(node, shape.asks, share_class):
                if descend(depth + 1):
                    return True
            _take_node(node, shape, -1)
            _take_host(node, shape, share_class, -1)
        dead.add(here)
        return False

    return descend(0)


def core_choices(gang: Gang, pods: list[Pod]) -> Iterator[list[PodShape]]:
    """Every set of waiting members that makes a gang that does not run yet whole; equal sets once."""
    seen: list[list[tuple[str, PodShape]]] = []
    minimums = gang.min_task_member if sum(gang.min_task_member.values()) <= gang.min_member else {}
    for group in combinations(pods, gang.min_member):
        counts = {task: sum(1 for pod in group if pod.task == task) for task in minimums}
        if any(counts[task] < least for task, least in minimums.items()):
            continue
        mark = [(pod.task, pod.shape) for pod in group]
        if mark not in seen:
            seen.append(mark)
            yield [pod.shape for pod in group]


def use(snapshot: Snapshot, queue: str) -> dict[str, int]:
    """What a queue and all below it use."""
    total: dict[str, int] = {}
    for pod in snapshot.pods.values():
        gang = snapshot.gangs.get(pod.gang) if pod.gang else None
        if gang is None or pod.phase not in {PodPhase.PLACED, PodPhase.TERMINATING}:
            continue
        if queue in chain(snapshot, gang.queue):
            for key, amount in pod_amounts(pod.shape).items():
                total[key] = total.get(key, 0) + amount
    return total


def chain(snapshot: Snapshot, queue: str) -> list[str]:
    names: list[str] = []
    current: str | None = queue
    while current is not None:
        names.append(current)
        entry: Queue | None = snapshot.queues.get(current)  # type: ignore[call-overload]
        current = entry.parent if entry else None
    return names


def pod_amounts(shape: PodShape) -> dict[str, int]:
    total = {"cpu": shape.requests.cpu_milli, "memory": shape.requests.memory_bytes}
    for ask in shape.asks:
        if ask.native:
            total[f"volcano.sh/gpu-{ask.model}"] = total.get(f"volcano.sh/gpu-{ask.model}", 0) + ask.cards
            continue
        for key, each in (
            (f"vgpu-{ask.model}", 1),
            (f"vgpu-{ask.model}-memory", ask.memory_mib),
            (f"vgpu-{ask.model}-cores", ask.cores_percent),
        ):
            total[f"volcano.sh/{key}"] = total.get(f"volcano.sh/{key}", 0) + each * ask.cards
    return total


def caps_allow(snapshot: Snapshot, queue: str, shapes: list[PodShape]) -> bool:
    """Whether the queue and all above it allow these shapes on top of what they use."""
    asked: dict[str, int] = {}
    for shape in shapes:
        for key, amount in pod_amounts(shape).items():
            asked[key] = asked.get(key, 0) + amount
    for name in chain(snapshot, queue):
        entry = snapshot.queues[name]  # type: ignore[index]
        used = use(snapshot, name)
        for key, amount in asked.items():
            cap = entry.capability.get(key)
            if cap is None:
                model_key = "gpu-" in key and not key.endswith(("-memory", "-cores"))
                if model_key and name == queue and amount:
                    return False
            elif amount and used.get(key, 0) + amount > cap:
                return False
    return True


def placeable(
    snapshot: Snapshot,
    gang: Gang,
    pods: list[Pod],
    without: Iterable[str] = (),
    suspended: Iterable[str] = (),
) -> bool:
    """Whether some allowed core of the gang fits once the given pods are gone, and others suspended."""
    gone, asleep = list(without), list(suspended)
    return any(
        caps_allow(snapshot, gang.queue, shapes)
        and fits(world(snapshot, gone, asleep), shapes, gang.share_class)
        for shapes in core_choices(gang, pods)
    )


def cards_of(pods: Iterable[Pod]) -> int:
    return sum(len({share.card for _, share in pod.shares}) for pod in pods)


def victim_options(gang: Gang, placed: list[Pod]) -> list[tuple[Pod, ...]]:
    """Nobody, any members above the minimum, or everybody."""
    if any(pod.bare for pod in placed):
        return [()]  # nobody would make them anew
    return _parts(gang, placed)


def _parts(gang: Gang, placed: list[Pod]) -> list[tuple[Pod, ...]]:
    options: list[tuple[Pod, ...]] = [()]
    minimums = gang.min_task_member if sum(gang.min_task_member.values()) <= gang.min_member else {}
    for count in range(1, len(placed) - gang.min_member + 1):
        for group in combinations(placed, count):
            stay = [pod for pod in placed if pod not in group]
            if all(sum(1 for p in stay if p.task == t) >= least for t, least in minimums.items()):
                options.append(group)
    if tuple(placed) not in options:
        options.append(tuple(placed))
    return options


def guarantees_hold(snapshot: Snapshot, preemptor: Gang, victims: list[Pod]) -> bool:
    """No queue of a victim falls below what it is guaranteed of anything its victims use."""
    for name, entry in snapshot.queues.items():
        if name in chain(snapshot, preemptor.queue):
            continue
        taken: dict[str, int] = {}
        for pod in victims:
            if name in chain(snapshot, snapshot.gangs[str(pod.gang)].queue):
                for key, amount in pod_amounts(pod.shape).items():
                    taken[key] = taken.get(key, 0) + amount
        used = use(snapshot, name)
        for key, guaranteed in entry.guarantee.items():
            if taken.get(key, 0) and used.get(key, 0) - taken[key] < guaranteed:
                return False
    return True


def suspension_options(gang: Gang, placed: list[Pod]) -> list[tuple[Pod, ...]]:
    """As :func:`victim_options`, of a gang all of whose members could be suspended; else nobody."""
    if not all(pod.suspendable or not pod.shares for pod in placed):
        return [()]
    return [tuple(pod for pod in group if pod.shares) for group in _parts(gang, placed)]


def hosts_hold(snapshot: Snapshot, suspended: list[Pod]) -> bool:
    """Whether every node's host memory takes those that are suspended, before anybody else is gone."""
    there = world(snapshot, (), [pod.uid for pod in suspended])
    nodes = {pod.node for pod in suspended}
    return all(node.host >= 0 for node in there if node.node.name in nodes)


Cost = tuple[int, int]
"""Cards that evicted members hold, then those that suspended ones do."""


def cheapest_victims(snapshot: Snapshot, gang: Gang, pods: list[Pod]) -> Cost | None:
    """The least cost over all sets of victims; None if none helps."""
    by_gang: list[list[tuple[tuple[Pod, ...], tuple[Pod, ...]]]] = []
    for other in snapshot.gangs.values():
        members = [pod for pod in snapshot.pods.values() if pod.gang == other.key]
        placed = [pod for pod in members if pod.phase is PodPhase.PLACED]
        if other.share_class is ShareClass.LOW and placed and not any(pod.protected for pod in placed):
            evictions = [(group, ()) for group in victim_options(other, placed)]
            suspensions = [((), group) for group in suspension_options(other, placed) if group]
            by_gang.append([*evictions, *suspensions])
    choices = []
    for choice in product(*by_gang):
        evicted = [pod for group, _ in choice for pod in group]
        asleep = [pod for _, group in choice for pod in group]
        choices.append(((cards_of(evicted), cards_of(asleep)), evicted, asleep))
    choices.sort(key=lambda entry: entry[0])
    for cost, evicted, asleep in choices:
        if not (evicted or asleep) or not guarantees_hold(snapshot, gang, [*evicted, *asleep]):
            continue
        if asleep and not hosts_hold(snapshot, asleep):
            continue
        if placeable(snapshot, gang, pods, [pod.uid for pod in evicted], [pod.uid for pod in asleep]):
            return cost
    return None
