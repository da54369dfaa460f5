"""Guarantees: cards that a queue is guaranteed and does not use are kept for it, as places on real cards.

A sum would not do: where a few percent of each card are free, no card is. Only the queue itself uses the
places, and low gangs while they are idle. Those leave when a gang of the queue comes
(:mod:`vc_egpu.core.room.guarantee`). A place is found where there is room. Where there is none it waits, and
takes what becomes free before any gang does.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from vc_egpu.core.books import capacity
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import Need, seats_of
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.model.cluster import (
    FULL_CORES_PERCENT,
    CardAsk,
    Mode,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    ShareClass,
    Toleration,
)
from vc_egpu.core.model.resources import (
    CORES_TOTAL_SUFFIX,
    MEMORY_TOTAL_SUFFIX,
    NATIVE_PREFIX,
    model_of,
)
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import CardChoice, card_choice
from vc_egpu.core.room.guarantee import kind_of
from vc_egpu.core.trial.claims import Claim, ClaimKind
from vc_egpu.core.trial.trial import Trial

_CORDON: Final = "node.kubernetes.io/unschedulable"

Kept = dict[tuple[QueueName, str], int]
"""By queue and kind of card, how many places are kept for it and those below it."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Places of one kind that a queue is guaranteed and does not use."""

    kind: str
    """The resource that counts them."""
    count: int
    ask: CardAsk
    """What each takes of its card."""


_State = tuple[int, tuple[CardAsk, ...], int, CardChoice, tuple[PodUid, ...]]
"""How a node stands, what is asked for, how often, and which of its pods are taken to be gone."""
_MOST_STATES: Final = 32
"""So many states of a node are remembered at most."""


def book(trial: Trial) -> None:
    """Keep what all queues are guaranteed; those below others come first."""
    _book(trial, [name for name, queue in trial.queues.items() if queue.guarantee], {})


def renew(trial: Trial, queue: QueueName) -> None:
    """This queue uses more than before, and so do those above it: less is kept for them."""
    for name in trial.chain(queue):
        for claim in trial.claims.take(ClaimKind.GUARANTEE, _gang(name)):
            trial.unbook(claim)
    entries = ((name, trial.queues.get(name)) for name in trial.chain(queue))
    chain = [name for name, entry in entries if entry is not None and entry.guarantee]
    kept: Kept = {}
    for claim in trial.claims.of(ClaimKind.GUARANTEE):
        for kind, count in claim.kinds.items():
            _note(trial, kept, claim.queue, kind, count)
    _book(trial, chain, kept)


def _book(trial: Trial, names: Iterable[QueueName], kept: Kept) -> None:
    for name in sorted(names, key=lambda name: (-len(tuple(trial.chain(name))), name)):
        bookings: list[Booking] = []
        kinds: dict[str, int] = {}
        for idle in _idle(trial, trial.queues[name], kept):
            found = list(_places(trial, idle))
            bookings += found
            kinds[idle.kind] = len(found)
            _note(trial, kept, name, idle.kind, len(found))
        if bookings:
            trial.claims.add(
                Claim(
                    _gang(name),
                    ClaimKind.GUARANTEE,
                    {str(number): booking for number, booking in enumerate(bookings)},
                    trial.now,
                    lends_to_low=trial.policy.preemption,
                    queue=name,
                    kinds=kinds,
                )
            )


def _gang(queue: QueueName) -> str:
    """Under which name the claims know it: no gang is called so."""
    return f"queue {queue}"


def _note(trial: Trial, kept: Kept, queue: QueueName, kind: str, count: int) -> None:
    for name in trial.chain(queue):
        kept[name, kind] = kept.get((name, kind), 0) + count


# --- how many ------------------------------------------------------------------------------------


def _idle(trial: Trial, queue: Queue, kept: Kept) -> Iterator[Idle]:
    kinds = dict.fromkeys(kind_of(resource) for resource in sorted(queue.guarantee))
    for kind in kinds:
        if kind is not None:
            idle = _idle_of(trial, queue, kind, kept.get((queue.name, kind), 0))
            if idle is not None and idle.count > 0:
                yield idle


def _idle_of(trial: Trial, queue: Queue, kind: str, kept: int) -> Idle | None:
    """``kept``: places that are kept for queues below it already."""
    model, native = model_of(kind) or "", kind.startswith(NATIVE_PREFIX)
    cards = _cards(trial, model, native=native)
    if not len(cards):
        return None
    most, size_mib = len(cards), int(cards.max())
    left = _left(queue.guarantee, trial.use_of(queue.name), kind)
    memory_mib, cores = left.get(kind + MEMORY_TOTAL_SUFFIX), left.get(kind + CORES_TOTAL_SUFFIX)
    if memory_mib is None and cores is None:
        count = min(left.get(kind, 0) - kept, most)
        ask = CardAsk("kept", model, 1, size_mib, FULL_CORES_PERCENT, native=native, whole=True)
        return Idle(kind, count, ask)
    parts = max(-(-(memory_mib or 0) // size_mib), -(-(cores or 0) // FULL_CORES_PERCENT))
    count = min(left.get(kind, parts) - kept, most)
    if count <= 0 or (memory_mib is not None and memory_mib <= 0) or (cores is not None and cores <= 0):
        return None
    cores_each = min(FULL_CORES_PERCENT, (cores or 0) // (count + kept))
    by_cores = size_mib * cores_each // FULL_CORES_PERCENT
    each_mib = min(size_mib, memory_mib // (count + kept)) if memory_mib is not None else by_cores
    return Idle(kind, count, CardAsk("kept", model, 1, max(1, each_mib), cores_each))


def _left(guarantee: Mapping[str, int], use: Mapping[str, int], kind: str) -> dict[str, int]:
    """What is guaranteed of this kind of card and not used, by resource, as far as it is named."""
    named = (kind, kind + MEMORY_TOTAL_SUFFIX, kind + CORES_TOTAL_SUFFIX)
    return {
        resource: guarantee[resource] - use.get(resource, 0) for resource in named if resource in guarantee
    }


def _cards(trial: Trial, model: str, *, native: bool) -> Ints:
    """Memory of each usable card of the model, in MiB."""
    ledger = trial.ledger
    kind = ledger.kind_of(model, Mode.NATIVE if native else Mode.SHARED)
    found: Ints = ledger.physical_cap[(ledger.kind == kind) & ledger.usable]
    return found


# --- where ---------------------------------------------------------------------------------------


def _places(trial: Trial, idle: Idle) -> Iterator[Booking]:
    """Book so many places: free ones first, then such as low gangs have now. As few nodes as may be."""
    shape = PodShape(asks=(idle.ask,), tolerations=_tolerations(trial))
    # Nobody knows the class of what will come: it may take time from nobody.
    need = capacity.need_of(trial.ledger, shape, ShareClass.UNSET)
    rows = capacity.candidates(trial.ledger, need, trial.index.mask(shape))
    free = capacity.rooms(trial.ledger, need, rows)[0]
    order = np.lexsort((trial.index.ranks()[rows], -free))
    left = idle.count
    for row, room in zip(rows[order].tolist(), free[order].tolist(), strict=True):
        if left <= 0 or not room:
            break
        for booking in _fill(trial, need, row, min(left, room)):
            left -= 1
            yield booking
    with_cards = np.flatnonzero(trial.index.mask(shape) & trial.ledger.rows_with(need.asks[0].kind))
    for row in with_cards[np.argsort(trial.index.ranks()[with_cards])].tolist() if left > 0 else ():
        for booking in _below_low(trial, need, row, left, idle.kind):
            left -= 1
            yield booking
        if left <= 0:
            return


def _tolerations(trial: Trial) -> tuple[Toleration, ...]:
    """Nodes with cards mostly have a taint of their own, which their pods tolerate. A cordon is another."""
    keys = {taint.key for node in trial.index.nodes.values() if node.cards for taint in node.taints}
    return tuple(Toleration(key, "Exists") for key in sorted(keys - {_CORDON}))


def _fill(trial: Trial, need: Need, row: int, count: int, low: tuple[PodUid, ...] = ()) -> Sequence[Booking]:
    """Book so many places on this node, as if these low pods were gone; they are booked on top of those.

    Most nodes are as they were when the last decision looked at them.
    """
    ledger, choice = trial.ledger, card_choice(need, trial.policy)
    state: _State = (int(ledger.states[row]), need.shape.asks, count, choice, low)
    note = f"places on row {row}"
    known = trial.index.remembered.get(note)
    if not isinstance(known, dict) or len(known) >= _MOST_STATES:
        known = trial.index.remembered[note] = {}
    found: tuple[Booking, ...] | None = known.get(state) if choice.card_by_card else None
    if found is None:
        lifted = trial.lift(low)
        ratio = ledger.ratio_for(row, need.share_class)
        chosen = fill(Board(ledger, row, trial), need, count, choice)
        trial.put_back(lifted)
        found = tuple(Booking(row, (0, 0, 0, 0), seats_of(need, cards, ratio)) for cards in chosen)
        known[state] = found
    ledger.add_all(found)
    return found


def _below_low(trial: Trial, need: Need, row: int, count: int, kind: str) -> Sequence[Booking]:
    """Places on this node as if its low pods were gone; they are booked on top of those.

    Pods of queues that are guaranteed such cards themselves would not go.
    """
    name = trial.ledger.names[row]
    there = trial.index.pods_on.get(name, ()) if name is not None else ()
    low = tuple(uid for uid in there if _leaves(trial, uid, kind))
    return _fill(trial, need, row, count, low) if low else ()


def _leaves(trial: Trial, uid: PodUid, kind: str) -> bool:
    pod = trial.index.pods[uid]
    gang = trial.index.gangs.get(pod.gang) if pod.gang is not None else None
    if gang is None or not pod.shares or pod.bare or trial.index.class_of(pod) is not ShareClass.LOW:
        return False
    above = (trial.queues.get(name) for name in trial.chain(gang.queue))
    return not any(kind_of(resource) == kind for queue in above if queue for resource in queue.guarantee)
