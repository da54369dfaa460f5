"""One gang's attempt to get cards: caps, place, make room, hold, record.

:func:`begin` begins it and :func:`vc_egpu.core.decide.decide` calls its steps in their order. A step does
nothing where an earlier one has settled the outcome already.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Final

from vc_egpu.core.model.cluster import MemberPlacement, ShareClass
from vc_egpu.core.model.findings import Finding, Limit, NoEnvironment, OverCap, Shortage
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.plan import Admission
from vc_egpu.core.moving import underway
from vc_egpu.core.placing.place import place, place_some, room_for
from vc_egpu.core.placing.policies import follows
from vc_egpu.core.queues import caps
from vc_egpu.core.room import preempt, reclaim
from vc_egpu.core.room.preempt import Patience, Room
from vc_egpu.core.room.relief import quota_of
from vc_egpu.core.room.victims import prey
from vc_egpu.core.standing import plans_in_force, replacements
from vc_egpu.core.trial.claims import Claim
from vc_egpu.core.trial.profiles import profile_of
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Seated, Trial
from vc_egpu.core.waiting import diagnosis, ready, say
from vc_egpu.core.waiting.shortage import said_to, shortage

_MAX_CORES: Final = 24
"""How many ways to choose a gang's core are tried, where it has more members than it needs."""
_MAX_PREEMPTING: Final = 8


def begin(trial: Trial, record: Recorder, view: GangView, own: list[Claim]) -> "Attempt":
    """Begin a gang's turn. ``own``: the claims for its replacements, which are free meanwhile."""
    trial.effort.begin_turn()
    cores = list(islice(ready.cores(view), _MAX_CORES))
    if not cores[0]:
        return _Surplus(trial, record, view, own)
    return _Minimum(trial, record, view, own, cores)


class Attempt:
    """The steps that all attempts have."""

    def __init__(self, trial: Trial, record: Recorder, view: GangView, own: list[Claim]) -> None:
        self._trial = trial
        self._record = record
        self._view = view
        self._own = own
        self._seated: tuple[Seated, ...] = ()
        self._left = 0
        """How many members above the minimum still wait."""
        self._room: Room | Patience | None = None

    @property
    def is_seated(self) -> bool:
        """Whether members have their place, without that any other goes for them."""
        return bool(self._seated)

    @property
    def is_allowed(self) -> bool:
        """Whether the caps allow what it needs."""
        raise NotImplementedError

    @property
    def room(self) -> Room | Patience | None:
        """What making room has found."""
        return self._room

    def check_caps(self) -> None:
        """Step 2: which members the caps of the queue allow."""
        raise NotImplementedError

    def place(self) -> None:
        """Step 3: book those that fit; all that the minimum lacks at once, then the surplus singly."""
        raise NotImplementedError

    def make_room(self) -> None:
        """Step 4: where no member was placed, find who may go for them."""
        raise NotImplementedError

    def hold(self) -> None:
        """Step 5: what is placed or freed stays booked for the gang, and its victims go for no other gang."""
        trial, room = self._trial, self._room
        if isinstance(room, Room):
            trial.effort.made_room(sum(len(found.pods) for found in prey(trial, room.hunt).listed))
            trial.charge(
                self._view.gang.queue,
                trial.amounts_of((entry.member for entry in room.seated), self._view.gang.share_class),
            )
            for eviction in room.evictions:
                trial.leaving.update(dict.fromkeys(sorted(eviction.pods)))
            for suspension in room.suspensions:
                trial.told_to_leave(sorted(suspension.pods))
            going = [uid for entry in room.evictions for uid in sorted(entry.pods)]
            going += [uid for entry in room.suspensions for uid in sorted(entry.pods)]
            trial.forgo(quota_of(trial, going, room.hunt.relieves))
            self._seated = trial.to_come(room.seated)
        replacements.hand_over(self._own, self._seated)

    def say(self) -> None:
        """Step 6: the verdict, and the admission that goes with it."""
        key, room = self._view.gang.key, self._room
        rule = self._rule(room.seated if isinstance(room, Room) else self._seated)
        if isinstance(room, Room):
            going = room.evictions, room.suspensions, room.accounts
            verdict = plans_in_force.makes_room(self._trial, *going)
            admission = Admission(key, self._placements(), *going, relieves=room.hunt.relieves, rule=rule)
            self._record.admits(admission, verdict)
        elif self._seated:
            found = diagnosis.placed(self._view, len(self._seated), self._left, rule)
            self._record.admits(Admission(key, self._placements(), rule=rule), say.verdict(found))
        else:
            self._say_why(room)

    def _rule(self, seated: Iterable[Seated]) -> str:
        """The rule of placement that had a say in these places; empty: none had."""
        profile = profile_of(self._trial, self._view)
        return profile.rule if any(follows(entry.need, profile) for entry in seated) else ""

    def _say_why(self, patience: Patience | None) -> None:
        raise NotImplementedError

    def _placements(self) -> dict[str, MemberPlacement]:
        pinned = self._view.gang.is_bound
        return {entry.member.key: self._trial.placement(entry, pinned=pinned) for entry in self._seated}


class _Minimum(Attempt):
    """What the gang's minimum lacks, all at once: any of several sets of members. Then the surplus."""

    def __init__(
        self,
        trial: Trial,
        record: Recorder,
        view: GangView,
        own: list[Claim],
        cores: Sequence[tuple[Member, ...]],
    ) -> None:
        super().__init__(trial, record, view, own)
        self._cores = cores
        self._found: dict[int, Finding | None] = {}
        """By set, why it is not allowed; only of those that were asked for."""
        self._forbidden: Finding | None = None
        """Why the first set is not allowed, where none is."""
        self._waiting = Counter(member.shape_id for member in view.waiting)
        """By shape, how many wait."""
        self._places: dict[int, int] = {}
        """By shape: for how many of its members there are places by themselves, up to all that wait."""

    def check_caps(self) -> None:
        self._forbidden = None if any(self._allowed()) else self._forbids(0)

    @property
    def is_allowed(self) -> bool:
        return self._forbidden is None

    def _allowed(self) -> Iterator[tuple[Member, ...]]:
        """The sets that are allowed, the first ones first."""
        return (core for number, core in enumerate(self._cores) if self._forbids(number) is None)

    def _forbids(self, number: int) -> Finding | None:
        """Why this set is not allowed now; None where it is."""
        if number not in self._found:
            core = self._cores[number]
            limit = _cap(self._trial, self._view, core)
            over = diagnosis.over_cap(limit, core) if limit is not None else None
            self._found[number] = over or diagnosis.no_nodes(self._trial, core)
        return self._found[number]

    def place(self) -> None:
        if self._forbidden is not None:
            return
        trial, alike = self._trial, self._record.placeless(self._trial, self._view)
        if alike is not None and alike.is_known:
            return
        tried = False
        for view, number in product(_views(self._view), range(len(self._cores))):
            if tried and trial.effort.spent:
                return
            if view is not self._view:
                self._view = view
                self._places.clear()  # they were those of the other way to pack it
            core = self._cores[number]
            if self._lacking(core) is not None or self._forbids(number) is not None:
                continue
            tried = True
            kept = underway.seat(trial, view, core)
            if len(kept) < len(core):
                trial.unseat(kept)
            seated = kept if len(kept) == len(core) else place(trial, view, core)
            if seated is not None:
                trial.charge(
                    view.gang.queue,
                    trial.amounts_of((entry.member for entry in seated), view.gang.share_class),
                )
                trial.remember(view, seated)
                self._seated, self._left = _with_surplus(trial, view, seated)
                return
        if alike is not None and all(self._forbids(number) is None for number in range(len(self._cores))):
            alike.note()

    def _lacking(self, core: tuple[Member, ...]) -> Member | None:
        """A member of whose shape there are too few places whatever the others take: no order is tried.

        Placing members of one shape tells the same. Each of several shapes is looked at once for all sets.
        """
        wanted = Counter(member.shape_id for member in core)
        if len(wanted) == 1:
            return None
        for member in {member.shape_id: member for member in core}.values():
            found = self._places.get(member.shape_id)
            if found is None:
                waiting = self._waiting[member.shape_id]
                found = self._places[member.shape_id] = room_for(self._trial, self._view, member, waiting)
            if found < wanted[member.shape_id]:
                return member
        return None

    def make_room(self) -> None:
        if self._seated:
            return
        allowed = self._allowed() if self._forbidden is None else self._over_a_full_cap()
        self._room = _make_room(self._trial, self._view, allowed)

    def _over_a_full_cap(self) -> Iterator[tuple[Member, ...]]:
        """The sets that only the present use of queues forbids."""
        for number, core in enumerate(self._cores):
            found = self._forbids(number)
            if isinstance(found, OverCap) and not found.limit.never:
                yield core

    def _say_why(self, patience: Patience | None) -> None:
        trial, view = self._trial, self._view
        found: Finding
        if patience is not None:
            core = next(self._allowed(), self._cores[0])
            found = diagnosis.room_soon(view, core, patience.pods)
        elif self._forbidden is not None:
            found = self._forbidden
        else:
            core = next(self._allowed())
            found = self._short(core)
        verdict = say.verdict(found)
        own_words = isinstance(found, NoEnvironment) or (isinstance(found, Shortage) and bool(found.shut))
        self._record.refuse_alike(
            trial, view, verdict, by_cap=self._forbidden is not None, own_words=own_words
        )
        self._record.waits(view, verdict)

    def _short(self, core: tuple[Member, ...]) -> Finding:
        """What is short; the same for all gangs that ask for the same, but for what their queues may take."""
        trial, view = self._trial, self._view
        alike = self._record.placeless(trial, view)
        known = alike.shortage if alike is not None else None
        if known is not None and known.shut:
            known = said_to(trial, view, core, known)
        if known is not None and view.gang.share_class is not ShareClass.HIGH and trial.effort.room > 0:
            kept = reclaim.why_not(trial, view, core)
            return replace(known, queue=view.gang.queue, not_reclaimed=kept)
        found = _no_room(trial, view, core, self._lacking(core))
        if alike is not None and alike.is_known and not found.brief:
            alike.note(found)
        return found


class _Surplus(Attempt):
    """Members above the minimum, each by itself: as many as caps and room allow."""

    def __init__(self, trial: Trial, record: Recorder, view: GangView, own: list[Claim]) -> None:
        super().__init__(trial, record, view, own)
        self._waiting: Sequence[Member] = view.waiting
        self._allowed: list[Member] = []
        self._limit: Limit | None = None

    @property
    def is_allowed(self) -> bool:
        return bool(self._allowed)

    def check_caps(self) -> None:
        self._allowed, self._limit = _within_cap(self._trial, self._view, self._waiting)

    def place(self) -> None:
        *_, self._view = views = _views(self._view)
        for number, view in enumerate(views):
            if number:  # none was placed, so none is charged any more
                charged = self._trial.amounts_of(self._allowed, view.gang.share_class)
                self._trial.charge(view.gang.queue, charged)
            self._seated = _seat_surplus(self._trial, view, self._waiting, self._allowed, self._limit)
            if self._seated:
                break
        self._left = len(self._waiting) - len(self._seated)

    def make_room(self) -> None:
        if self._seated:
            return
        if self._allowed:
            self._room = _make_room_for_some(self._trial, self._view, self._waiting, self._allowed)
        elif self._limit is not None and not self._limit.never and self._trial.effort.room > 0:
            self._room = preempt.make_room_for_some(self._trial, self._view, self._waiting)

    def _say_why(self, patience: Patience | None) -> None:
        trial, view, first = self._trial, self._view, self._waiting[:1]
        found: Finding
        if patience is not None:
            found = diagnosis.room_soon(view, first, patience.pods)
        elif self._limit is not None and not self._allowed:
            found = diagnosis.over_cap(self._limit, first)
        else:
            one = tuple(self._allowed[:1])
            found = diagnosis.no_nodes(trial, one) or _no_room(trial, view, one)
        found = diagnosis.above_minimum(view, len(self._waiting), found)
        self._record.waits(view, say.verdict(found))


# --- caps ----------------------------------------------------------------------------------------


def _charge(trial: Trial, view: GangView, members: Iterable[Member], sign: int = 1) -> None:
    """Count these members of the gang in its queue, or no longer."""
    trial.charge(view.gang.queue, trial.amounts_of(members, view.gang.share_class), sign)


def _cap(trial: Trial, view: GangView, members: tuple[Member, ...]) -> Limit | None:
    ask = trial.amounts_of(members, view.gang.share_class)
    return caps.check(trial, view.gang.queue, ask, unnamed_unlimited=trial.policy.unnamed_model_unlimited)


def _within_cap(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[list[Member], Limit | None]:
    """The members that the caps allow one after the other, charged; and the first cap that forbade one."""
    allowed: list[Member] = []
    first: Limit | None = None
    refused: set[int] = set()
    for member in members:
        if member.shape_id in refused:
            continue
        limit = _cap(trial, view, (member,))
        if limit is None:
            _charge(trial, view, (member,))
            allowed.append(member)
        else:
            refused.add(member.shape_id)
            first = first or limit
    return allowed, first


# --- place ---------------------------------------------------------------------------------------


def _views(view: GangView) -> tuple[GangView, ...]:
    """The gang, and the same without its blocked nodes left out, where fewer of it go to one node now.

    The scheduler may have refused the node, or so many members on it. With few nodes, both would leave none.
    """
    if not (view.gang.most_per_node and view.gang.blocked_nodes):
        return (view,)
    return view, replace(view, gang=replace(view.gang, blocked_nodes=frozenset()))


def _with_surplus(trial: Trial, view: GangView, core: tuple[Seated, ...]) -> tuple[tuple[Seated, ...], int]:
    """The core and as much surplus as caps and room allow; and how many members are left."""
    chosen = {entry.member.key for entry in core}
    rest = [member for member in view.waiting if member.key not in chosen]
    if ready.closed(trial, view):
        rest = []  # it may heal, not grow
    allowed, limit = _within_cap(trial, view, rest)
    more = _seat_surplus(trial, view, rest, allowed, limit)
    return (*core, *more), len(rest) - len(more)


def _seat_surplus(
    trial: Trial, view: GangView, rest: Sequence[Member], allowed: Sequence[Member], limit: Limit | None
) -> tuple[Seated, ...]:
    """As many of the allowed members as find room, and others in place of those that find none."""
    more = _seat_some(trial, view, allowed)
    if limit is not None and len(more) < len(allowed):
        more += _in_their_stead(trial, view, rest, {entry.member.key for entry in more}, allowed)
    return more


def _seat_some(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[Seated, ...]:
    """As many of these, which are charged, as find room; the others are charged no longer."""
    kept = underway.seat(trial, view, members)
    there = {entry.member.key for entry in kept}
    seated = (*kept, *place_some(trial, view, [m for m in members if m.key not in there]))
    keys = {entry.member.key for entry in seated}
    trial.charge(
        view.gang.queue,
        trial.amounts_of((m for m in members if m.key not in keys), view.gang.share_class),
        -1,
    )
    return seated


def _in_their_stead(
    trial: Trial, view: GangView, rest: Sequence[Member], seated: Container[str], tried: Sequence[Member]
) -> tuple[Seated, ...]:
    """Give unused quota to members of other shapes, or one shape that fits nowhere blocks the rest."""
    no_room = {member.shape_id for member in tried if member.key not in seated}
    found: list[Seated] = []
    for alike in _alike(rest):
        if trial.effort.spent:
            break
        if alike[0].shape_id not in no_room:
            open_to = [member for member in alike if member.key not in seated]
            found += _seat_some(trial, view, _within_cap(trial, view, open_to)[0])
    return tuple(found)


def _alike(members: Iterable[Member]) -> list[list[Member]]:
    by_shape: dict[int, list[Member]] = {}
    for member in members:
        by_shape.setdefault(member.shape_id, []).append(member)
    return list(by_shape.values())


# --- make room -----------------------------------------------------------------------------------


def _make_room(trial: Trial, view: GangView, cores: Iterable[tuple[Member, ...]]) -> Room | Patience | None:
    """The cheapest room for any of these sets of members."""
    if trial.effort.room <= 0:
        return None
    best: Room | None = None
    for number, core in enumerate(islice(cores, _MAX_PREEMPTING)):
        if number and trial.effort.spent:
            break
        room = preempt.make_room(trial, view, core)
        if isinstance(room, Patience):
            return room
        if room is not None:
            trial.unseat(room.seated)  # each core is tried on the same ledger
            if best is None or (room.round, room.harm) < (best.round, best.harm):
                best = room
    if best is not None:
        trial.reseat(best.seated)
    return best


def _make_room_for_some(
    trial: Trial, view: GangView, rest: Sequence[Member], allowed: list[Member]
) -> Room | Patience | None:
    """Room for the members that caps allow together, or else for those of one kind."""
    if not allowed or trial.effort.room <= 0:
        return None
    for number, members in enumerate(islice(_together(trial, view, rest, allowed), _MAX_PREEMPTING)):
        if number and trial.effort.spent:
            break
        room = preempt.make_room_for_some(trial, view, members)
        if room is not None:
            return room
    return None


def _together(
    trial: Trial, view: GangView, rest: Sequence[Member], allowed: list[Member]
) -> Iterator[list[Member]]:
    """Sets of members for which room is made together; none of them is charged."""
    yield allowed
    kinds = _alike(rest)
    for alike in kinds if len(kinds) > 1 else ():
        members, _ = _within_cap(trial, view, alike)
        trial.charge(view.gang.queue, trial.amounts_of(members, view.gang.share_class), -1)
        yield members


def _no_room(
    trial: Trial, view: GangView, members: tuple[Member, ...], lacks: Member | None = None
) -> Shortage:
    return shortage(trial, view, members, lacks, tried=trial.effort.room > 0)
