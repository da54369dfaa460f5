"""One gang's turn: may the tenant have it, does it fit, whom would it cost, and what is held for it."""

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import MemberPlacement
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.plan import Admission
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.core.placing.place import place, place_some
from vc_egpu.core.queues import caps
from vc_egpu.core.queues.caps import Limit
from vc_egpu.core.room import preempt
from vc_egpu.core.room.causes import cause_for
from vc_egpu.core.room.preempt import Patience, Room
from vc_egpu.core.room.victims import prey
from vc_egpu.core.standing import hold
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Seated, Trial
from vc_egpu.core.waiting import ready, say

_MAX_CORES: Final = 24
"""How many ways to choose a gang's core are tried, where it has more members than it needs."""
_MAX_PREEMPTING: Final = 8


def admit(trial: Trial, record: Recorder, view: GangView) -> tuple[Seated, ...]:
    """Steps 2 to 5 for one gang: what its minimum lacks all at once, then the surplus one by one."""
    cores = list(islice(ready.cores(view), _MAX_CORES))
    if not cores[0]:
        return _admit_surplus(trial, record, view, ())
    allowed, verdict = _allowed(trial, view, cores)  # 2. may the tenant have it
    if verdict is not None:
        record.refuse_alike(trial, view, verdict, by_cap=True)
        record.waits(view, verdict)
        return ()
    for number, core in enumerate(allowed):
        if number and trial.effort.spent:
            break
        seated = place(trial, view, core)  # 3. does all of it fit at once
        if seated is not None:
            trial.charge(view.gang.queue, trial.amounts_of(entry.member for entry in seated))
            trial.remember(view, seated)
            return _admit_surplus(trial, record, view, seated)
    room = _make_room(trial, view, allowed)  # 4. whom would it cost
    if isinstance(room, Room):
        return _hold(trial, record, view, room)  # 5. keep what is freed for it
    core = allowed[0]
    verdict = say.leaving(view, core, room.pods) if room is not None else _no_room(trial, view, core)
    record.refuse_alike(trial, view, verdict)
    record.waits(view, verdict)
    return ()


def _allowed(
    trial: Trial, view: GangView, cores: list[tuple[Member, ...]]
) -> tuple[list[tuple[Member, ...]], Verdict | None]:
    """The cores that caps and models allow; if there are none, why the first is not."""
    allowed = []
    first: Verdict | None = None
    for core in cores:
        limit = _cap(trial, view, core)
        verdict = say.over_cap(limit, core) if limit is not None else say.no_model(trial, core)
        if verdict is None:
            allowed.append(core)
        else:
            first = first or verdict
    return allowed, None if allowed else first


def _make_room(trial: Trial, view: GangView, cores: list[tuple[Member, ...]]) -> Room | Patience | None:
    cause = _cause(trial, view)
    if cause is None:
        return None
    best: Room | None = None
    for number, core in enumerate(cores[:_MAX_PREEMPTING]):
        if number and trial.effort.spent:
            break
        room = preempt.make_room(trial, view, core, cause)
        if isinstance(room, Patience):
            return room
        if room is not None:
            trial.unseat(room.seated)  # each core is tried on the same ledger
            if best is None or room.harm < best.harm:
                best = room
    if best is not None:
        trial.reseat(best.seated)
    return best


def _admit_surplus(
    trial: Trial, record: Recorder, view: GangView, core: tuple[Seated, ...]
) -> tuple[Seated, ...]:
    """Members above the minimum, each by itself: as many as caps and room allow."""
    chosen = {entry.member.key for entry in core}
    rest = [member for member in view.waiting if member.key not in chosen]
    if core and ready.closed(trial, view):
        rest = []  # it may heal, not grow
    allowed, limit = _within_cap(trial, view, rest)
    more = _seat_some(trial, view, allowed)
    if limit is not None and len(more) < len(allowed):
        more += _in_their_stead(trial, view, rest, {entry.member.key for entry in more}, allowed)
    seated = (*core, *more)
    surplus = {entry.member.key for entry in more}
    left = [member for member in rest if member.key not in surplus]
    if seated:
        there = len(view.placed) + len(view.succeeded)
        record.admits(
            Admission(view.gang.key, _placements(trial, seated)),
            say.admitted(len(seated), len(left), there),
        )
        return seated
    room = _make_room_for_some(trial, view, rest, allowed)
    if isinstance(room, Room):
        return _hold(trial, record, view, room)
    if room is not None:
        verdict = say.leaving(view, left[:1], room.pods)
    elif limit is not None and not allowed:
        verdict = say.over_cap(limit, left[:1])
    else:
        verdict = say.no_model(trial, allowed[:1]) or _no_room(trial, view, tuple(allowed[:1]))
    record.waits(view, say.surplus(view, len(left), verdict))
    return ()


def _seat_some(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[Seated, ...]:
    """As many of these, which are charged, as find room; the others are charged no longer."""
    seated = place_some(trial, view, members)
    keys = {entry.member.key for entry in seated}
    trial.charge(view.gang.queue, trial.amounts_of(m for m in members if m.key not in keys), -1)
    return seated


def _in_their_stead(
    trial: Trial, view: GangView, rest: Sequence[Member], seated: Container[str], tried: Sequence[Member]
) -> tuple[Seated, ...]:
    """What the caps had left for members for which there is no room, others get, kind by kind: or one that
    fits nowhere would keep them out for ever."""
    no_room = {member.shape_id for member in tried if member.key not in seated}
    found: list[Seated] = []
    kinds = _alike(rest)
    trial.effort.placed(len(kinds))
    for alike in kinds:
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


def _make_room_for_some(
    trial: Trial, view: GangView, rest: Sequence[Member], allowed: list[Member]
) -> Room | Patience | None:
    """Room for the members that caps allow together, or else for those of one kind."""
    cause = _cause(trial, view)
    if not allowed or cause is None:
        return None
    for number, members in enumerate(islice(_together(trial, view, rest, allowed), _MAX_PREEMPTING)):
        if number and trial.effort.spent:
            break
        room = preempt.make_room_for_some(trial, view, members, cause)
        if room is not None:
            return room
    return None


def _together(
    trial: Trial, view: GangView, rest: Sequence[Member], allowed: list[Member]
) -> Iterator[list[Member]]:
    """Members for which room is tried to be made together; none of them is charged."""
    yield allowed
    kinds = _alike(rest)
    for alike in kinds if len(kinds) > 1 else ():
        members, _ = _within_cap(trial, view, alike)
        trial.charge(view.gang.queue, trial.amounts_of(members), -1)
        yield members


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
            trial.charge(view.gang.queue, trial.amounts_of((member,)))
            allowed.append(member)
        else:
            refused.add(member.shape_id)
            first = first or limit
    return allowed, first


def _cap(trial: Trial, view: GangView, members: tuple[Member, ...]) -> Limit | None:
    ask = trial.amounts_of(members)
    return caps.check(trial, view.gang.queue, ask, unnamed_unlimited=trial.policy.unnamed_model_unlimited)


def _no_room(trial: Trial, view: GangView, members: tuple[Member, ...]) -> Verdict:
    return say.no_room(trial, view, members, preempts=_cause(trial, view) is not None)


def _cause(trial: Trial, view: GangView) -> Cause | None:
    """For which others may go now; None where nothing makes room for this gang."""
    return cause_for(trial, view) if trial.effort.room > 0 else None


def _hold(trial: Trial, record: Recorder, view: GangView, room: Room) -> tuple[Seated, ...]:
    """What is freed is kept for the gang: its members stay booked, its victims are nobody else's."""
    trial.effort.made_room(sum(len(candidate.pods) for candidate in prey(trial, room.cause).listed))
    trial.charge(view.gang.queue, trial.amounts_of(entry.member for entry in room.seated))
    for eviction in room.evictions:
        trial.leaving.update(dict.fromkeys(sorted(eviction.pods)))
    for suspension in room.suspensions:
        trial.told_to_leave(sorted(suspension.pods))
    verdict = hold.makes_room(trial, room.evictions, room.suspensions)
    placements = _placements(trial, room.seated)
    record.admits(Admission(view.gang.key, placements, room.evictions, room.suspensions), verdict)
    return room.seated


def _placements(trial: Trial, seated: tuple[Seated, ...]) -> dict[str, MemberPlacement]:
    return {entry.member.key: trial.placement(entry) for entry in seated}
