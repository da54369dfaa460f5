"""Cards that are taken in turns, next to all other shares: the ledger against the dumb oracle."""

import random

import numpy as np
import pytest
from property import brute
from unit.core import make
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import copies, need_of, rooms
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.model.cluster import CardAsk, CardId, Share, ShareClass
from vc_egpu.core.placing.pack import Board

M = make.H20_MIB


def some_ask(rng: random.Random) -> CardAsk:
    if rng.random() < 0.1:
        return CardAsk("main", "h20", 1, M, 100, whole=True)
    spill = rng.random() < 0.6
    memory = rng.choice([M, M, M // 2, M // 4])
    return CardAsk(
        "main", "h20", 1, memory, rng.choice([0, 0, 50]), spill=spill, swap=spill and rng.random() < 0.7
    )


@pytest.mark.parametrize("seed", range(40))
def test_what_fits_is_what_the_oracle_says(seed: int) -> None:
    rng = random.Random(seed)
    node = make.node(
        "n1", 2, memory_ratio=rng.choice([1.0, 2.0, 3.0]), host_memory_mib=rng.choice([M, 8 * M])
    )
    ledger = Ledger()
    row = ledger.put_node(node)
    (there,) = brute.world(make.snapshot([node]))
    held: list[tuple[brute.BruteCard, brute.Sitting, int, Booking]] = []
    for _ in range(60):
        ask = some_ask(rng)
        shape, cls = make.shape(asks=(ask,)), rng.choice(list(ShareClass))
        need = need_of(ledger, shape, cls)
        counts, _ = copies(ledger, need, need.asks[0], np.array([row]))
        slots = {slot.col: slot for slot in Board(ledger, row).slots}
        here = need.asks[0].here(ledger.ratio_for(row, cls))
        for col, card in enumerate(there.cards):
            expected = there.takes_card(card, ask, cls)
            assert bool(counts[0, col]) == expected, (ask, card.seats)
            assert slots[col].takes(here) == expected, (ask, card.seats)
        fits = bool(rooms(ledger, need, np.array([row]))[0][0])
        assert fits == (
            there.spilled(shape, cls) <= max(there.host, 0)
            and any(there.takes_card(card, ask, cls) for card in there.cards)
        )
        if fits:
            col = next(i for i, card in enumerate(there.cards) if there.takes_card(card, ask, cls))
            card, sitting = there.cards[col], there.seat(ask, cls)
            on_card = there.on_card(ask, cls)
            part = on_card if on_card < ask.memory_mib else None
            share = Share(
                CardId(card.uuid),
                ask.memory_mib,
                ask.cores_percent,
                ask.whole,
                physical_mib=part,
                swap=ask.swap,
            )
            booking = ledger.booking(node.name, None, [share], cls)
            assert booking is not None
            ledger.add(booking)
            card.seats.append(sitting)
            there.host -= (over := there.over(ask, cls))
            held.append((card, sitting, over, booking))
        if held and rng.random() < 0.4:
            card, sitting, over, booking = held.pop(rng.randrange(len(held)))
            card.seats.remove(sitting)
            there.host += over
            ledger.remove(booking)
        assert ledger.host_used[row] == sum(entry[2] for entry in held)
