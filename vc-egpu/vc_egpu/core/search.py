"""A bounded search for a place for members of several shapes, where placing group by group has failed.

Depth first over members, nodes, and essentially different cards. States seen to fail are remembered, so
that the order of alike members and of alike nodes costs nothing. The bound is a count of steps, not time:
equal clusters give equal answers.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from vc_egpu.core.capacity import Need, pods_fitting, port_conflict
from vc_egpu.core.gangs import Member
from vc_egpu.core.ledger import Flags
from vc_egpu.core.pack import Assignment, Board
from vc_egpu.core.trial import Trial

MAX_NODES: Final = 48
"""More nodes than this are not searched: where there are many, placing in order finds room if any does."""
MAX_MEMBERS: Final = 64

Found = tuple[Member, Need, int, Assignment]


def search(
    trial: Trial, groups: Sequence[tuple[tuple[Member, ...], Need, Flags]], steps: int
) -> list[Found] | None:
    """A place for every member, or None where none was found within ``steps`` tries. Books nothing."""
    members = [(member, number) for number, (alike, _, _) in enumerate(groups) for member in alike]
    if len(members) > MAX_MEMBERS:
        return None
    nodes = _nodes(trial, groups)
    if nodes is None:
        return None
    hunt = _Hunt([need for _, need, _ in groups], members, nodes, steps)
    return hunt.found if hunt.descend(0) else None


class _Node:
    """One node's free amounts and cards, on paper."""

    def __init__(
        self, trial: Trial, row: int, takes: tuple[bool, ...], names: tuple[str, ...], slots: tuple[str, ...]
    ) -> None:
        ledger = trial.ledger
        self.row = row
        self.takes = takes
        """By group: whether the node may take its members at all."""
        self.board = Board(ledger, row)
        self.free: list[int] = (ledger.cap[row] - ledger.used[row]).tolist()
        self.named: dict[str, int] = {}
        for name in names:
            cap = ledger.scalar_cap.get(name)
            used = ledger.scalar_used.get(name)
            self.named[name] = (int(cap[row]) if cap is not None else 0) - (
                int(used[row]) if used is not None else 0
            )
        for name in slots:
            if name in ledger.slot_cap:
                used = ledger.slot_used.get(name)
                self.named[name] = int(ledger.slot_cap[name][row]) - (
                    int(used[row]) if used is not None else 0
                )
        self.ports: dict[tuple[str, int], int] = {}

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
        )

    def apply(self, need: Need, sign: int) -> None:
        for dimension, request in enumerate(need.requests):
            self.free[dimension] -= sign * request
        for name, request in (*need.scalars, *need.slots):
            if name in self.named:
                self.named[name] -= sign * request
        for _, protocol, port in need.ports:
            if sign > 0:
                self.ports[protocol, port] = 1
            else:
                self.ports.pop((protocol, port), None)

    def state(self, *, distinct: bool) -> tuple[object, ...]:
        cards = sorted((*slot.state(), slot.col if distinct else -1) for slot in self.board.slots)
        mark = self.row if distinct else -1
        return (
            mark,
            self.takes,
            tuple(self.free),
            self.board.host_free,
            tuple(self.named.items()),
            tuple(sorted(self.ports)),
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
    names = tuple(sorted({name for _, need, _ in groups for name, _ in need.scalars}))
    slots = tuple(sorted({name for _, need, _ in groups for name, _ in need.slots}))
    nodes = []
    for row in rows[order][:MAX_NODES].tolist():
        allowed = tuple(
            bool(take[row]) and not (need.ports and port_conflict(ledger, row, need.ports))
            for take, (_, need, _) in zip(takes, groups, strict=True)
        )
        nodes.append(_Node(trial, row, allowed, names, slots))
    return nodes


class _Hunt:
    """The state of one search."""

    def __init__(
        self, needs: list[Need], members: list[tuple[Member, int]], nodes: list[_Node], steps: int
    ) -> None:
        self._needs = needs
        self._members = members
        self._nodes = nodes
        self._steps = steps
        self._distinct = any(need.cards is not None for need in needs)
        self._dead: set[object] = set()
        self.found: list[Found] = []

    def descend(self, depth: int) -> bool:
        """Place the members from ``depth`` on; on failure everything is as before."""
        if depth == len(self._members):
            return True
        states = [node.state(distinct=self._distinct) for node in self._nodes]
        mark = (depth, tuple(sorted(map(repr, states))))
        if mark in self._dead:
            return False
        member, group = self._members[depth]
        need = self._needs[group]
        tried: set[object] = set()
        for node, state in zip(self._nodes, states, strict=True):
            if state in tried or not node.fits(group, need):
                continue
            tried.add(state)
            if self._try_node(depth, member, need, node):
                return True
            if self._steps <= 0:
                return False
        self._dead.add(mark)
        return False

    def _try_node(self, depth: int, member: Member, need: Need, node: _Node) -> bool:
        node.apply(need, 1)
        for assignment in list(node.board.choices(need, distinct=self._distinct)) if need.asks else [()]:
            self._steps -= 1
            if self._steps <= 0:
                break
            node.board.take(need, assignment)
            self.found.append((member, need, node.row, assignment))
            if self.descend(depth + 1):
                return True
            self.found.pop()
            node.board.undo(need, assignment)
        node.apply(need, -1)
        return False
