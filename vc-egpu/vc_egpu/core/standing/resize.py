"""Shares of running pods that users wish to be of another size.

A wish is granted or refused at once, with the numbers: it does not wait, and no other pod goes for it. It is
judged after the gangs of the same decision had their turn, on the same books. What counts are the caps of the
queue and those above, limits of one share, the card's memory and cores, and the host's memory. Its pod keeps
its cards.

Until the pod's node has lowered what becomes less, the larger of both sizes counts.
"""

from collections.abc import Iterator
from dataclasses import replace

from vc_egpu.core.books import capacity
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import AskNeed
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.environments.backends import RESIZABLE
from vc_egpu.core.model.cluster import (
    FULL_CORES_PERCENT,
    CardAsk,
    Node,
    Pod,
    PodShape,
    Share,
    ShareClass,
    SuspensionState,
)
from vc_egpu.core.model.plan import Resize
from vc_egpu.core.queues import caps
from vc_egpu.core.standing import lending
from vc_egpu.core.trial import recheck
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial, share_of

Shares = tuple[tuple[str, Share], ...]


def judge(trial: Trial, record: Recorder) -> None:
    """Every wish, in the order of the pods' UIDs."""
    for uid in sorted(trial.index.notable.resizing):
        pod = trial.index.pods[uid]
        if pod.gang is None or pod.gang not in trial.index.gangs:
            record.resizes(Resize(pod.gang or "", uid, "its PodGroup is gone"))
            continue
        with lending.aside(trial, trial.index.view(pod.gang)):
            record.resizes(_judged(trial, pod))


def _judged(trial: Trial, pod: Pod) -> Resize:
    gang = pod.gang or ""
    why = _never(trial, pod) or _wrong(pod)
    if why:
        return Resize(gang, pod.uid, why)
    then = _shape(pod.shape, pod)
    meanwhile = _larger(pod.shape, then)
    why = _sizes(trial, pod, then) or _limits(trial, pod, then) or _caps(trial, pod, meanwhile)
    why = why or _cards(trial, pod, meanwhile)
    if why:
        return Resize(gang, pod.uid, why)
    return Resize(gang, pod.uid, "", _shares(trial, pod, meanwhile), _shares(trial, pod, then))


# --- what no numbers help against ----------------------------------------------------------------


def _never(trial: Trial, pod: Pod) -> str:
    """What keeps the pod from being resized at all."""
    node = trial.index.nodes.get(pod.node) if pod.node is not None else None
    if not pod.shares:
        return "it has no cards"
    if node is None or not node.is_up:
        return f"its node {pod.node} does not answer"
    if pod.started is None:
        return "it has not started yet"
    return _leaves(trial, pod) or next(filter(None, (_fixed(node, share) for _, share in pod.shares)), "")


def _leaves(trial: Trial, pod: Pod) -> str:
    """Whether it is not on its cards, or will not be for long."""
    gang = trial.index.gangs.get(pod.gang or "")
    if pod.suspend_ordered or pod.pause_wished or pod.suspension is not SuspensionState.RUNNING:
        return "it is suspended, or on its way from or to its cards: resume it first"
    if pod.uid in trial.leaving or pod.uid in trial.suspending:
        return "it is about to leave its cards for others"
    if gang is not None and gang.move is not None and gang.move.places:
        return "its gang is about to move to other cards"
    return ""


def _fixed(node: Node, share: Share) -> str:
    """Why this share can have no other size."""
    if share.native:
        return "it has whole native cards, which have no size to change"
    if share.slice:
        return f"it has a slice of fixed size ({share.slice}): only shares of any size can be resized"
    if share.swap:
        return "it has its card in turns with others, and in its turn all of it"
    card = next((card for card in node.cards if card.uuid == share.card), None)
    if card is None:
        return f"its node does not report card {share.card} now"
    if card.isolation not in RESIZABLE:
        return (
            f"card {share.card} keeps containers apart by {card.isolation!r}: only limits of the library and "
            "the driver change while a program runs"
        )
    return ""


def _wrong(pod: Pod) -> str:
    """What is wrong with the wish itself."""
    asks = {ask.container: ask for ask in pod.shape.asks}
    same = True
    for name, memory_mib, cores in pod.resize:
        ask = asks.get(name)
        if ask is None:
            known = ", ".join(sorted(asks)) or "none"
            return f"container {name} has no share; those that have one: {known}"
        if (memory_mib is not None and memory_mib < 1) or not 0 <= (cores or 0) <= FULL_CORES_PERCENT:
            return f"container {name}: {memory_mib} MiB and {cores} cores is no size of a share"
        same = same and memory_mib in (None, ask.memory_mib) and cores in (None, ask.cores_percent)
    return "it has that size already" if same else ""


# --- sizes ---------------------------------------------------------------------------------------


def _shape(shape: PodShape, pod: Pod) -> PodShape:
    """The pod as it is wished."""
    wished = {name: (memory_mib, cores) for name, memory_mib, cores in pod.resize}
    return replace(
        shape, asks=tuple(_ask(ask, *wished.get(ask.container, (None, None))) for ask in shape.asks)
    )


def _ask(ask: CardAsk, memory_mib: int | None, cores: int | None) -> CardAsk:
    memory_mib = ask.memory_mib if memory_mib is None else memory_mib
    cores = ask.cores_percent if cores is None else cores
    if (memory_mib, cores) == (ask.memory_mib, ask.cores_percent):
        return ask
    return replace(ask, memory_mib=memory_mib, cores_percent=cores, whole=False)


def _larger(one: PodShape, other: PodShape) -> PodShape:
    """The larger one of memory and of cores, ask by ask. A whole card stays one until it is a part."""
    return replace(
        one,
        asks=tuple(
            replace(
                a,
                memory_mib=max(a.memory_mib, b.memory_mib),
                cores_percent=max(a.cores_percent, b.cores_percent),
            )
            for a, b in zip(one.asks, other.asks, strict=True)
        ),
    )


def _shares(trial: Trial, pod: Pod, shape: PodShape) -> Shares:
    """What the pod's containers hold on their cards at this size."""
    if pod.node is None:
        return ()
    share_class, row = trial.index.class_of(pod), trial.ledger.rows[pod.node]
    need = capacity.need_of(trial.ledger, shape, share_class)
    ratio = trial.ledger.ratio_for(row, share_class)
    asks = {ask.ask.container: ask.here(ratio) for ask in need.asks}
    return tuple((name, _share(asks[name], share)) for name, share in pod.shares)


def _share(ask: AskNeed, before: Share) -> Share:
    """The share as it is asked for now. The part of it on the card never shrinks while it grows."""
    if ask.memory_mib == before.memory_mib:
        return replace(before, cores_percent=ask.cores_percent, whole=ask.ask.whole)
    after = share_of(ask, before.card, before.start)
    if after.memory_mib > before.memory_mib and after.on_card_mib < before.on_card_mib:
        after = replace(after, physical_mib=before.on_card_mib)
    return after


# --- numbers -------------------------------------------------------------------------------------


def _grown(pod: Pod, shape: PodShape) -> Iterator[tuple[CardAsk, CardAsk]]:
    """(before, after) of the asks that want more of anything."""
    for before, after in zip(pod.shape.asks, shape.asks, strict=True):
        if after.memory_mib > before.memory_mib or after.cores_percent > before.cores_percent:
            yield before, after


def _sizes(trial: Trial, pod: Pod, shape: PodShape) -> str:
    """Whether a card has so much at all, and a container so much memory of its own."""
    card_mib = trial.index.card_mib
    for _, after in _grown(pod, shape):
        most = card_mib.get(after.model, after.memory_mib)
        if after.memory_mib > most:
            return f"{after.memory_mib} MiB are asked for, and a card of model {after.model} has {most} MiB"
    spilled = sum(share.memory_mib - share.on_card_mib for _, share in _shares(trial, pod, shape))
    for ask in shape.asks:
        if ask.spill and ask.host_limit_mib is not None and spilled > ask.host_limit_mib:
            return (
                f"{spilled} MiB of it may spill to the host, and container {ask.container} has a memory "
                f"limit of {ask.host_limit_mib} MiB"
            )
    return ""


def _limits(trial: Trial, pod: Pod, shape: PodShape) -> str:
    """What one share of the queue, or of one above it, may have."""
    charge = trial.charge_of(pod.uid)
    for before, after in _grown(pod, shape):
        if after.memory_mib <= before.memory_mib or charge is None:
            continue
        for name in trial.chain(charge[0]):
            queue = trial.queues.get(name)
            if queue is not None and queue.most_mib is not None and after.memory_mib > queue.most_mib:
                return (
                    f"queue {name} allows {queue.most_mib} MiB for one share, {after.memory_mib} MiB are "
                    "asked for"
                )
    return ""


def _caps(trial: Trial, pod: Pod, shape: PodShape) -> str:
    """Whether the queue and those above it allow what is more than now."""
    charge = trial.charge_of(pod.uid)
    more = _more(trial, pod, shape)
    if charge is None or not more:
        return ""
    queue = trial.queues.get(charge[0])
    if queue is not None and not queue.open:
        return f"queue {queue.name} is closed: nothing in it grows"
    unlimited = trial.policy.unnamed_model_unlimited
    limit = caps.check(trial, charge[0], more, unnamed_unlimited=unlimited)
    if limit is None:
        return ""
    return (
        f"queue {limit.queue} allows {limit.cap} of {limit.resource}, {limit.used} are used, and "
        f"{limit.asked} more are asked for"
    )


def _more(trial: Trial, pod: Pod, shape: PodShape) -> dict[str, int]:
    """What the pod counts in its queue at this size beyond what it counts now."""
    index, low = trial.index, trial.index.class_of(pod) is ShareClass.LOW
    now = index.amounts_of(index.shape_ids[pod.uid], pod.shape, low=low)
    then = index.amounts_of(index.intern(shape), shape, low=low)
    return {name: amount - now.get(name, 0) for name, amount in then.items() if amount > now.get(name, 0)}


def _cards(trial: Trial, pod: Pod, shape: PodShape) -> str:
    """Book the pod at this size, where its cards and its host have room; else why they have not."""
    before = trial.booked(pod.uid)
    if not any(_grown(pod, shape)) or pod.node is None:
        return ""
    shares, share_class = _shares(trial, pod, shape), trial.index.class_of(pod)
    several = trial.index.is_of_several(pod)
    after = trial.ledger.booking(
        pod.node, shape, (share for _, share in shares), share_class, several=several
    )
    if before is None or after is None:
        return f"its node {pod.node} is not known"
    trial.rebook(pod.uid, after)
    why = _full(trial, pod, shares, after)
    if why:
        trial.rebook(pod.uid, before)
        return why
    charge = trial.charge_of(pod.uid)
    if charge is not None:
        trial.charge(charge[0], _more(trial, pod, shape))
    return ""


def _full(trial: Trial, pod: Pod, shares: Shares, booking: Booking) -> str:
    """Why the cards of this booking, which is in the ledger, do not have so much; empty: they have."""
    ledger, row = trial.ledger, booking.row
    before = {(name, share.card): share for name, share in pod.shares}
    for name, share in shares:
        old, col = before[name, share.card], ledger.columns[row][share.card]
        where = f"card {share.card} of node {pod.node}"
        for more, used, cap, what in (
            (share.memory_mib - old.memory_mib, *_at(ledger.memory_used, ledger.memory_cap, row, col), "MiB"),
            (share.on_card_mib - old.on_card_mib, *_at(ledger.physical_used, ledger.physical_cap, row, col),
             "MiB of its own"),
            *((share.cores_percent - old.cores_percent, *both, "cores")
              for both in _cores(trial, booking, col)),
        ):  # fmt: skip
            if more > 0 and not ledger.usable[row, col]:
                return f"{where} takes nothing new now"
            if more > 0 and used > cap:
                left = max(0, more - (used - cap))
                return f"{where} has {left} {what} left, and {more} more are asked for"
    if not recheck.host_holds(trial, booking):
        lack = int(ledger.host_used[row]) - int(ledger.host_cap[row])
        return f"node {pod.node} lacks {lack} MiB of host memory for what may spill"
    return (
        "" if recheck.cards_hold(trial, booking) else "its cards hold more than they may: nothing grows there"
    )


def _at(used: Ints, cap: Ints, row: int, col: int) -> tuple[int, int]:
    return int(used[row, col]), int(cap[row, col])


def _cores(trial: Trial, booking: Booking, col: int) -> Iterator[tuple[int, int]]:
    """(sum, bound) of each sum of cores in which this booking counts on the card."""
    ledger, row = trial.ledger, booking.row
    if any(seat.high for seat in booking.seats):
        yield int(ledger.high_cores[row, col]), int(ledger.high_cap[row])
    if any(seat.low for seat in booking.seats):
        yield int(ledger.low_cores[row, col]), int(ledger.low_cap[row])
    if ledger.flat[row, col]:
        yield int(ledger.all_cores[row, col]), FULL_CORES_PERCENT
