"""Place members: all of them at once, or none. Nodes first, then cards of each node.

Start with :func:`place`. Members of equal shape are placed as one group. For one ask per pod the count of
places is exact, so a gang of alike members is refused only if it does not fit. Mixed gangs are placed group
by group, hardest first. If that fails, other orders are tried, and then a bounded search (:mod:`.search`).
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice, permutations
from typing import Final

import numpy as np

from vc_egpu.core.books.between import Choice, deal
from vc_egpu.core.books.capacity import Assignment, Need, candidates, places_up_to, pods_fitting, rooms
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.placing.nodes import Nodes
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import (
    CardChoice,
    NodeOrder,
    by_use,
    card_choice,
    node_order,
    spreads_out,
    wants_spread,
)
from vc_egpu.core.placing.search import search, search_by_rules
from vc_egpu.core.topology.network import Bound
from vc_egpu.core.trial.levels import Part, Scope, Unit, held_to, present_rows, scopes
from vc_egpu.core.trial.profiles import profile_of
from vc_egpu.core.trial.trial import Seated, Trial

THOROUGH: Final = 4000
"""Steps of the bounded search where a refusal makes a gang wait."""
_MAX_ORDERS: Final = 6
_MOST_DEAD_ENDS: Final = 64
"""So often subgroups are placed otherwise where a later one finds no domain."""


@dataclass(frozen=True, slots=True)
class Group:
    """Members of equal shape."""

    members: tuple[Member, ...]
    need: Need
    mask: Flags


def place(
    trial: Trial, view: GangView, members: Sequence[Member], *, effort: int = THOROUGH, known: bool = False
) -> tuple[Seated, ...] | None:
    """Place all members and book them on the trial's ledger; None, and nothing booked, if not all fit.

    ``effort``: most steps of the search, within what the gang's turn has left. ``known``: they were found to
    fit a moment ago, so that a place is found again whatever it takes.
    """
    groups = groups_of(trial, view, members)
    if any(not group.need.possible for group in groups):
        return None
    if not _goes_by_levels(trial, view, groups):
        return _place_within(trial, view, groups, 0, effort=effort, known=known)
    present = present_rows(trial, view, {member.key for member in members})
    unit = _unit(trial, view, groups, view.gang.bound, present)
    for scope, within in _scoped(trial, unit, groups, known=known):
        height = scope.height if unit.is_near else 0
        if view.gang.subgroups:
            seated = _place_subgroups(trial, view, within, height, effort=effort, known=known)
        else:
            seated = _place_within(trial, view, within, height, effort=effort, known=known)
        if seated is not None:
            return seated
    return None


def _goes_by_levels(trial: Trial, view: GangView, groups: Sequence[Group]) -> bool:
    """Whether the levels of the network have a say: a gang may need a domain, or is better off in one."""
    if view.gang.is_bound:
        return True
    members = len(view.placed) + sum(len(group.members) for group in groups)
    if not trial.ledger.network.is_told or view.gang.single or members < 2:
        return False
    return _is_near(trial, view, groups)


def _is_near(trial: Trial, view: GangView, groups: Sequence[Group]) -> bool:
    """Whether members had better be near each other; rules between pods, and spreading, say otherwise."""
    profile = profile_of(trial, view)
    return not any(
        group.need.is_wide or group.need.speaks_of_domains or wants_spread(group.need, profile)
        for group in groups
    )


def _unit(
    trial: Trial, view: GangView, groups: Sequence[Group], bound: Bound | None, present: Sequence[int]
) -> Unit:
    return Unit([part_of(group) for group in groups], bound, present, _is_near(trial, view, groups))


def part_of(group: Group) -> Part:
    """The group as the levels of the network see it."""
    return group.need, group.mask, len(group.members)


def _scoped(
    trial: Trial, unit: Unit, groups: Sequence[Group], *, known: bool
) -> Iterator[tuple[Scope, list[Group]]]:
    """Where the groups are tried, the nearest first, with their masks within that. Once the turn has spent
    its effort only the first and the last, unless a place is known to be there."""
    for number, scope in enumerate(scopes(trial, unit)):
        if number and trial.effort.spent and not known and not scope.last:
            continue
        yield scope, _narrowed(groups, scope.mask)


def _narrowed(groups: Sequence[Group], mask: Flags) -> list[Group]:
    """The groups on these rows alone."""
    return [replace(group, mask=group.mask & mask) for group in groups]


def _place_within(
    trial: Trial, view: GangView, groups: Sequence[Group], height: int, *, effort: int, known: bool
) -> tuple[Seated, ...] | None:
    """The same for groups whose masks are of one domain of this height; 0: of a node, or anywhere."""
    heeds, exact = _heeds_use(trial) and not view.gang.subgroups, are_exact(groups)
    may_try = heeds and not exact and (known or not trial.effort.spent)
    if may_try and any(_is_moved_by_use(trial, view, group) for group in groups):
        # An order by use may find no place where another one does: then all goes on as without it.
        seated = _place_groups(trial, view, groups, height, heeds=True)
        if seated is not None:
            return seated
    for number, order in enumerate(islice(permutations(groups), _MAX_ORDERS)):
        if number and trial.effort.spent and not known:
            break
        trial.effort.placed(len(groups), len(trial.index.nodes))
        seated = _place_groups(trial, view, order, height, heeds=heeds and exact)
        if seated is not None:
            return seated
    wide = any(group.need.speaks_of_domains for group in groups)
    if exact or effort <= 0:
        return None
    listed = [(group.members, group.need, group.mask) for group in groups]
    found = (search_by_rules if wide else search)(
        trial, listed, effort, profile=profile_of(trial, view), known=known
    )
    if found is None:
        return None
    return tuple(trial.seat(member, need, row, assignment) for member, need, row, assignment in found)


def are_exact(groups: Sequence[Group]) -> bool:
    """Whether the count of places tells all: as many members as that find a place together."""
    return len(groups) == 1 and len(groups[0].need.asks) <= 1 and not groups[0].need.is_wide


def are_exact_anywhere(view: GangView, groups: Sequence[Group]) -> bool:
    """The same of places on all nodes: no level of the network has to hold the gang, or a part of it."""
    return are_exact(groups) and not (view.gang.is_bound or view.gang.subgroups)


def _place_subgroups(
    trial: Trial, view: GangView, groups: Sequence[Group], height: int, *, effort: int, known: bool
) -> tuple[Seated, ...] | None:
    """The same for a gang with subgroups, each in a domain of its own: the largest first, depth first."""
    parts = sorted(_by_subgroup(groups).items(), key=lambda part: (not part[0], -_count(part[1]), part[0]))
    keys = {member.key for group in groups for member in group.members}
    tries: list[Iterator[tuple[Seated, ...]]] = []
    done: list[tuple[Seated, ...]] = []
    left = _MOST_DEAD_ENDS
    while len(done) < len(parts):
        if len(tries) == len(done):
            subgroup, its = parts[len(done)]
            present = present_rows(trial, view, keys, subgroup) if subgroup else []
            unit = _unit(
                trial, view, its, view.gang.subgroups.get(subgroup[0]) if subgroup else None, present
            )
            tries.append(_ways(trial, view, its, unit, height, effort=effort, known=known))
        seated = next(tries[-1], None) if left else None
        if seated is not None:
            done.append(seated)
            continue
        left = max(0, left - 1)
        tries.pop()
        if not done:
            return None
        trial.unseat(done.pop())
    return tuple(entry for seated in done for entry in seated)


def _ways(
    trial: Trial,
    view: GangView,
    groups: Sequence[Group],
    unit: Unit,
    height: int,
    *,
    effort: int,
    known: bool,
) -> Iterator[tuple[Seated, ...]]:
    """The ways to place one subgroup, each booked; the caller takes one back before it asks for the next."""
    for scope, within in _scoped(trial, unit, groups, known=known):
        tall = min(height, scope.height) if unit.is_near else 0
        seated = _place_within(trial, view, within, tall, effort=effort, known=known)
        if seated is not None:
            yield seated


def subgroups_with_room(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[int, int]:
    """How many of the gang's subgroups find a domain at the same time, and of how many."""
    groups = groups_of(trial, view, members)
    wanted = sum(1 for name in _by_subgroup(groups) if name)
    present = present_rows(trial, view, {member.key for member in members})
    most = 0
    for scope in scopes(trial, _unit(trial, view, groups, view.gang.bound, present)):
        within = _narrowed(groups, scope.mask)
        found: list[Seated] = []
        count = 0
        for name, its in sorted(_by_subgroup(within).items(), key=lambda part: (-_count(part[1]), part[0])):
            unit = _unit(trial, view, its, view.gang.subgroups.get(name[0]), ()) if name else None
            seated = next(_ways(trial, view, its, unit, 0, effort=0, known=False), None) if unit else None
            found += seated or ()
            count += seated is not None
        trial.unseat(found)
        most = max(most, count)
    return most, wanted


def _by_subgroup(groups: Sequence[Group]) -> dict[tuple[str, ...], list[Group]]:
    """The groups, each cut into subgroups of the gang; members of none are under ``()``."""
    found: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        members: dict[tuple[str, ...], list[Member]] = {}
        for member in group.members:
            members.setdefault(member.subgroup, []).append(member)
        for subgroup, its in members.items():
            found.setdefault(subgroup, []).append(replace(group, members=tuple(its)))
    return found


def _count(groups: Sequence[Group]) -> int:
    return sum(len(group.members) for group in groups)


def place_some(trial: Trial, view: GangView, members: Sequence[Member]) -> tuple[Seated, ...]:
    """Place and book as many as fit, each by itself, hardest shapes last to be refused.

    Where there are many shapes, the gang's turn bounds how many are tried.
    """
    groups = groups_of(trial, view, members)
    if not view.gang.is_bound:
        return tuple(_some_of(trial, view, groups))
    seated: list[Seated] = []
    within = _held(trial, view, groups, view.gang.bound)
    for subgroup, its in sorted(_by_subgroup(within).items()):
        bound = view.gang.subgroups.get(subgroup[0]) if subgroup else None
        found = _some_of(trial, view, _held(trial, view, its, bound, subgroup))
        trial.remember_near(view.gang.key, found)
        seated += found
    return tuple(seated)


def _held(
    trial: Trial,
    view: GangView,
    groups: Sequence[Group],
    bound: Bound | None,
    subgroup: tuple[str, ...] = (),
) -> list[Group]:
    """The groups with no nodes but those of the domain that they have to be in."""
    present = present_rows(trial, view, subgroup=subgroup) if bound is not None else []
    held = held_to(trial, _unit(trial, view, groups, bound, present))
    return _narrowed(groups, held) if held is not None else [*groups]


def _some_of(trial: Trial, view: GangView, groups: Sequence[Group]) -> list[Seated]:
    seated: list[Seated] = []
    for group in groups:
        if not trial.effort.may_place:
            break
        trial.effort.placed(1, len(trial.index.nodes))
        if group.need.possible:
            heeds = _heeds_use(trial) and are_exact([group])
            seated += place_group(trial, view, group, partly=True, heeds=heeds)
    return seated


def _heeds_use(trial: Trial) -> bool:
    """Whether some node may say what it was measured to use."""
    return trial.policy.heeds_measured and trial.index.busy.is_any(trial.now)


def _is_moved_by_use(trial: Trial, view: GangView, group: Group) -> bool:
    """Whether it may go elsewhere because of that."""
    return _choices(trial, view, group.need, heeds=True) != _choices(trial, view, group.need, heeds=False)


def groups_of(trial: Trial, view: GangView, members: Sequence[Member]) -> list[Group]:
    """The members by shape, hardest shape first."""
    by_shape: dict[int, list[Member]] = {}
    for member in members:
        by_shape.setdefault(member.shape_id, []).append(member)
    groups = []
    for alike in by_shape.values():
        need = trial.need_in(view, alike[0])
        groups.append(Group(tuple(alike), need, trial.mask(view.gang, need.shape)))
    groups.sort(key=lambda group: _hardness(group.need))
    return groups


def room_for(trial: Trial, view: GangView, member: Member, wanted: int) -> int:
    """For how many members of this shape there are places by themselves; counted no further than wanted.

    Fewer than wanted: they find no place together with others either, in whatever order.
    """
    need = trial.need_in(view, member)
    return places_up_to(trial.ledger, need, trial.mask(view.gang, need.shape), wanted)


def _hardness(need: Need) -> tuple[int, ...]:
    cards = sum(ask.cards for ask in need.asks)
    memory = sum(ask.cards * ask.memory_mib for ask in need.asks)
    cores = sum(ask.cards * ask.cores_percent for ask in need.asks)
    alone = any(ask.alone for ask in need.asks)
    return (-int(alone), -cards, -memory, -cores, -need.requests[0], -need.requests[1])


def _place_groups(
    trial: Trial, view: GangView, groups: Sequence[Group], height: int, *, heeds: bool
) -> tuple[Seated, ...] | None:
    used = set(present_rows(trial, view)) if height > 1 else set[int]()
    seated: list[Seated] = []
    for group in groups:
        placed = _place_near(trial, view, group, height, used, heeds=heeds)
        used |= {entry.row for entry in placed}
        seated += placed
        if len(placed) < len(group.members):
            trial.unseat(seated)
            return None
    return tuple(seated)


def _place_near(
    trial: Trial,
    view: GangView,
    group: Group,
    height: int,
    used: Set[int],
    *,
    heeds: bool,
    partly: bool = False,
) -> list[Seated]:
    """Place a group in a domain of this height, over as few domains of the next lower one as it takes.

    The roomiest come first, and for the rest the one that is filled best. ``used``: rows where other members
    of the gang are; their domains come before others.
    """
    if height <= 1:
        return place_group(trial, view, group, partly=partly, heeds=heeds)
    level = trial.ledger.network.levels().at(height - 1)
    room = level.sums(pods_fitting(trial.ledger, group.need, group.mask))
    parts = {number: int(room[number]) for number in np.flatnonzero(room).tolist()}
    known = {int(level.numbers[row]) for row in used}
    seated: list[Seated] = []
    while parts and len(seated) < len(group.members):
        left = group.members[len(seated) :]
        enough = [number for number, places in parts.items() if places >= len(left)]
        if enough:
            number = min(enough, key=lambda each: (each not in known, parts[each], each))
        else:
            number = max(parts, key=lambda each: (each in known, parts[each], -each))
        there = Group(left[: parts.pop(number)], group.need, group.mask & level.mask(number))
        seated += _place_near(trial, view, there, height - 1, used, partly=True, heeds=heeds)
    if len(seated) < len(group.members):  # nodes that are in no domain, or containers that shared cards
        rest = replace(group, members=group.members[len(seated) :])
        seated += place_group(trial, view, rest, partly=partly, heeds=heeds)
    return seated


def place_group(
    trial: Trial, view: GangView, group: Group, *, partly: bool = False, heeds: bool = False
) -> list[Seated]:
    """Place and book the group's members, or as many as fit with ``partly``. ``heeds``: what nodes were
    measured to use counts.

    Without ``partly`` a group that does not fit may also come back in part, with what was tried booked.
    """
    need = group.need
    wanted = len(group.members)
    cards, order = _choices(trial, view, need, heeds=heeds)
    rows = candidates(trial.ledger, need, group.mask)
    if need.is_wide:
        return _place_by_rules(trial, view, group, rows, heeds=heeds)
    seated: list[Seated] = []
    while len(seated) < wanted:
        nodes = Nodes(trial, view, need, rows)
        counts = order.deal(nodes, _scores(order, nodes), wanted - len(seated))
        if not counts or (not partly and sum(counts.values()) < wanted - len(seated)):
            break
        for row, count in counts.items():
            assignments = _fill_row(trial, need, row, count, cards)
            for assignment in assignments:
                seated.append(trial.seat(group.members[len(seated)], need, row, assignment))
            if len(assignments) < count:
                # Containers with several asks: what looked like room on this node is none.
                rows = rows[rows != row]
    return seated


def _choices(trial: Trial, view: GangView, need: Need, *, heeds: bool) -> tuple[CardChoice, NodeOrder]:
    """How members of this gang are placed: by their own word, by the rule for the gang, or as ever."""
    profile = profile_of(trial, view)
    cards = card_choice(need, trial.policy, profile)
    order = node_order(view, need, trial.policy, profile)
    return by_use(cards, order, view, need) if heeds else (cards, order)


def _scores(order: NodeOrder, nodes: Nodes) -> Ints:
    """The policy's, below what the pods themselves prefer."""
    scores = order.scores(nodes)
    if not nodes.need.shape.prefers or not len(scores):
        return scores
    liked = nodes.trial.index.preferences(nodes.need.shape)[nodes.rows]
    low = scores.min()
    return np.asarray((scores - low) + (liked.max() - liked) * (scores.max() - low + 1), np.int64)


def _place_by_rules(trial: Trial, view: GangView, group: Group, rows: Ints, *, heeds: bool) -> list[Seated]:
    """Seat the members one after the other, each where the rules between pods let it in."""
    need, ledger = group.need, trial.ledger
    room, calm = rooms(ledger, need, rows)
    rows, room, calm = rows[room > 0], room[room > 0], calm[room > 0]
    nodes = Nodes(trial, view, need, rows)
    cards, order = _choices(trial, view, need, heeds=heeds)
    rank = np.empty(len(rows), np.int64)
    rank[np.lexsort((nodes.ranks(), _scores(order, nodes)))] = np.arange(len(rows))
    there = trial.rows_of(view)
    taken = np.array([there.get(row, 0) for row in rows.tolist()], np.int64)
    choice = Choice(rows, room, calm, rank, taken if spreads_out(order) else None)
    while True:
        dealt = deal(ledger, need, choice, len(group.members))
        found: dict[int, list[Assignment]] = {}
        for position in dict.fromkeys(dealt):
            count = dealt.count(position)
            found[position] = _fill_row(trial, need, int(rows[position]), count, cards)
            if len(found[position]) < count:
                # Containers with several asks: what looked like room on this node is less.
                room[position] = len(found[position])
        if sum(map(len, found.values())) == len(dealt):
            break
    return [
        trial.seat(member, need, int(rows[position]), found[position].pop(0))
        for member, position in zip(group.members, dealt, strict=False)
    ]


def _fill_row(trial: Trial, need: Need, row: int, count: int, cards: CardChoice) -> list[Assignment]:
    if not need.asks:
        return [()] * count
    return fill(Board(trial.ledger, row, trial), need, count, cards)
