"""Slices come and go on cards in any order: the ledger's states equal a recount, and nothing overlaps."""

import random

import layout_tables
import numpy as np
import pytest
import sliced
from seeds import RUN
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import Need, need_of, rooms, seats_of, starts_of
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.layouts.compiler import compiled
from vc_egpu.core.layouts.table import Held, Layout
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.placing.pack import Board
from vc_egpu.core.placing.policies import BINPACK

by_layout = pytest.mark.parametrize("layout", layout_tables.ALL, ids=lambda layout: layout.name)
CARDS = 3


def walk(layout: Layout, steps: int, seed: int) -> None:
    rng = random.Random(seed)
    ledger = Ledger()
    row = ledger.put_node(sliced.node("n", layout, cards=CARDS, mib=1 << 20))
    needs: dict[str, Need] = {
        template.name: need_of(
            ledger, sliced.shape(sliced.slice_ask(layout, template.name)), ShareClass.UNSET
        )
        for template in layout.templates
    }
    rows = np.array([row])
    held: list[Booking] = []
    for step in range(steps):
        if held and rng.random() < 0.45:
            ledger.remove(held.pop(rng.randrange(len(held))))
        else:
            need = needs[rng.choice(layout.templates).name]
            room = int(rooms(ledger, need, rows)[0][0])
            assignment = Board(ledger, row).choose(need, BINPACK.cards)
            assert (assignment is not None) == (room > 0)
            if assignment is not None:
                starts = starts_of(ledger, need, row, assignment)
                booking = Booking(row, (0, 0, 0, 0), seats_of(need, assignment, 1000, starts))
                ledger.add(booking)
                held.append(booking)
        if step % 7 == 0:
            recount(ledger, row, layout, held)
    recount(ledger, row, layout, held)
    ledger.remove_all(held)
    recount(ledger, row, layout, [])
    ledger.add_all(held)
    recount(ledger, row, layout, held)
    for booking in held:
        ledger.remove(booking)
    recount(ledger, row, layout, [])


def recount(ledger: Ledger, row: int, layout: Layout, held: list[Booking]) -> None:
    for col in range(CARDS):
        seats = [seat for booking in held for seat in booking.seats if seat.col == col]
        slices = [Held(seat.slice, seat.start) for seat in seats]
        assert not layout.misfit(slices)
        base = ledger.cuts.catalogue.enter(layout)
        assert ledger.slices[row, col] == base + compiled(layout).state_of(slices)


@by_layout
def test_slices_come_and_go(layout: Layout) -> None:
    walk(layout, 2_000, RUN)


@pytest.mark.long
@by_layout
def test_slices_come_and_go_for_long(layout: Layout) -> None:
    walk(layout, 100_000, RUN)


@by_layout
def test_what_was_seated_on_paper_is_taken_back_in_any_order(layout: Layout) -> None:
    rng = random.Random(RUN)
    ledger = Ledger()
    row = ledger.put_node(sliced.node("n", layout, cards=1, mib=1 << 20))
    for _ in range(100):
        board = Board(ledger, row)
        taken = []
        for _ in range(12):
            template = rng.choice(layout.templates).name
            ask = sliced.shape(sliced.slice_ask(layout, template))
            need = need_of(ledger, ask, ShareClass.LOW)
            assignment = board.choose(need, BINPACK.cards)
            if assignment is not None:
                taken.append((need, assignment))
        rng.shuffle(taken)
        for need, assignment in taken:
            board.undo(need, assignment)
        assert board.slots[0].state() == Board(ledger, row).slots[0].state()
