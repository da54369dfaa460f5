"""From a layout to integer tables: its states, how much more fits, and where the best place is.

A state says what is left of a card: which memory slices are covered, or how many slices of each template
lie on it. The best place for a slice is the one that takes the least from what else would fit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from vc_egpu.core.layouts.table import ANYWHERE, Held, Layout, LayoutError, Template

Ints = npt.NDArray[np.int64]
MAX_STATES: Final = 4096
NOWHERE: Final = -1
"""The state after a slice that does not fit."""

_State = tuple[int, ...]
"""Covered memory slices as bits; or slices by template. Last: what is used of each dimension."""


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """The tables of one layout. Rows are states, 0 is the empty card. Columns are templates.

    One row more, the last, is for cards that hold what they cannot: nothing fits there.
    """

    layout: Layout
    states: int
    copies: Ints
    """How many more slices of the template fit, if no other comes."""
    after: Ints
    """The state with one more slice at its best place, or :data:`NOWHERE`."""
    place: Ints
    """Where that slice begins."""
    loss: Ints
    """What of other slices does not fit any more then: the sum over templates of their size times the copies
    that are lost, in MiB."""
    numbers: dict[_State, int]

    @property
    def full(self) -> int:
        """The row of cards that hold what they cannot."""
        return self.states

    def state_of(self, held: Iterable[Held]) -> int:
        """The state of a card that holds these; :attr:`full` where no order of seating leads there."""
        state = _empty(self.layout)
        for one in held:
            index = self.layout.index(one.template)
            if index < 0:
                return self.full
            after = _with(self.layout, state, index, one.start)
            if after is None:
                return self.full
            state = after
        return self.numbers.get(state, self.full)


@lru_cache(maxsize=1024)
def compiled(layout: Layout) -> Compiled:
    """The layout's tables. Raises :class:`LayoutError` where it has more than :data:`MAX_STATES` states."""
    numbers = {_empty(layout): 0}
    queue = [_empty(layout)]
    for state in queue:  # grows while it is read
        for index in range(len(layout.templates)):
            for _, then in _ways(layout, state, index):
                if then not in numbers:
                    numbers[then] = len(numbers)
                    queue.append(then)
        if len(numbers) > MAX_STATES:
            raise LayoutError(f"layout {layout.name} has more than {MAX_STATES} states")
    ways = [
        [[(start, numbers[after]) for start, after in _ways(layout, state, index)]
         for index in range(len(layout.templates))]
        for state in queue
    ]  # fmt: skip
    copies = _copies(ways, len(layout.templates))
    after, place, loss = _best(layout, ways, copies)
    return Compiled(layout, len(queue), copies, after, place, loss, numbers)


def _copies(ways: list[list[list[tuple[int, int]]]], templates: int) -> Ints:
    """Most slices of each template alone, from each state on. Every way leads to a later state."""
    copies = np.zeros((len(ways) + 1, templates), np.int64)
    for state in _from_the_fullest(ways):
        for index, options in enumerate(ways[state]):
            copies[state, index] = max((1 + int(copies[after, index]) for _, after in options), default=0)
    return copies


def _from_the_fullest(ways: list[list[list[tuple[int, int]]]]) -> list[int]:
    """The states in an order in which each comes behind all that it leads to."""
    order: list[int] = []
    seen: set[int] = set()
    stack = [(0, False)]
    while stack:
        state, done = stack.pop()
        if done:
            order.append(state)
        elif state not in seen:
            seen.add(state)
            stack.append((state, True))
            stack += [(after, False) for options in ways[state] for _, after in options]
    return order


def _best(layout: Layout, ways: list[list[list[tuple[int, int]]]], copies: Ints) -> tuple[Ints, Ints, Ints]:
    shape = copies.shape
    after, place = np.full(shape, NOWHERE, np.int64), np.full(shape, ANYWHERE, np.int64)
    loss = np.zeros(shape, np.int64)
    sizes = np.array([template.memory_mib for template in layout.templates], np.int64)
    for state, templates in enumerate(ways):
        for index, options in enumerate(templates):
            if options:
                lost = {start: int(((copies[state] - copies[then]) * sizes).sum()) for start, then in options}
                start, then = min(options, key=lambda option: (lost[option[0]], -option[0]))
                after[state, index], place[state, index], loss[state, index] = then, start, lost[start]
    return after, place, loss


# --- one state -----------------------------------------------------------------------------------


def _empty(layout: Layout) -> _State:
    return (0,) * ((1 if layout.placed else len(layout.templates)) + len(layout.totals))


def _ways(layout: Layout, state: _State, index: int) -> list[tuple[int, _State]]:
    """(start, state after) for each way to add a slice of the template."""
    template = layout.templates[index]
    starts = [place.start for place in template.places] if layout.placed else [ANYWHERE]
    found = ((start, _with(layout, state, index, start)) for start in starts)
    return [(start, after) for start, after in found if after is not None]


def _with(layout: Layout, state: _State, index: int, start: int) -> _State | None:
    """The state with that slice; None where it does not fit."""
    template: Template = layout.templates[index]
    head = 1 if layout.placed else len(layout.templates)
    used = [
        taken + template.parts.get(dimension, 0)
        for taken, dimension in zip(state[head:], layout.totals, strict=True)
    ]
    if any(amount > total for amount, total in zip(used, layout.totals.values(), strict=True)):
        return None
    if not layout.placed:
        return (*state[:index], state[index] + 1, *state[index + 1 : head], *used)
    place = template.place_at(start)
    if place is None or state[0] & place.mask:
        return None
    return (state[0] | place.mask, *used)
