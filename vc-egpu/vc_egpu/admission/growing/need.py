"""How many more empty nodes of a model would serve the gangs that wait for its cards alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from vc_egpu.core.model.cluster import Gang, Pod, PodPhase, PodShape, Snapshot
from vc_egpu.core.model.findings import AboveMinimum, Finding, NoModel, NoOption, Shortage
from vc_egpu.core.model.gangs import HOLDING
from vc_egpu.core.model.reasons import Reason, Verdict

SHORT = frozenset({Reason.WAITING_FOR_CARDS, Reason.WAITING_FOR_MODEL})
"""Only nodes are missing. A gang that waits for its quota, its turn or its members gets nothing by them."""


@dataclass(frozen=True, slots=True)
class Empty:
    """What one node of the group has when it comes."""

    cards: int
    memory_mib: int
    """Each card has so much."""


@dataclass(frozen=True, slots=True)
class Need:
    """More nodes of one model."""

    nodes: int
    """Empty ones that all these gangs would fill; 0: none is needed."""
    gangs: tuple[str, ...] = ()
    """The gangs that wait for them, sorted."""


def need(snapshot: Snapshot, verdicts: Mapping[str, Verdict], model: str, empty: Empty) -> Need:
    """First fit of the members that wait, on empty nodes.

    Gangs that run in part are left out: what they lack is a surplus, or a replacement that has its cards.
    Replicas are planned singly, so all that wait count. A gang with a member that no empty node takes is left
    out: more nodes would not help it.
    """
    waiting = [
        key for key, verdict in verdicts.items() if verdict.reason in SHORT and not _is_apart(verdict.finding)
    ]
    if not waiting:
        return Need(0)
    members = _members(snapshot, frozenset(waiting))
    nodes: list[list[Fraction]] = []
    served: list[str] = []
    for key in sorted(waiting):
        gang = snapshot.gangs.get(key)
        shapes = _shapes(gang, members.get(key, [])) if gang is not None else ()
        shapes = tuple(_as_wished(shape, verdicts[key].finding) for shape in shapes)
        asks = [parts for shape in shapes if (parts := _parts(shape, model, empty))]
        if not asks or any(not _seat(parts, [Fraction(0)] * empty.cards) for parts in asks):
            continue
        served.append(key)
        for parts in sorted(asks, reverse=True):
            if not any(_seat(parts, node) for node in nodes):
                nodes.append([Fraction(0)] * empty.cards)
                _seat(parts, nodes[-1])
    return Need(len(nodes), tuple(served))


def _is_apart(found: Finding | None) -> bool:
    """Whether it lacks no place but a domain of the network: in which one a new node comes is not known."""
    if not isinstance(found, Shortage) or found.level is None:
        return False
    return not found.level.roomiest or found.free >= found.wanted


def _as_wished(shape: PodShape, found: Finding | None) -> PodShape:
    """The pod with the first of its models that lacks cards alone; as it is where it asks for one thing."""
    found = found.why if isinstance(found, AboveMinimum) else found
    options = found.options if isinstance(found, NoOption) else ()
    name = next((name for name, why in options if isinstance(why, Shortage | NoModel)), "")
    return shape.as_option(name) or shape


def nodes_of(snapshot: Snapshot, model: str) -> int:
    """Nodes that are there and have a card of this model, ill ones included."""
    return sum(any(card.model == model for card in node.cards) for node in snapshot.nodes.values())


def _members(snapshot: Snapshot, gangs: frozenset[str]) -> dict[str, list[Pod]]:
    found: dict[str, list[Pod]] = {}
    for pod in snapshot.pods.values():
        if pod.gang in gangs and pod.gang is not None:
            found.setdefault(pod.gang, []).append(pod)
    return found


def _shapes(gang: Gang, members: Iterable[Pod]) -> tuple[PodShape, ...]:
    """The members that it needs to begin; nothing for a gang that has begun."""
    members = list(members)
    gated = [pod.shape for pod in members if pod.phase is PodPhase.GATED]
    if gang.is_of_replicas:
        return tuple(gated)
    if any(pod.phase in HOLDING for pod in members):
        return ()
    if not gated:
        gated = [shape for _, count, shape in gang.template for _ in range(count)]
    return tuple(gated[: max(1, gang.min_member)])


def _parts(shape: PodShape, model: str, empty: Empty) -> tuple[Fraction, ...]:
    """The part of a card that each of its shares takes, largest first; nothing for other models."""
    if any(ask.model != model for ask in shape.asks):
        return ()
    parts: list[Fraction] = []
    for ask in shape.asks:
        part = max(Fraction(ask.memory_mib, empty.memory_mib), Fraction(ask.cores_percent, 100))
        parts += [Fraction(1) if ask.whole else part] * ask.cards
    return tuple(sorted(parts, reverse=True))


def _seat(parts: tuple[Fraction, ...], node: list[Fraction]) -> bool:
    """Seat one member on a node, all of it or nothing; its shares lie on distinct cards."""
    free = sorted(range(len(node)), key=lambda index: -node[index])
    seats: list[tuple[int, Fraction]] = []
    for part in parts:
        index = next((index for index in free if node[index] + part <= 1), None)
        if index is None:
            return False
        free.remove(index)
        seats.append((index, part))
    for index, part in seats:
        node[index] += part
    return True
