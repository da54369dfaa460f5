"""The causes for which gangs go, as one table: which gangs may be taken, what that costs, how it is said.

A new cause gets its row here. The search for victims (:mod:`.preempt`) asks the row and knows no cause
by name.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vc_egpu.core.books.capacity import candidates
from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import Pod, ShareClass
from vc_egpu.core.model.findings import Limit
from vc_egpu.core.model.gangs import GangView, Member, shares_of
from vc_egpu.core.model.words import balance
from vc_egpu.core.queues import caps
from vc_egpu.core.room import guarantee, moves, reclaim
from vc_egpu.core.room.hunt import Hunt, Quarry
from vc_egpu.core.trial.trial import Trial

Price = tuple[int, int, float, tuple[str, ...]]
"""Cards that the victims hold, gangs touched, seconds of run time lost, and names to settle ties."""


@dataclass(frozen=True, slots=True)
class Taking:
    """How a decision makes room for one cause."""

    hunts: Callable[[Trial, GangView, Sequence[Member]], Iterable[Hunt]]
    """The rounds in which others are looked for, who go for these members of a gang; none: nobody goes."""
    members: Callable[[Trial, GangView, Hunt], Sequence[Pod]]
    """The placed members of such a gang that may go."""
    price: Callable[[Trial, Iterable[Pod]], Price]
    """The cost of these victims; smaller is better."""
    moves: bool = False
    """Those that go have other cards already. None is suspended, and only replicas go in part."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table."""

    event: str
    """The reason of the event on each pod that goes."""
    sentence: str
    """The text of that event, and of an order to suspend. ``{whom}`` is the gang that gets the room."""
    taking: Taking | None = None
    """None: no decision looks for victims for this cause."""

    def said(self, whom: str = "", accounts: Sequence[Account] = ()) -> str:
        """The sentence for one victim. ``accounts``: see :attr:`.plan.Admission.accounts`."""
        told = self.sentence.format(whom=whom)
        return f"{told}: {balance(accounts)}" if accounts else told


def hunts_for(trial: Trial, view: GangView, members: Sequence[Member]) -> Iterator[Hunt]:
    """The rounds in which others are looked for to make room for these members, one after the other."""
    if spares(trial, view):
        return
    unlimited = trial.policy.unnamed_model_unlimited
    ask = trial.amounts_of(members, view.gang.share_class)
    limits = tuple(caps.limits(trial, view.gang.queue, ask, unnamed_unlimited=unlimited))
    if limits:
        yield from _in_caps(trial, view, limits)
        return
    for taking in _TAKINGS.values():
        yield from taking.hunts(trial, view, members)


def spares(trial: Trial, view: GangView) -> bool:
    """Whether no gang goes for this one: it was refused where there was room, and it may be so again.

    Either a kubelet refused it lately. Or others went for it, and the scheduler refused it all the same. Then
    a node that was made since, and that takes its members, may be what the scheduler lacked.
    """
    if view.gang.takes_free_room:
        return any(True for taking in _TAKINGS.values() for _ in taking.hunts(trial, view, view.waiting))
    since = view.gang.spares_since
    if not since:
        return False
    newer = [trial.ledger.rows[name] for name, node in trial.index.nodes.items() if node.created > since]
    members = {member.shape_id: member for member in view.waiting if member.shape.asks}
    for member in members.values() if newer else ():
        need = trial.need(member, view.gang)
        open_to_it = candidates(trial.ledger, need, trial.mask(view.gang, member.shape))
        if not set(newer).isdisjoint(open_to_it.tolist()):
            return False
    return True


def taking(cause: Cause) -> Taking:
    """How room is made for this cause. Raises ``KeyError`` where no decision makes any."""
    return _TAKINGS[cause]


def price(trial: Trial, pods: Iterable[Pod]) -> Price:
    """The smallest harm: few cards, then few gangs, then little run time lost."""
    listed = list(pods)
    gangs = sorted({str(pod.gang) for pod in listed})
    lost = sum(max(0.0, trial.now - pod.started) for pod in listed if pod.started is not None)
    return (shares_of(listed), len(gangs), lost, tuple(gangs))


# --- priority ------------------------------------------------------------------------------------


def _may_preempt(trial: Trial, view: GangView) -> bool:
    return trial.policy.preemption and view.gang.share_class is ShareClass.HIGH


def _for_high(trial: Trial, view: GangView, _members: Sequence[Member]) -> Iterable[Hunt]:
    return (Hunt(Cause.PRIORITY),) if _may_preempt(trial, view) else ()


def _in_caps(trial: Trial, view: GangView, limits: Sequence[Limit]) -> Iterator[Hunt]:
    """Rounds for a gang whose caps are full: low gangs of its own queue, then of all queues below the
    highest full one. Where cards are short as well, any low gang may go in the last round.
    """
    if not _may_preempt(trial, view) or any(limit.never for limit in limits):
        return
    full = [trial.queues[limit.queue] for limit in limits]
    if not all(queue.preempts_within for queue in full):
        return
    own, top = view.gang.queue, full[-1].name
    found: tuple[Quarry, ...] = ()
    for above in dict.fromkeys((own, top)):
        holders = trial.index.holders.queues()
        quarry = tuple(Quarry(name, ()) for name in sorted(holders) if above in trial.chain(name))
        if quarry != found:
            found = quarry
            yield Hunt(Cause.PRIORITY, quarry=quarry, relieves=top)
    if found:
        yield Hunt(Cause.PRIORITY, relieves=top)


def _low_members(trial: Trial, view: GangView, hunt: Hunt) -> Sequence[Pod]:
    """The members that run as low. A gang that goes whole goes only if all of it is low.

    Each pod keeps the class with which it got its cards, whatever class its gang has now.
    """
    high = {pod.uid for pod in view.placed if pod.shares and trial.index.class_of(pod) > hunt.most}
    if high and not view.gang.single:
        return ()
    return tuple(pod for pod in view.placed if pod.uid not in high)


# --- the table -----------------------------------------------------------------------------------

_PREEMPTED: Final = "Preempted"
_REPLACED: Final = "Replaced"

RULES: Final[Mapping[Cause, Rule]] = {
    Cause.PRIORITY: Rule(
        _PREEMPTED,
        "makes room for {whom} of higher priority",
        Taking(_for_high, _low_members, price),
    ),
    Cause.GUARANTEE: Rule(
        _PREEMPTED,
        "makes room for {whom}, whose queue is guaranteed these cards",
        Taking(guarantee.hunts, reclaim.members, price),
    ),
    Cause.RECLAIM: Rule(
        _PREEMPTED,
        "makes room for {whom}, whose queue has less than it deserves",
        Taking(reclaim.hunts, reclaim.members, price),
    ),
    Cause.DEFRAGMENTATION: Rule(
        "Moved",
        "moves to other cards, so that {whom} fits",
        Taking(moves.hunts, moves.members, price, moves=True),
    ),
    Cause.HEALTH: Rule(_REPLACED, "a card of its gang is ill"),
    Cause.DRAIN: Rule("Drained", "an operator drains its node"),
    Cause.ROLLBACK: Rule(_REPLACED, "its gang could not be brought to its cards and is queued again"),
    Cause.NODE: Rule(_REPLACED, "its node or its cards are gone, so its gang is queued again"),
    Cause.BYPASS: Rule("NotAdmitted", "it was bound without a plan of the admission layer and is removed"),
    Cause.WISH: Rule("Paused", "a user asked for it"),
}

_TAKINGS: Final[Mapping[Cause, Taking]] = {
    cause: rule.taking for cause, rule in RULES.items() if rule.taking is not None
}
