"""A bounded search for a place for members of several shapes, where placing group by group has failed.

Depth first over members, nodes, and essentially different cards. States seen to fail are remembered, so
that the order of alike members and of alike nodes costs nothing. The bound is a count of steps, not time:
equal clusters give equal answers.
"""

from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from vc_egpu.core.books.between import Choice, Rules, in_order
from vc_egpu.core.books.capacity import (
    Assignment,
    Need,
    by_number,
    candidates,
    pods_fitting,
    port_conflict,
    rooms,
)
from vc_egpu.core.books.ledger import Flags, Ints
from vc_egpu.core.model.gangs import Member
from vc_egpu.core.model.neighbours import Mark
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import CardChoice, card_choice
from vc_egpu.core.profiles.table import NO_PROFILE, Profile
from vc_egpu.core.trial.trial import Seated, Trial

MAX_NODES: Final = 48
"""More nodes than this are not searched: where there are many, placing in order finds room if any does."""
MAX_MEMBERS: Final = 64
_LISTED_PER_STEP: Final = 8

State = tuple[object, ...]
Found = tuple[Member, Need, int, Assignment]


def search(
    trial: Trial,
    groups: Sequence[tuple[tuple[Member, ...], Need, Flags]],
    steps: int,
    *,
    profile: Profile = NO_PROFILE,
    known: bool = False,
) -> list[Found] | None:
    """A place for every member, or None where none was found within ``steps`` tries. Books nothing.

    Fewer steps where the gang's turn has fewer left, unless there is ``known`` to be a place.
    """
    members = [(member, number) for number, (alike, _, _) in enumerate(groups) for member in alike]
    if len(members) > MAX_MEMBERS:
        return None
    nodes = _nodes(trial, groups)
    if nodes is None:
        return None
    most = steps if known else min(steps, trial.effort.steps(len(nodes)))
    if most <= 0:
        return None
    needs = [need for _, need, _ in groups]
    cards = [card_choice(need, trial.policy, profile) for need in needs]
    hunt = _Hunt(needs, cards, members, nodes, most)
    found = hunt.found if hunt.descend(0) else None
    trial.effort.searched(most - hunt.steps, len(nodes))
    return found


class _Named(NamedTuple):
    """What the groups ask of nodes by name."""

    scalars: tuple[str, ...]
    slots: tuple[str, ...]
    marks: tuple[Mark, ...]


class _Node:
    """One node's free amounts and cards, on paper."""

    def __init__(
        self,
        trial: Trial,
        row: int,
        takes: tuple[bool, ...],
        named: _Named,
    ) -> None:
        ledger = trial.ledger
        self.row = row
        self.takes = takes
        """By group: whether the node may take its members at all."""
        self.board = Board(ledger, row, trial)
        self.ratio = (int(ledger.ratio[row]), int(ledger.ratio_class[row]))
        """How far memory is oversubscribed, and for which class: it decides what a share takes."""
        self.free: list[int] = (ledger.cap[row] - ledger.used[row]).tolist()
        self.named: dict[str, int] = {}
        for name in named.scalars:
            self.named[name] = ledger.scalar_free(name, row)
        for name in named.slots:
            if name in ledger.slot_cap:
                used = ledger.slot_used.get(name)
                self.named[name] = int(ledger.slot_cap[name][row]) - (
                    int(used[row]) if used is not None else 0
                )
        self.ports: dict[tuple[str, int], int] = {}
        self.marks = {mark: ledger.marks.of(mark).get(row, 0) for mark in named.marks}
        """What rules between pods count here."""
        self.mark: int | None = None
        """The number of its state, until something changes."""

    def fits(self, group: int, need: Need) -> bool:
        return (
            self.takes[group]
            and all(
                free >= request or not request for free, request in zip(self.free, need.requests, strict=True)
            )
            and all(
                self.named.get(name, request) >= request for name, request in (*need.scalars, *need.slots)
            )
            and all((protocol, port) not in self.ports for _, protocol, port in need.ports)
            and all(self.marks[mark] < most for mark, most in need.limits)
        )

    def take(self, need: Need, assignment: Assignment) -> None:
        """Seat a pod on its cards."""
        self.mark = None
        self.board.take(need, assignment)

    def undo(self, need: Need, assignment: Assignment) -> None:
        """Give back what :meth:`take` took."""
        self.mark = None
        self.board.undo(need, assignment)

    def apply(self, need: Need, sign: int) -> None:
        self.mark = None
        for dimension, request in enumerate(need.requests):
            self.free[dimension] -= sign * request
        for name, request in (*need.scalars, *need.slots):
            if name in self.named:
                self.named[name] -= sign * request
        for mark in need.marks:
            if mark in self.marks:
                self.marks[mark] += sign
        for _, protocol, port in need.ports:
            if sign > 0:
                self.ports[protocol, port] = 1
            else:
                self.ports.pop((protocol, port), None)

    def state(self, *, distinct: bool) -> State:
        """Nodes of equal state are interchangeable."""
        cards = sorted((*slot.state(), slot.col if distinct else -1) for slot in self.board.slots)
        return (
            self.row if distinct else -1,
            self.takes,
            self.ratio,
            tuple(self.free),
            self.board.host_free,
            tuple(self.named.items()),
            tuple(sorted(self.ports)),
            tuple(self.marks.values()),
            tuple(cards),
        )


def _nodes(trial: Trial, groups: Sequence[tuple[tuple[Member, ...], Need, Flags]]) -> list[_Node] | None:
    """Nodes that take a member of any group, tightest first; None where some group has too few places."""
    ledger = trial.ledger
    total = np.zeros(len(ledger.names), np.int64)
    takes = []
    for members, need, mask in groups:
        fitting = pods_fitting(ledger, need, mask)
        if int(fitting.sum()) < len(members):
            return None
        total += fitting
        takes.append(fitting > 0)
    rows = np.flatnonzero(total > 0)
    order = np.lexsort((trial.index.ranks()[rows], total[rows]))
    needs = [need for _, need, _ in groups]
    named = _Named(
        tuple(sorted({name for need in needs for name, _ in need.scalars})),
        tuple(sorted({name for need in needs for name, _ in need.slots})),
        tuple(sorted({mark for need in needs for mark, _ in need.limits})),
    )
    ports = [by_number(need.ports) for _, need, _ in groups]
    nodes = []
    for row in rows[order][:MAX_NODES].tolist():
        allowed = tuple(
            bool(take[row]) and not port_conflict(ledger, row, asked)
            for take, asked in zip(takes, ports, strict=True)
        )
        nodes.append(_Node(trial, row, allowed, named))
    return nodes


class _Hunt:
    """The state of one search."""

    def __init__(
        self,
        needs: list[Need],
        cards: list[CardChoice],
        members: list[tuple[Member, int]],
        nodes: list[_Node],
        steps: int,
    ) -> None:
        self._needs = needs
        self._cards = cards
        self._members = members
        self._nodes = nodes
        self.steps = steps
        """Those that are left."""
        self._distinct = any(need.cards is not None for need in needs)
        self._numbers: dict[State, int] = {}
        self._dead: set[tuple[int, ...]] = set()
        self.found: list[Found] = []

    def descend(self, depth: int) -> bool:
        """Place the members from ``depth`` on; on failure everything is as before."""
        if depth == len(self._members):
            return True
        marks = [self._mark(node) for node in self._nodes]
        mark = (depth, *sorted(marks))
        if mark in self._dead:
            return False
        member, group = self._members[depth]
        need = self._needs[group]
        tried: set[int] = set()
        for node, state in zip(self._nodes, marks, strict=True):
            if state in tried or not node.fits(group, need):
                continue
            tried.add(state)
            if self._try_node(depth, member, group, node):
                return True
            node.mark = state  # it is as it was
            if self.steps <= 0:
                return False
        self._dead.add(mark)
        return False

    def _mark(self, node: _Node) -> int:
        """The number of the node's state: equal for equal states, within this search."""
        if node.mark is None:
            state = node.state(distinct=self._distinct)
            node.mark = self._numbers.setdefault(state, len(self._numbers))
        return node.mark

    def _try_node(self, depth: int, member: Member, group: int, node: _Node) -> bool:
        need = self._needs[group]
        node.apply(need, 1)
        for assignment in self._choices(group, node):
            self.steps -= 1
            if self.steps <= 0:
                break
            node.take(need, assignment)
            self.found.append((member, need, node.row, assignment))
            if self.descend(depth + 1):
                return True
            self.found.pop()
            node.undo(need, assignment)
        node.apply(need, -1)
        return False

    def _choices(self, group: int, node: _Node) -> list[Assignment]:
        """The ways to seat a pod on the node. Containers with asks of their own multiply them: what could
        never be tried is not even listed."""
        need = self._needs[group]
        if not need.asks:
            return [()]
        with closing(node.board.choices(need, self._cards[group], distinct=self._distinct)) as choices:
            listed = list(islice(choices, max(0, self.steps)))
        self.steps -= len(listed) // _LISTED_PER_STEP
        return listed


def search_by_rules(
    trial: Trial,
    groups: Sequence[tuple[tuple[Member, ...], Need, Flags]],
    steps: int,
    *,
    profile: Profile = NO_PROFILE,
    known: bool = False,
) -> list[Found] | None:
    """The same where rules between pods speak of more than one node: then the order of members counts.

    Each step looks at all nodes with the books as they would be. Books nothing in the end.
    """
    if sum(len(members) for members, _, _ in groups) > MAX_MEMBERS:
        return None
    rows = [candidates(trial.ledger, need, mask) for _, need, mask in groups]
    nodes = max(map(len, rows))
    most = steps if known else min(steps, trial.effort.steps(max(nodes, MAX_NODES)))
    cards = [card_choice(need, trial.policy, profile) for _, need, _ in groups]
    hunt = _RuleHunt(trial, groups, cards, rows, most)
    done = most > 0 and hunt.descend()
    found = hunt.found() if done else None
    hunt.take_back()
    trial.effort.searched(most - hunt.steps, max(nodes, MAX_NODES))
    return found


class _RuleHunt:
    """Members go to nodes one by one, of any shape next, on the trial's own ledger."""

    def __init__(
        self,
        trial: Trial,
        groups: Sequence[tuple[tuple[Member, ...], Need, Flags]],
        cards: Sequence[CardChoice],
        rows: Sequence[Ints],
        steps: int,
    ) -> None:
        self._trial = trial
        self._groups = groups
        self._cards = cards
        self._rows = rows
        self.steps = steps
        self._left = [len(members) for members, _, _ in groups]
        self._seated: dict[tuple[int, int], list[Seated]] = {}
        """By group and row."""
        self._dead: set[frozenset[tuple[tuple[int, int], int]]] = set()

    def descend(self) -> bool:
        """Seat all that are left; on failure everything is as before."""
        if not any(self._left):
            return True
        state = frozenset((place, len(seated)) for place, seated in self._seated.items() if seated)
        if state in self._dead:
            return False
        for group, left in enumerate(self._left):
            if left and self._try_group(group):
                return True
            if self.steps <= 0:
                return False
        self._dead.add(state)
        return False

    def _try_group(self, group: int) -> bool:
        """Seat one more member of the group, and then all that are left."""
        need, rows = self._groups[group][1], self._rows[group]
        room, calm = rooms(self._trial.ledger, need, rows)
        choice = Choice(rows, room, calm, self._trial.index.ranks()[rows])
        for position in in_order(Rules(self._trial.ledger, need, rows), choice)[:MAX_NODES]:
            self.steps -= 1
            if self.steps <= 0:
                return False
            place = (group, int(rows[position]))
            if self._seat(place, len(self._seated.get(place, ())) + 1):
                self._left[group] -= 1
                if self.descend():
                    return True
                self._left[group] += 1
                self._seat(place, len(self._seated[place]) - 1)
        return False

    def _seat(self, place: tuple[int, int], count: int) -> bool:
        """Have so many members of the group on the row, whichever of its cards they take; False if not."""
        (group, row), trial = place, self._trial
        members, need, _ = self._groups[group]
        before = self._seated.get(place, [])
        trial.unseat(before)
        assignments: list[Assignment] = [()] * count
        if need.asks:
            assignments = fill(Board(trial.ledger, row, trial), need, count, self._cards[group])
        if len(assignments) < count:
            trial.reseat(before)
            return False
        self._seated[place] = [trial.seat(members[0], need, row, one) for one in assignments]
        return True

    def found(self) -> list[Found]:
        """The places, each with a member of its own."""
        found: list[Found] = []
        for group, (members, need, _) in enumerate(self._groups):
            places = [
                (row, one.assignment)
                for (of, row), seated in self._seated.items()
                for one in seated
                if of == group
            ]
            found += [(member, need, row, cols) for member, (row, cols) in zip(members, places, strict=True)]
        return found

    def take_back(self) -> None:
        """Nothing is booked any more."""
        for seated in self._seated.values():
            self._trial.unseat(seated)
