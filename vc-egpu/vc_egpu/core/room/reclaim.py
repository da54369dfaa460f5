"""Reclaim: a queue that has less than it deserves takes back from queues that have more.

Judged for each kind of card by itself, in parts of cards, up the tree of queues: below the queue that both
gangs share. There, each queue of the gang that takes back has no more than it deserves, the gang included.
Each queue of the gang that goes has more than it deserves before that one goes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import Pod, QueueName, ShareClass
from vc_egpu.core.model.findings import Kept, NotReclaimed
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.resources import PARTS_PREFIX
from vc_egpu.core.queues import deserved
from vc_egpu.core.queues.deserved import Lines, parts_by_kind
from vc_egpu.core.room.departures import Departures, departures
from vc_egpu.core.room.hunt import Hunt, Quarry
from vc_egpu.core.trial.trial import Trial

_LINES: Final = "lines"
_MOST_ACCOUNTS: Final = 4
"""Queues of victims that a plan names with their numbers."""


def lines(trial: Trial) -> Lines:
    """What each queue deserves; counted once per decision."""
    _, known = trial.notes.get(_LINES, (0, None))
    if isinstance(known, Mapping):
        return known
    found = deserved.lines(trial, trial.index.card_mib)
    trial.notes[_LINES] = (0, found)
    return found


def hunts(trial: Trial, view: GangView, members: Sequence[Member]) -> Iterator[Hunt]:
    """Rounds for these members: among the nearest relatives first, and in each round low gangs first."""
    known = lines(trial)
    if not known or not (trial.policy.preemption and trial.policy.reclaim):
        return
    asks = asked(trial, members)
    if not asks:
        return
    kinds = tuple(sorted(asks))
    found: dict[QueueName, Quarry] = {}
    for own, above in _steps(trial, view.gang.queue):
        state = _within(trial, own, asks, known)
        if state is None:
            return
        if not state:
            continue
        more = _quarry(trial, own, above, kinds, known)
        if more.keys() - found.keys():
            found = {**more, **found}
            quarry = tuple(found[name] for name in sorted(found))
            for most in (ShareClass.LOW, ShareClass.UNSET):
                yield Hunt(Cause.RECLAIM, most, quarry, kinds)


def asked(trial: Trial, members: Sequence[Member]) -> dict[str, int]:
    """Parts of cards that these members ask for, by kind."""
    return parts_by_kind(trial.amounts_of(members))


def _steps(trial: Trial, queue: QueueName) -> Iterator[tuple[tuple[QueueName, ...], QueueName | None]]:
    """The queue and so many of those above it, with the next one above; the last step has none above."""
    chain = tuple(trial.chain(queue))
    for depth in range(1, len(chain) + 1):
        yield chain[:depth], chain[depth] if depth < len(chain) else None


def _within(trial: Trial, own: Sequence[QueueName], asks: Mapping[str, int], known: Lines) -> bool | None:
    """Whether these queues may take back. False: some kind has no line yet; None: a line is crossed."""
    missing = set(asks)
    for name in own:
        use = trial.use_of(name)
        for kind, amount in asks.items():
            line = known.get(name, {}).get(kind)
            if line is None:
                continue
            missing.discard(kind)
            if use.get(PARTS_PREFIX + kind, 0) + amount > line:
                return None
    return not missing


def _quarry(
    trial: Trial,
    own: Sequence[QueueName],
    above: QueueName | None,
    kinds: Sequence[str],
    known: Lines,
) -> dict[QueueName, Quarry]:
    """Queues below ``above``, not below the taker's own branch, that have more than they deserve."""
    gone = departures(trial)
    found: dict[QueueName, Quarry] = {}
    for name in trial.index.holders.queues():
        chain = tuple(trial.chain(name))
        if own[-1] in chain or name in own or (above is not None and above not in chain[1:]):
            continue
        path = chain if above is None else chain[: chain.index(above)]
        entries = [trial.queues.get(one) for one in path]
        if any(entry is not None and not entry.reclaimable for entry in entries):
            continue
        if any(is_above(trial, path, kind, known, gone) for kind in kinds):
            counted = tuple(one for one in path if any(kind in known.get(one, {}) for kind in kinds))
            found[name] = Quarry(name, counted)
    return found


def is_above(trial: Trial, path: Sequence[QueueName], kind: str, known: Lines, gone: Departures) -> bool:
    """Whether each queue of the path has more of the kind than it deserves, where it has a line at all."""
    ranks = [(name, known.get(name, {}).get(kind)) for name in path]
    judged = [(name, line) for name, line in ranks if line is not None] or [(path[0], 0)]
    return all(in_use(trial, name, kind, gone) > line for name, line in judged)


def in_use(trial: Trial, queue: QueueName, kind: str, gone: Departures) -> int:
    """Parts of cards that the queue has, less those that leave it anyway."""
    key = PARTS_PREFIX + kind
    return trial.use_of(queue).get(key, 0) - gone.of(queue).get(key, 0)


# --- victims -------------------------------------------------------------------------------------


def members(trial: Trial, view: GangView, hunt: Hunt) -> Sequence[Pod]:
    """The members that may go: of a gang that goes whole all or none, of replicas those on such cards."""
    higher = {pod.uid for pod in view.placed if pod.shares and trial.index.class_of(pod) > hunt.most}
    if higher and not view.gang.single:
        return ()
    pods = [pod for pod in view.placed if pod.uid not in higher]
    holds = {pod.uid for pod in pods if pod.shares and parts_of(trial, pod, hunt.kinds)}
    if not holds:
        return ()
    return tuple(pod for pod in pods if pod.uid in holds or not view.gang.single)


def parts_of(trial: Trial, pod: Pod, kinds: Sequence[str]) -> dict[str, int]:
    """Parts of cards of these kinds that the pod takes; those of which it takes none are left out."""
    amounts = trial.index.amounts_of(trial.index.shape_ids[pod.uid], pod.shape)
    found = ((kind, amounts.get(PARTS_PREFIX + kind, 0)) for kind in kinds)
    return {kind: amount for kind, amount in found if amount}


class Excess:
    """What queues have above what they deserve: which gangs may go together.

    A queue must be above its line before a gang is taken. So all gangs but the largest one must leave it
    there, for each gang in at least one kind of card that it holds.
    """

    def __init__(self, trial: Trial, hunt: Hunt) -> None:
        self._trial = trial
        self._kinds = hunt.kinds
        self._paths = {quarry.queue: quarry.lines for quarry in hunt.quarry or ()}
        self._known = lines(trial)
        self._gone = departures(trial)
        self._units: dict[str, dict[str, int]] = {}
        """By gang that goes, in whole or in part: its parts of cards."""
        self._taken: dict[tuple[QueueName, str], int] = {}
        self._largest: dict[tuple[QueueName, str], int] = {}

    def takes(self, pods: Sequence[Pod]) -> bool:
        """Whether these may go as well. If so they are taken."""
        units, taken, largest = dict(self._units), dict(self._taken), dict(self._largest)
        touched: set[QueueName] = set()
        for pod in pods:
            key = str(pod.gang)
            queue = self._queue_of(key)
            if queue not in self._paths:
                return False
            unit = units[key] = dict(units.get(key, {}))
            times = 0 if pod.uid in self._gone.pods else 1
            for kind, amount in parts_of(self._trial, pod, self._kinds).items():
                unit[kind] = unit.get(kind, 0) + times * amount
                for line in self._paths[queue]:
                    mark = (line, kind)
                    taken[mark] = taken.get(mark, 0) + times * amount
                    largest[mark] = max(largest.get(mark, 0), unit[kind])
            touched.update(self._paths[queue])
        if not all(
            self._may_go(key, unit, taken, largest)
            for key, unit in units.items()
            if not touched.isdisjoint(self._paths[self._queue_of(key)])
        ):
            return False
        self._units, self._taken, self._largest = units, taken, largest
        return True

    def _queue_of(self, gang: str) -> QueueName:
        found = self._trial.index.gangs.get(gang)
        return found.queue if found is not None else QueueName("")

    def _may_go(
        self,
        gang: str,
        unit: Mapping[str, int],
        taken: Mapping[tuple[QueueName, str], int],
        largest: Mapping[tuple[QueueName, str], int],
    ) -> bool:
        path = self._paths[self._queue_of(gang)]
        return any(all(self._is_above(line, kind, taken, largest) for line in path) for kind in unit)

    def _is_above(
        self,
        queue: QueueName,
        kind: str,
        taken: Mapping[tuple[QueueName, str], int],
        largest: Mapping[tuple[QueueName, str], int],
    ) -> bool:
        line = self._known.get(queue, {}).get(kind)
        if line is None:
            return True
        mark = (queue, kind)
        others = taken.get(mark, 0) - largest.get(mark, 0)
        return in_use(self._trial, queue, kind, self._gone) - others > line


# --- what is told --------------------------------------------------------------------------------


def why_not(trial: Trial, view: GangView, members: Sequence[Member]) -> NotReclaimed | None:
    """Why nothing is taken back for these members; None where their queue deserves nothing they ask for."""
    known = lines(trial)
    if not known or not (trial.policy.preemption and trial.policy.reclaim):
        return None
    asks = asked(trial, members)
    chain = tuple(trial.chain(view.gang.queue))
    named = [kind for kind in sorted(asks) if any(kind in known.get(name, {}) for name in chain)]
    if not named:
        return None
    if next(hunts(trial, view, members), None) is not None:
        return NotReclaimed(Kept.NOT_ENOUGH, named[0])
    for name in chain:
        for kind in named:
            line = known.get(name, {}).get(kind)
            has = trial.use_of(name).get(PARTS_PREFIX + kind, 0) + asks[kind]
            if line is not None and has > line:
                return NotReclaimed(Kept.BEYOND, kind, Account(name, kind, has, line))
    return NotReclaimed(Kept.NOBODY, named[0])


def accounts(
    trial: Trial, view: GangView, asks: Mapping[str, int], victims: Sequence[Pod]
) -> tuple[Account, ...]:
    """The taker's queue and those of its victims, with the kinds of cards that both have to do with."""
    known, gone = lines(trial), departures(trial)
    kinds = [kind for kind in sorted(asks) if any(parts_of(trial, pod, (kind,)) for pod in victims)]
    pods = {str(pod.gang): pod for pod in victims}
    queues = sorted({trial.index.gangs[key].queue for key in pods if key in trial.index.gangs})
    found: list[Account] = []
    for kind in kinds:
        own = _nearest(trial, view.gang.queue, kind, known)
        found.append(_account(own, kind, known, trial.use_of(own).get(PARTS_PREFIX + kind, 0)))
        for queue in queues[:_MOST_ACCOUNTS]:
            near = _nearest(trial, queue, kind, known)
            found.append(_account(near, kind, known, in_use(trial, near, kind, gone)))
    return tuple(dict.fromkeys(found))[: 1 + _MOST_ACCOUNTS]


def _nearest(trial: Trial, queue: QueueName, kind: str, known: Lines) -> QueueName:
    return next((name for name in trial.chain(queue) if kind in known.get(name, {})), queue)


def _account(queue: QueueName, kind: str, known: Lines, has: int) -> Account:
    return Account(queue, kind, has, known.get(queue, {}).get(kind, 0))
