"""The dumb alternative: every rule about nodes and cards spelt out, every placement tried.

Shares nothing with the core but the value types. Slow on purpose; for clusters of a handful of cards.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations

from vc_egpu.core.model.cluster import (
    CardAsk,
    Mode,
    Node,
    Pod,
    PodPhase,
    PodShape,
    ShareClass,
    Snapshot,
    SuspensionState,
)
from vc_egpu.core.model.neighbours import Neighbours

Sitting = tuple[int, int, ShareClass, bool, int, bool]


@dataclass
class BruteCard:
    """One card: who sits on it, as (memory, cores, class, alone, on the card, in turns). Suspended ones
    only count."""

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
    there: list[Neighbours] = field(default_factory=list)
    """The rules of each pod on it."""

    def selects(self, rule: str) -> int:
        """How many pods on it the rule selects."""
        return sum(rule in one.selected_by for one in self.there)

    def lets_in(self, comes: Neighbours) -> bool:
        """Whether it does not avoid any pod here, and no pod here avoids it."""
        avoided = any(rule in one.selected_by for one in self.there for rule in comes.avoids)
        unwanted = any(rule in one.avoids for one in self.there for rule in comes.selected_by)
        return not avoided and not unwanted

    def on_card(self, ask: CardAsk, share_class: ShareClass) -> int:
        """What of a share lies on the card, rounded up."""
        if not ask.spill or self.node.memory_ratio <= 1 or self.node.ratio_class not in (None, share_class):
            return ask.memory_mib
        return math.ceil(Fraction(ask.memory_mib) / Fraction(str(self.node.memory_ratio)))

    def seat(self, ask: CardAsk, share_class: ShareClass) -> Sitting:
        alone = ask.whole or ask.native
        on_card = self.on_card(ask, share_class)
        return (ask.memory_mib, ask.cores_percent, share_class, alone, on_card, ask.swap)

    def over(self, ask: CardAsk, share_class: ShareClass) -> int:
        """What one share may have on the host: all of it, where it takes turns."""
        over = ask.memory_mib - self.on_card(ask, share_class)
        return ask.memory_mib if over and ask.swap else over

    def spilled(self, shape: PodShape, share_class: ShareClass) -> int:
        """What a pod of this shape may move to the host."""
        return sum(ask.cards * self.over(ask, share_class) for ask in shape.asks)

    def limits_allow(self, shape: PodShape, share_class: ShareClass) -> bool:
        """Whether each container's own memory limit is enough for what it may spill."""
        limited = [ask for ask in shape.asks if ask.host_limit_mib is not None]
        return all(ask.cards * self.over(ask, share_class) <= (ask.host_limit_mib or 0) for ask in limited)

    def limit(self, end: ShareClass) -> int:
        """Cores that high and unset (or unset and low) may have together."""
        return int(100 * Fraction(str(self.node.core_ratio))) if self.node.ratio_class in (None, end) else 100

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
        if len({seat[5] for seat in seats}) > 1:
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
        share_class = class_of(snapshot, pod)
        for _, share in pod.shares:
            card = next(card for card in there.cards if card.uuid == share.card)
            asleep = pod.uid in sleeping or (
                pod.suspend_ordered and pod.suspension is SuspensionState.SUSPENDED
            )
            on_card = share.memory_mib if share.physical_mib is None else share.physical_mib
            moving = pod.suspend_ordered or pod.suspension is not SuspensionState.RUNNING
            turns = share.swap and on_card < share.memory_mib
            there.host -= share.memory_mib if asleep or moving or turns else share.memory_mib - on_card
            if asleep:
                card.asleep += 1
            else:
                alone = share.whole or share.native
                seat = (share.memory_mib, share.cores_percent, share_class, alone, on_card, share.swap)
                card.seats.append(seat)
    for gang in snapshot.gangs.values():
        if gang.plan is not None:
            raise NotImplementedError("the oracle is asked between plans only")
    return [nodes[name] for name in sorted(nodes)]


def class_of(snapshot: Snapshot, pod: Pod) -> ShareClass:
    """What its cards were given for, or else its gang's."""
    gang = snapshot.gangs.get(pod.gang) if pod.gang else None
    if pod.runs_as is None:
        return gang.share_class if gang else ShareClass.UNSET
    return pod.runs_as


def _take_host(node: BruteNode, shape: PodShape, share_class: ShareClass, sign: int) -> None:
    node.host -= sign * node.spilled(shape, share_class)


def _take_node(node: BruteNode, shape: PodShape, sign: int) -> None:
    node.cpu -= sign * shape.requests.cpu_milli
    node.mem -= sign * shape.requests.memory_bytes
    node.pods -= sign
    if sign > 0:
        node.there.append(shape.neighbours)
    else:
        node.there.remove(shape.neighbours)
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
    if node.pods < 1 or not node.lets_in(shape.neighbours):
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


def is_even(nodes: list[BruteNode], before: list[int], shape: PodShape) -> bool:
    """Whether no node that got a pod has too many more of those that the spread selects than any other."""
    if not shape.neighbours.spreads:
        return True
    (spread,) = shape.neighbours.spreads
    counts = [node.selects(spread.rule) for node in nodes if counts_for(node, shape)]
    return all(
        node.selects(spread.rule) <= min(counts) + spread.max_skew
        for node, count in zip(nodes, before, strict=True)
        if any(one.spreads == (spread,) for one in node.there[count:])
    )


def counts_for(node: BruteNode, shape: PodShape) -> bool:
    """Whether a spread looks at the node, be it full, closed, or without cards, as kube-scheduler has it."""
    return all(node.node.labels.get(key) == value for key, value in shape.node_selector)


def fits(nodes: list[BruteNode], shapes: list[PodShape], share_class: ShareClass) -> bool:
    """Whether all shapes find a place at once. Equal states met again are not tried again."""
    dead: set[object] = set()
    before = [len(node.there) for node in nodes]

    def mark(depth: int) -> object:
        return depth, tuple(
            (
                *(n.cpu, n.mem, n.pods, n.host, *sorted(n.ports)),
                *(tuple(sorted(c.seats)) for c in n.cards),
                *sorted(map(repr, n.there)),
            )
            for n in nodes
        )

    def descend(depth: int) -> bool:
        if depth == len(shapes):
            return all(is_even(nodes, before, shape) for shape in shapes)
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
