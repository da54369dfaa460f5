"""Reclaim: a queue that has less than it deserves takes back from queues that have more.

Judged for each kind of card by itself, in parts of cards, up the tree of queues: below the queue that both
gangs share. There, each queue of the gang that takes back has no more than it deserves, the gang included.
Each queue of the gang that goes has more than it deserves before that one goes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import Pod, QueueName, ShareClass
from vc_egpu.core.model.findings import Kept, NotReclaimed
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.resources import PARTS_PREFIX
from vc_egpu.core.queues.deserved import Lines, parts_by_kind
from vc_egpu.core.room.departures import Departures, departures, moment
from vc_egpu.core.room.hunt import Hunt, Quarry
from vc_egpu.core.room.lines import lines
from vc_egpu.core.trial.trial import Trial

_HOLDERS: Final = "holders"
_QUARRY: Final = "quarry"
_TAKEN: Final = "kinds that shapes take"
_MOST_ACCOUNTS: Final = 4
"""Queues of victims that a plan names with their numbers."""


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
        more = _quarry(trial, own, above, kinds)
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


@dataclass(frozen=True, slots=True)
class _Holder:
    """A queue that has cards of some kinds, seen from the queue upwards."""

    chain: tuple[QueueName, ...]
    gives: Mapping[str, int]
    """By kind, how many queues of the chain give, from the first one on: reclaimable, and above their lines.
    Kinds of which it gives none are left out."""
    lines: tuple[int, ...]
    """Which of the chain have a line for one of the kinds."""


def _quarry(
    trial: Trial, own: tuple[QueueName, ...], above: QueueName | None, kinds: tuple[str, ...]
) -> dict[QueueName, Quarry]:
    """Queues below ``above``, not below the taker's own branch, that have more than they deserve.

    Found once for all gangs of a queue, and again when a queue's use changed. Not to be written to.
    """
    note, now = (_QUARRY, own, above, kinds), trial.charges + moment(trial)
    then, known = trial.notes.get(note, (-1, None))
    if then == now and isinstance(known, dict):
        return known
    found: dict[QueueName, Quarry] = {}
    for holder in _holders(trial, kinds):
        chain = holder.chain
        length = len(chain) if above is None else chain.index(above) if above in chain else 0
        able = tuple(kind for kind, gives in holder.gives.items() if 0 < length <= gives)
        if not able or own[-1] in chain or chain[0] in own:
            continue
        counted = tuple(chain[at] for at in holder.lines if at < length)
        found[chain[0]] = Quarry(chain[0], counted, able)
    trial.notes[note] = (now, found)
    return found


def _holders(trial: Trial, kinds: tuple[str, ...]) -> list[_Holder]:
    """All queues that could give back some of these kinds. Counted again when a queue's use changed."""
    note, now = (_HOLDERS, kinds), trial.charges + moment(trial)
    then, found = trial.notes.get(note, (-1, None))
    if then == now and isinstance(found, list):
        return found
    known, gone = lines(trial), departures(trial)
    rows: list[_Holder] = []
    for name in trial.index.holders.queues():
        chain = tuple(trial.chain(name))
        reclaimable = 0
        for one in chain:
            entry = trial.queues.get(one)
            if entry is not None and not entry.reclaimable:
                break
            reclaimable += 1
        gives = {
            kind: length
            for kind in kinds
            for length in range(1, reclaimable + 1)
            if is_above(trial, chain[:length], kind, known, gone)
        }
        lined = (at for at, one in enumerate(chain) if any(kind in known.get(one, {}) for kind in kinds))
        if gives:
            rows.append(_Holder(chain, gives, tuple(lined)))
    trial.notes[note] = (now, rows)
    return rows


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
    single, class_of, most = view.gang.single, trial.index.class_of, hunt.most
    above = _above(hunt, view.gang.queue)
    going: list[Pod] = []
    any_holds = False
    for pod in view.placed:
        if pod.shares and class_of(pod) > most:
            if not single:
                return ()
            continue
        kinds = _kinds_of(trial, pod, hunt.kinds) if pod.shares else ()
        if kinds and all(kind in above for kind in kinds):
            any_holds = True
        elif single:
            continue
        elif kinds:
            return ()  # its queue has no more than it deserves of another model that is asked for
        going.append(pod)
    return tuple(going) if any_holds else ()


def _above(hunt: Hunt, queue: QueueName) -> Sequence[str]:
    """The kinds of which this queue has more than it deserves."""
    return next((quarry.kinds for quarry in hunt.quarry or () if quarry.queue == queue), ())


def _kinds_of(trial: Trial, pod: Pod, kinds: tuple[str, ...]) -> Sequence[str]:
    """Those of these kinds of cards that the pod takes; equal shapes once."""
    note = (_TAKEN, kinds, trial.index.shape_ids[pod.uid])
    _, known = trial.notes.get(note, (0, None))
    if isinstance(known, tuple):
        return known
    found = tuple(parts_of(trial, pod, kinds))
    trial.notes[note] = (0, found)
    return found


def parts_of(trial: Trial, pod: Pod, kinds: Sequence[str]) -> dict[str, int]:
    """Parts of cards of these kinds that the pod takes; those of which it takes none are left out."""
    amounts = trial.index.amounts_of(trial.index.shape_ids[pod.uid], pod.shape)
    found = ((kind, amounts.get(PARTS_PREFIX + kind, 0)) for kind in kinds)
    return {kind: amount for kind, amount in found if amount}


Line = tuple[QueueName, str]
"""A queue that has a line for a kind of card."""
_MOST_UNITS: Final = 12
"""So many gangs with cards of several kinds are put into an order."""


class Excess:
    """What queues have above what they deserve: which gangs may go together.

    A queue must be above its line before a gang is taken, in each kind of card that the gang gives. So there
    must be an order of the gangs in which each of them leaves the queues of the next ones above.
    """

    def __init__(self, trial: Trial, hunt: Hunt) -> None:
        self._trial = trial
        self._kinds = hunt.kinds
        self._paths = {quarry.queue: quarry.lines for quarry in hunt.quarry or ()}
        self._known = lines(trial)
        self._gone = departures(trial)
        self._units: dict[str, dict[Line, int]] = {}
        """By gang that goes, in whole or in part: its parts of cards, for each line above it."""
        self._taken: dict[Line, int] = {}
        self._largest: dict[Line, int] = {}

    def takes(self, pods: Sequence[Pod]) -> bool:
        """Whether these may go as well. If so they are taken."""
        units, taken, largest = dict(self._units), dict(self._taken), dict(self._largest)
        touched: set[Line] = set()
        for pod in pods:
            key = str(pod.gang)
            queue = self._queue_of(key)
            if queue not in self._paths:
                return False
            unit = units[key] = dict(units.get(key, {}))
            times = 0 if pod.uid in self._gone.pods else 1
            for kind, amount in parts_of(self._trial, pod, self._kinds).items():
                for name in self._paths[queue]:
                    line = (name, kind)
                    if kind in self._known.get(name, {}):
                        unit[line] = unit.get(line, 0) + times * amount
                        taken[line] = taken.get(line, 0) + times * amount
                        largest[line] = max(largest.get(line, 0), unit[line])
                        touched.add(line)
        # With one kind the largest gang of each line may be the last; the order by size does for all lines.
        if not all(self._is_above(line, taken[line] - largest[line]) for line in touched):
            return False
        if len(self._kinds) > 1 and not self._have_an_order(units.values(), taken):
            return False
        self._units, self._taken, self._largest = units, taken, largest
        return True

    def _queue_of(self, gang: str) -> QueueName:
        found = self._trial.index.gangs.get(gang)
        return found.queue if found is not None else QueueName("")

    def _is_above(self, line: Line, taken: int) -> bool:
        """Whether the queue has more than it deserves once so much is taken."""
        queue, kind = line
        return in_use(self._trial, queue, kind, self._gone) - taken > self._known[queue][kind]

    def _have_an_order(self, units: Iterable[Mapping[Line, int]], taken: Mapping[Line, int]) -> bool:
        """Whether each may be the last of those left, from the last one on. Too many: each of all of them."""
        left, sums = list(units), dict(taken)

        def may_be_last(unit: Mapping[Line, int]) -> bool:
            return all(self._is_above(line, sums[line] - amount) for line, amount in unit.items())

        if len(left) > _MOST_UNITS:
            return all(may_be_last(unit) for unit in left)
        while left:
            last = next((unit for unit in left if may_be_last(unit)), None)
            if last is None:
                return False
            left.remove(last)
            for line, amount in last.items():
                sums[line] -= amount
        return True


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
