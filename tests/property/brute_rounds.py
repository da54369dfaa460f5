"""The dumb alternative to the rounds of looking for victims: priority, caps of full queues, and reclaim.

Every rule is spelt out, every set of victims tried. As slow on purpose as :mod:`property.brute`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations, product

from property import brute
from property import brute_search as search
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Gang, Mode, Pod, PodPhase, PodShape, Queue, ShareClass, Snapshot

CARD = 1_000_000
Parts = dict[str, int]
"""By kind of card, millionths."""


@dataclass(frozen=True)
class Round:
    """Gangs that may go, and which sets of them."""

    cause: Cause
    members: dict[str, list[Pod]]
    """By gang, the members that may go."""
    may_go: Callable[[list[Pod]], bool] = lambda _: True
    frees_quota: bool = False


def parts(snapshot: Snapshot, shapes: Iterable[PodShape]) -> Parts:
    """The larger part of memory and compute, of each share."""
    found: Parts = {}
    for shape in shapes:
        for ask in shape.asks:
            kind = f"volcano.sh/gpu-{ask.model}" if ask.native else f"volcano.sh/vgpu-{ask.model}"
            part = max(ask.memory_mib * CARD // snapshot.models[ask.model], ask.cores_percent * CARD // 100)
            found[kind] = found.get(kind, 0) + ask.cards * (CARD if ask.whole or ask.native else part)
    return found


def line(snapshot: Snapshot, queue: Queue, kind: str) -> int | None:
    """What it names, or what those below it do together."""
    memory, cores = queue.deserved.get(f"{kind}-memory"), queue.deserved.get(f"{kind}-cores")
    if memory is not None or cores is not None:
        model = kind.rpartition("gpu-")[2]
        return max((memory or 0) * CARD // snapshot.models[model], (cores or 0) * CARD // 100)
    if kind in queue.deserved:
        return queue.deserved[kind] * CARD
    below = [line(snapshot, one, kind) for one in snapshot.queues.values() if one.parent == queue.name]
    named = [amount for amount in below if amount is not None]
    return sum(named) if named else None


def has(snapshot: Snapshot, queue: str, kind: str, without: Iterable[Pod] = ()) -> int:
    """Parts of cards that the queue and all below it have, without these pods."""
    gone = {pod.uid for pod in without}
    return sum(
        parts(snapshot, [pod.shape]).get(kind, 0)
        for pod in snapshot.pods.values()
        if pod.gang in snapshot.gangs
        and pod.phase in {PodPhase.PLACED, PodPhase.TERMINATING}
        and pod.uid not in gone
        and queue in search.chain(snapshot, snapshot.gangs[str(pod.gang)].queue)
    )


def members(
    snapshot: Snapshot, gang: Gang, most: ShareClass, asked: Iterable[str] = (), above: set[str] | None = None
) -> list[Pod]:
    """Those that may go if no class above ``most`` may. ``above``: of the kinds of cards that are asked for,
    those of which the gang's queue has too much; None where that does not matter."""
    if gang.share_class > most:
        return []
    placed = [p for p in snapshot.pods.values() if p.gang == gang.key and p.phase is PodPhase.PLACED]
    able = [p for p in placed if not p.shares or brute.class_of(snapshot, p) <= most]
    if any(p.protected for p in placed) or (len(able) < len(placed) and not gang.single):
        return []
    if above is None:
        return able
    kinds = {p.uid: set(parts(snapshot, [p.shape])) & set(asked) for p in able}
    good = [p for p in able if kinds[p.uid] and kinds[p.uid] <= above]
    if gang.single:
        return good
    return able if good and all(found <= above for found in kinds.values()) else []


def rounds(snapshot: Snapshot, gang: Gang, shapes: list[PodShape]) -> Iterator[Round]:
    """For these members of a gang, one round after the other."""
    if search.caps_allow(snapshot, gang.queue, shapes):
        if gang.share_class is ShareClass.HIGH:
            yield Round(Cause.PRIORITY, _low(snapshot, gang, snapshot.queues))
        yield from _reclaims(snapshot, gang, shapes)
    elif gang.share_class is ShareClass.HIGH:
        yield from _in_caps(snapshot, gang, shapes)


def _low(snapshot: Snapshot, gang: Gang, queues: Iterable[str]) -> dict[str, list[Pod]]:
    among = set(queues)
    found = {
        other.key: members(snapshot, other, ShareClass.LOW)
        for other in snapshot.gangs.values()
        if other.key != gang.key and other.queue in among
    }
    return {key: pods for key, pods in found.items() if pods}


def _in_caps(snapshot: Snapshot, gang: Gang, shapes: list[PodShape]) -> Iterator[Round]:
    full = search.full_queues(snapshot, gang.queue, shapes)
    if full is None or not all(snapshot.queues[name].preempts_within for name in full):  # type: ignore[index]
        return
    for above in dict.fromkeys((gang.queue, full[-1])):
        below = [name for name in snapshot.queues if above in search.chain(snapshot, name)]
        yield Round(Cause.PRIORITY, _low(snapshot, gang, below), frees_quota=True)
    yield Round(Cause.PRIORITY, _low(snapshot, gang, snapshot.queues), frees_quota=True)


def _reclaims(snapshot: Snapshot, gang: Gang, shapes: list[PodShape]) -> Iterator[Round]:
    asks = parts(snapshot, shapes)
    chain = search.chain(snapshot, gang.queue)
    paths: dict[str, list[str]] = {}
    for depth in range(1, len(chain) + 1):
        own, above = chain[:depth], chain[depth] if depth < len(chain) else None
        lines = {
            (name, kind): amount
            for name in own
            for kind in asks
            if (amount := line(snapshot, snapshot.queues[name], kind)) is not None  # type: ignore[index]
        }
        if any(has(snapshot, name, kind) + asks[kind] > amount for (name, kind), amount in lines.items()):
            return
        if not asks or {kind for _, kind in lines} != set(asks):
            continue
        for name in snapshot.queues:
            others = search.chain(snapshot, name)
            if name in paths or chain[depth - 1] in others or (above is not None and above not in others[1:]):
                continue
            path = others[: others.index(above)] if above is not None else others
            if all(snapshot.queues[one].reclaimable for one in path):  # type: ignore[index]
                paths[name] = path
        for most in (ShareClass.LOW, ShareClass.UNSET):
            found = {
                other.key: members(snapshot, other, most, asks, _above(snapshot, paths[other.queue], asks))
                for other in snapshot.gangs.values()
                if other.queue in paths and other.key != gang.key
            }
            able = {key: pods for key, pods in found.items() if pods}
            yield Round(Cause.RECLAIM, able, partial(_gives_back, snapshot, dict(paths), asks))


def _above(snapshot: Snapshot, path: list[str], kinds: Iterable[str], gone: Sequence[Pod] = ()) -> set[str]:
    """Kinds of which every queue of the path that has a line has more; or that none of them deserves."""
    return {
        kind
        for kind in kinds
        if all(
            (amount := line(snapshot, snapshot.queues[name], kind)) is None  # type: ignore[index]
            or has(snapshot, name, kind, gone) > amount
            for name in path
        )
    }


def _gives_back(snapshot: Snapshot, paths: dict[str, list[str]], asks: Parts, victims: list[Pod]) -> bool:
    """Whether the gangs may go in some order, so that each one's queues are above their lines before."""
    gangs = {str(pod.gang): [p for p in victims if p.gang == pod.gang] for pod in victims}

    def is_above(key: str, gone: list[Pod]) -> bool:
        kinds = set(asks) & set(parts(snapshot, [pod.shape for pod in gangs[key]]))
        return kinds <= _above(snapshot, paths[snapshot.gangs[key].queue], kinds, gone)

    return any(
        all(is_above(key, [p for one in order[:at] for p in gangs[one]]) for at, key in enumerate(order))
        for order in permutations(gangs)
    )


Cheapest = tuple[tuple[bool, int], search.Cost]
"""How late the gangs go, and what it costs."""
Found = tuple[int, Cheapest]
"""The number of the round, and the best of it."""


def least(snapshot: Snapshot, gang: Gang, waiting: list[Pod], now: float) -> Found | None:
    """The first round in which some set of victims is enough, and what the cheapest of these costs."""
    cores = list(search.core_choices(gang, waiting))
    allowed = [shapes for shapes in cores if search.caps_allow(snapshot, gang.queue, shapes)]
    found = [
        one
        for shapes in _to_try(snapshot, cores, allowed)
        if (one := _least_of(snapshot, gang, shapes, now)) is not None
    ]
    return min(found, default=None)


def _to_try(
    snapshot: Snapshot, cores: list[list[PodShape]], allowed: list[list[PodShape]]
) -> list[list[PodShape]]:
    """Those that caps allow, of models that nodes have; else those that would be over a cap."""
    kinds = {
        (card.model, node.mode is Mode.NATIVE) for node in snapshot.nodes.values() for card in node.cards
    }
    able = [
        shapes for shapes in allowed if {(a.model, a.native) for one in shapes for a in one.asks} <= kinds
    ]
    return able or [shapes for shapes in cores if shapes not in allowed]


def _least_of(snapshot: Snapshot, gang: Gang, shapes: list[PodShape], now: float) -> Found | None:
    for number, one in enumerate(distinct(rounds(snapshot, gang, shapes))):
        cost = cheapest(snapshot, gang, shapes, one, now)
        if cost is not None:
            return number, cost
    return None


def distinct(found: Iterable[Round]) -> Iterator[Round]:
    """Where a round has the gangs of the one before it, nothing new is tried."""
    last: Round | None = None
    for one in found:
        if last is None or (one.cause, one.members) != (last.cause, last.members):
            yield one
        last = one


def fits(
    snapshot: Snapshot,
    gang: Gang,
    shapes: list[PodShape],
    evicted: Sequence[Pod],
    asleep: Sequence[Pod],
    *,
    frees_quota: bool,
) -> bool:
    """Whether these members fit on cards and under the caps without these pods."""
    gone = [pod.uid for pod in (*evicted, *asleep)] if frees_quota else []
    left = {uid: pod for uid, pod in snapshot.pods.items() if uid not in gone}
    counted = Snapshot(snapshot.revision, snapshot.nodes, left, snapshot.gangs, snapshot.queues)
    if not search.caps_allow(counted, gang.queue, shapes):
        return False
    nodes = brute.world(snapshot, [pod.uid for pod in evicted], [pod.uid for pod in asleep])
    return brute.fits(nodes, shapes, gang.share_class)


def cheapest(
    snapshot: Snapshot, gang: Gang, shapes: list[PodShape], one: Round, now: float
) -> Cheapest | None:
    """The least cost over all sets of victims of one round that go first; None if none helps."""
    everybody = [pod for pods in one.members.values() for pod in pods]
    # With fewer pods gone, a spread may find room that it has not with all of them gone.
    spread = any(shape.neighbours.spreads for shape in shapes)
    if not everybody or not (
        spread or fits(snapshot, gang, shapes, everybody, [], frees_quota=one.frees_quota)
    ):
        return None
    by_gang = []
    for key, pods in one.members.items():
        other = snapshot.gangs[key]
        evictions = [(group, ()) for group in search.victim_options(other, pods)]
        away = [((), group) for group in search.suspension_options(snapshot, other, pods) if group]
        by_gang.append([*evictions, *away])
    choices = []
    for choice in product(*by_gang):
        evicted = [pod for group, _ in choice for pod in group]
        asleep = [pod for _, group in choice for pod in group]
        choices.append(((search.cards_of(evicted), search.cards_of(asleep)), evicted, asleep))
    choices.sort(key=lambda entry: (search.order(snapshot, entry[1], entry[2], now), entry[0]))
    for cost, evicted, asleep in choices:
        victims = [*evicted, *asleep]
        if not victims or not search.guarantees_hold(snapshot, gang, victims) or not one.may_go(victims):
            continue
        if asleep and not search.hosts_hold(snapshot, asleep):
            continue
        if fits(snapshot, gang, shapes, evicted, asleep, frees_quota=one.frees_quota):
            return search.order(snapshot, evicted, asleep, now), cost
    return None
