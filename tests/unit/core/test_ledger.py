"""The ledger: exact inverses, growth, amounts that would wrap; and the arithmetic of how many fit."""

import random
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from unit.core import make
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import candidates, need_of, not_full, places, rooms
from vc_egpu.core.books.ledger import BOOKED, Ledger
from vc_egpu.core.model.cluster import (
    CardAsk,
    CardId,
    Mode,
    NodeName,
    PodShape,
    Resources,
    Share,
    ShareClass,
)
from vc_egpu.core.model.resources import AMOUNT_LIMIT, amounts, clamp
from vc_egpu.core.placing.pack import Board, fill
from vc_egpu.core.placing.policies import BINPACK, ROOMIEST, SPREAD
from vc_egpu.core.topology.groups import pods_by_cards

NAMES = ("memory_used", "high_cores", "low_cores", "all_cores", "sharers", "alone", "used", "row_memory")


def totals(ledger: Ledger) -> dict[str, int]:
    return {name: int(getattr(ledger, name).sum()) for name in NAMES}


def fits(ledger: Ledger, shape: PodShape, share_class: ShareClass = ShareClass.UNSET) -> int:
    return places(ledger, need_of(ledger, shape, share_class), np.ones(len(ledger.names), np.bool_))


def book(ledger: Ledger, node: str, shape: PodShape, share_class: ShareClass, *cards: str) -> None:
    ask = shape.asks[0]
    shares = [Share(CardId(card), ask.memory_mib, ask.cores_percent, ask.whole, ask.native) for card in cards]
    booking = ledger.booking(NodeName(node), shape, shares, share_class)
    assert booking is not None
    ledger.add(booking)


@pytest.mark.parametrize("count", [3, 200])
def test_many_at_once_are_the_same_as_one_after_the_other(count: int) -> None:
    rng, ledger, gone = random.Random(2), Ledger(), list[Booking]()
    for name in ("n1", "n2"):
        ledger.put_node(make.node(name, 4))
    shape = replace(
        make.shape(1000, 10),
        requests=Resources(100, 1000, 7, scalars={"example.org/a": 2}),
        host_ports=(("", "TCP", 80),),
    )
    for number in range(2 * count):
        node = f"n{1 + number % 2}"
        shares = [Share(CardId(f"{node}/{rng.randrange(4)}"), rng.randrange(9000), rng.randrange(100))]
        booking = ledger.booking(NodeName(node), shape, shares, rng.choice(list(ShareClass)))
        assert booking is not None
        bookings = [booking, booking.suspended(), booking.leaving()] if number % 3 else [booking]
        for one in bookings:
            ledger.add(one)
        if number < count:
            gone += bookings
    other = ledger.copy()
    other.remove_all(gone)
    other.add_all(gone)
    other.remove_all(gone)
    for booking in gone:
        ledger.remove(booking)
    for name in BOOKED:
        if name != "states":  # a number of its own for each change
            assert np.array_equal(getattr(ledger, name), getattr(other, name)), name
    assert ledger.ports == other.ports
    assert ledger.slot_used.keys() == other.slot_used.keys()
    assert all(np.array_equal(ledger.slot_used[name], other.slot_used[name]) for name in ledger.slot_used)
    assert ledger.most_free() == other.most_free()


def test_remove_undoes_add() -> None:
    ledger = Ledger()
    ledger.put_node(make.node("n1", 4))
    empty = totals(ledger)
    rng = random.Random(1)
    bookings = []
    for _ in range(50):
        shares = [Share(CardId(f"n1/{rng.randrange(4)}"), rng.randrange(9000), rng.randrange(100))]
        booking = ledger.booking(NodeName("n1"), make.shape(1000, 10), shares, rng.choice(list(ShareClass)))
        assert booking is not None
        ledger.add(booking)
        bookings.append(booking)
    assert totals(ledger) != empty
    rng.shuffle(bookings)
    for booking in bookings:
        ledger.remove(booking)
    assert totals(ledger) == empty


def test_it_grows_in_nodes_and_in_cards_and_reuses_rows() -> None:
    ledger = Ledger()
    for number in range(40):
        ledger.put_node(make.node(f"n{number}", 2))
    book(ledger, "n7", make.shape(1024, 10), ShareClass.LOW, "n7/1")
    ledger.put_node(make.node("wide", 16))
    assert fits(ledger, make.shape(make.H20_MIB, 100, asks=(CardAsk("m", "h20", 16, make.H20_MIB, 0),))) == 1
    row = ledger.rows[NodeName("n7")]
    assert ledger.memory_used[row].tolist()[:2] == [0, 1024]
    gone = ledger.rows[NodeName("n3")]
    ledger.remove_node(NodeName("n3"))
    assert fits(ledger, make.shape(make.H20_MIB, 100)) == 39 * 2 + 16 - 1
    assert ledger.put_node(make.node("new", 1)) == gone


def test_an_ask_that_no_sum_could_hold_fits_nowhere_and_wraps_nothing() -> None:
    ledger = Ledger()
    ledger.put_node(make.node("n1", 2))
    huge = 10**30
    assert clamp(huge) == AMOUNT_LIMIT
    assert clamp(-5) == 0
    assert fits(ledger, PodShape(asks=(CardAsk("m", "h20", 1, huge, 0),))) == 0
    assert fits(ledger, PodShape(requests=Resources(cpu_milli=huge))) == 0
    assert fits(ledger, PodShape(requests=Resources(memory_bytes=-1))) == 0, (
        "a negative request is no request"
    )
    for _ in range(1000):
        book(ledger, "n1", PodShape((CardAsk("m", "h20", 1, huge, 0),), Resources(huge, huge, huge)),
             ShareClass.LOW, "n1/0")  # fmt: skip
    assert int(ledger.memory_used.min()) >= 0
    assert int(ledger.used.min()) >= 0
    assert fits(ledger, make.shape(1024, 10)) == 0, "the node's cpu is more than taken"
    assert amounts(PodShape(requests=Resources(cpu_milli=-7))) == {"pods": 1}


@pytest.mark.parametrize(
    ("there", "asks", "count"),
    [
        ([], (50, 0), 2 * 2),
        ([(ShareClass.LOW, 60, 100)], (30, 0), 1 + 3),
        ([(ShareClass.HIGH, 10, 80)], (1, 20), 1 + 5),
        ([(ShareClass.UNSET, 10, 60)], (1, 50), 0 + 2),
    ],
    ids=["memory", "memory beside low", "cores beside high", "cores beside unset"],
)
def test_room_on_two_cards_for_unset(
    there: list[tuple[ShareClass, int, int]], asks: tuple[int, int], count: int
) -> None:
    """Memory in hundredths of a card of 96 GiB, rounded down so that two halves fit."""
    ledger = Ledger()
    ledger.put_node(make.node("n1", 2))
    for share_class, percent, cores in there:
        book(ledger, "n1", make.shape(make.H20_MIB * percent // 100, cores), share_class, "n1/0")
    assert fits(ledger, make.shape(make.H20_MIB * asks[0] // 100, asks[1])) == count


def test_high_takes_the_time_of_low_and_not_of_unset() -> None:
    ledger = Ledger()
    ledger.put_node(make.node("n1", 1))
    book(ledger, "n1", make.shape(1024, 100), ShareClass.LOW, "n1/0")
    need = need_of(ledger, make.shape(1024, 50), ShareClass.HIGH)
    room, calm = rooms(ledger, need, candidates(ledger, need, np.ones(len(ledger.names), np.bool_)))
    assert (room.tolist(), calm.tolist()) == ([2], [0])
    assert fits(ledger, make.shape(1024, 1), ShareClass.UNSET) == 0
    assert fits(ledger, make.shape(1024, 0), ShareClass.UNSET) > 0, "no cores: it uses what is idle"
    assert fits(ledger, make.shape(1024, 1), ShareClass.LOW) == 0


def test_core_ratio_of_a_node() -> None:
    ledger = Ledger()
    ledger.put_node(make.node("n1", 1, core_ratio=1.5))
    assert fits(ledger, make.shape(1024, 50)) == 3


def test_a_ratio_promises_what_it_says() -> None:
    ledger = Ledger()
    for percent in range(1, 1001):
        row = ledger.put_node(make.node("n1", 1, core_ratio=percent / 100, memory_ratio=percent / 100))
        assert int(ledger.high_cap[row]) == percent
        assert int(ledger.memory_cap[row, 0]) == make.H20_MIB * percent // 100


@pytest.mark.parametrize("ratio", [1.6667, 1.2345, 1.9999, 0.66666667])
def test_what_is_promised_is_never_above_the_ratio(ratio: float) -> None:
    """The agent goes by the ratio as it is written, and lets nothing in beyond it."""
    ledger = Ledger()
    row = ledger.put_node(make.node("n1", 1, core_ratio=ratio, memory_ratio=ratio))
    assert int(ledger.memory_cap[row, 0]) <= make.H20_MIB * ratio
    assert int(ledger.high_cap[row]) <= 100 * ratio


def test_whole_and_native_cards_stand_alone() -> None:
    whole = make.shape(asks=(CardAsk("m", "h20", 1, make.H20_MIB, 100, whole=True),))
    native = make.shape(asks=(CardAsk("m", "h20", 1, make.H20_MIB, 100, native=True),))
    ledger = Ledger()
    ledger.put_node(make.node("n1", 2))
    ledger.put_node(make.node("n2", 2, mode=Mode.NATIVE))
    assert (fits(ledger, whole), fits(ledger, native)) == (2, 2)
    book(ledger, "n1", make.shape(1, 0), ShareClass.LOW, "n1/0")
    assert fits(ledger, whole) == 1
    book(ledger, "n1", whole, ShareClass.LOW, "n1/1")
    assert fits(ledger, make.shape(40960, 0), ShareClass.HIGH) == 2, "only beside the small share"


def test_a_whole_card_stands_alone_where_a_node_promises_more_than_there_is() -> None:
    ask = CardAsk("m", "h20", 1, make.H20_MIB, 50, spill=True)
    whole = make.shape(asks=(replace(ask, whole=True),))
    native = make.shape(asks=(replace(ask, native=True),))
    ledger = Ledger()
    stretched: dict[str, Any] = {"memory_ratio": 2.0, "core_ratio": 2.0}
    ledger.put_node(make.node("n2", 2, mode=Mode.NATIVE, **stretched))
    ledger.put_node(make.node("n1", 2, **stretched))
    assert (fits(ledger, whole), fits(ledger, native)) == (2, 2), (
        "none of it goes to the host, which has no room"
    )
    ledger.put_node(make.node("n1", 2, host_memory_mib=9 * make.H20_MIB, **stretched))
    assert (fits(ledger, whole), fits(ledger, make.shape(asks=(ask,)))) == (2, 4), "others would share them"
    book(ledger, "n1", make.shape(1, 0), ShareClass.LOW, "n1/0")
    assert fits(ledger, whole) == 1
    book(ledger, "n1", whole, ShareClass.LOW, "n1/1")
    assert fits(ledger, make.shape(make.H20_MIB // 2, 0)) == 1, (
        "beside the small share, none beside the whole"
    )


@pytest.mark.parametrize(("most", "count"), [(1, 0), (2, 1)])
def test_a_whole_card_over_suspended_shares_is_one_of_its_sharers(most: int, count: int) -> None:
    whole = make.shape(asks=(CardAsk("m", "h20", 1, make.H20_MIB, 100, whole=True),))
    ledger = Ledger()
    ledger.put_node(make.node("n1", 1, max_sharers=most, host_memory_mib=make.H20_MIB))
    share = Share(CardId("n1/0"), 1024, 10)
    there = ledger.booking(NodeName("n1"), make.shape(1024, 10), [share], ShareClass.LOW)
    assert there is not None
    ledger.add(there.suspended())
    assert fits(ledger, whole) == count


def test_one_container_that_spills_is_enough_to_need_room_on_the_host() -> None:
    ask = CardAsk("a", "h20", 1, 100, 0)
    shape = make.shape(asks=(ask, replace(ask, container="b", spill=True)))
    for host_mib, count in ((49, 0), (50, 1), (149, 2)):
        ledger = Ledger()
        row = ledger.put_node(make.node("n1", 1, memory_ratio=2.0, host_memory_mib=host_mib))
        need = need_of(ledger, shape, ShareClass.LOW)
        assert fits(ledger, shape) == count
        assert len(fill(Board(ledger, row), need, 9, ROOMIEST)) == count


def test_what_counts_as_room_is_what_can_be_seated() -> None:
    """Of alike pods with one ask, by any policy, on a node with whatever ratios, host memory and shares."""
    rng = random.Random(13)
    some = 0
    for _ in range(200):
        ratios: dict[str, Any] = {
            "core_ratio": rng.choice([1.0, 1.5]),
            "memory_ratio": rng.choice([0.9, 1.0, 1.7]),
        }
        for_class = rng.choice([None, *ShareClass])
        host = rng.choice([0, 40, 400])
        node = make.node(
            "n1", 3, host_memory_mib=host, max_sharers=rng.randint(2, 6), ratio_class=for_class, **ratios
        )
        ledger = Ledger()
        row = ledger.put_node(
            replace(node, cards=tuple(replace(card, memory_mib=100) for card in node.cards))
        )
        for _ in range(rng.randrange(5)):
            share = Share(
                CardId(f"n1/{rng.randrange(3)}"), rng.randint(1, 60), rng.choice([0, 30]), rng.random() < 0.1
            )
            there = ledger.booking(NodeName("n1"), PodShape(), [share], rng.choice(list(ShareClass)))
            assert there is not None
            ledger.add(there.suspended() if rng.random() < 0.2 else there)
        whole, limit = rng.random() < 0.2, rng.choice([None, 0, 20])
        memory_mib, cores = rng.randint(5, 60), rng.choice([0, 20, 50])
        ask = CardAsk("m", "h20", rng.choice([1, 1, 2, 3]), memory_mib, cores, whole=whole)
        ask = replace(ask, spill=rng.random() < 0.7, host_limit_mib=limit)
        need = need_of(ledger, PodShape(asks=(ask,)), rng.choice(list(ShareClass)))
        room = int(rooms(ledger, need, np.array([row]))[0][0])
        for policy in (BINPACK.cards, SPREAD.cards, ROOMIEST):
            for count in (room, room + 1):
                seated = len(fill(Board(ledger, row), need, count, policy))
                assert seated == room, (policy, node, ask)
        some += room > 0
    assert 40 < some < 180


@pytest.mark.parametrize(
    ("asks", "count"),
    [
        (Resources(1600), 3),
        (Resources(memory_bytes=30), 2),
        (Resources(ephemeral_bytes=20), 4),
        (Resources(), 5),
        (Resources(scalars={"rdma/hca": 1}), 1),
        (Resources(scalars={"rdma/hca": 2}), 0),
        (Resources(scalars={"fpga/card": 1}), 0),
        (Resources(scalars={"fpga/card": 0}), 5),
    ],
    ids=["cpu", "memory", "disk", "pods", "a device", "two devices", "one that no node has", "none of that"],
)
def test_pods_without_cards_are_as_many_as_the_node_has_room_for(asks: Resources, count: int) -> None:
    ledger = Ledger()
    ledger.put_node(make.node("n1", allocatable=Resources(7000, 100, 100, 7, {"rdma/hca": 7})))
    there = make.shape(1, 0, requests=Resources(1000, 20, 5, scalars={"rdma/hca": 3}))
    for card in ("n1/0", "n1/1"):
        book(ledger, "n1", there, ShareClass.LOW, card)
    assert fits(ledger, PodShape(requests=asks)) == count


@pytest.mark.parametrize(
    ("there", "asked", "free"),
    [
        (("", "TCP", 80), ("", "TCP", 80), False),
        (("", "TCP", 80), ("", "UDP", 80), True),
        (("", "TCP", 80), ("", "TCP", 81), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), False),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("0.0.0.0", "TCP", 80), False),
        (("::", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
    ],
)
def test_a_host_port_is_taken_on_its_address_and_on_all(
    there: tuple[str, str, int], asked: tuple[str, str, int], *, free: bool
) -> None:
    ledger = Ledger()
    ledger.put_node(make.node("n1"))
    other = ("10.0.0.9", "TCP", 9)
    booking = ledger.booking(NodeName("n1"), PodShape(host_ports=(other, there)), [], ShareClass.LOW)
    assert booking is not None
    ledger.add(booking)
    assert fits(ledger, PodShape(host_ports=(asked,))) == int(free)


def test_slots_bound_where_the_kubelet_reports_any() -> None:
    name = "volcano.sh/vgpu-h20"
    ledger = Ledger()
    ledger.put_node(make.node("bounded", 2, slots={name: 3}))
    assert (fits(ledger, make.shape(1024, 0)), fits(ledger, make.shape(1024, 0, cards=2))) == (3, 1)
    ledger.put_node(make.node("not-yet", 1))
    assert fits(ledger, make.shape(1024, 0)) == 3 + min(96, 64)
    ledger.put_node(make.node("other", 1, slots={"volcano.sh/vgpu-t4": 9}))
    assert fits(ledger, make.shape(1024, 0)) == 3 + 64, "slots of another model are none of this"


def test_pods_by_cards_agrees_with_trying() -> None:
    rng = random.Random(5)

    def tried(copies: tuple[int, ...], cards: int) -> int:
        best = 0
        for chosen in combinations(range(len(copies)), cards):
            if all(copies[i] for i in chosen):
                rest = tuple(n - (i in chosen) for i, n in enumerate(copies))
                best = max(best, 1 + tried(rest, cards))
        return best

    for _ in range(150):
        copies = tuple(rng.randint(0, 3) for _ in range(4))
        cards = rng.randint(1, 4)
        assert int(pods_by_cards(np.array([copies]), cards)[0]) == tried(copies, cards), (copies, cards)


def test_what_is_left_out_as_full_has_no_room() -> None:
    rng = random.Random(7)
    left_out = 0
    for _ in range(60):
        ledger = Ledger()
        for number in range(6):
            ledger.put_node(make.node(f"n{number}", 2, memory_ratio=rng.choice([1.0, 1.5])))
            for _ in range(rng.randrange(4)):
                shape = make.shape(rng.randrange(1, make.H20_MIB), rng.choice([0, 30]))
                book(
                    ledger, f"n{number}", shape, rng.choice(list(ShareClass)), f"n{number}/{rng.randrange(2)}"
                )
        asks = [
            CardAsk(f"c{i}", "h20", 1, rng.randrange(1, make.H20_MIB), 10) for i in range(rng.randrange(3))
        ]
        need = need_of(ledger, make.shape(asks=tuple(asks)), rng.choice(list(ShareClass)))
        rows = candidates(ledger, need, np.ones(len(ledger.names), np.bool_))
        some = rows[rooms(ledger, need, rows)[0] > 0].tolist()
        kept = not_full(ledger, need, rows).tolist()
        assert set(some) <= set(kept) <= set(rows.tolist())
        assert kept == sorted(kept)
        left_out += len(rows) - len(kept)
    assert left_out > 20, "it is good for something"


def test_a_copy_into_a_spare_one_is_the_same_as_a_new_one() -> None:
    """Whatever was booked on either in between, and whatever copies were made and given up."""
    rng = random.Random(11)
    ledger = Ledger()
    spares: list[Ledger] = []
    for turn in range(300):
        if rng.random() < 0.1 or not ledger.rows:
            ledger.put_node(make.node(f"n{rng.randrange(60)}", rng.choice([2, 2, 2, 12])))
        for one in (ledger, *spares):
            for _ in range(rng.randrange(4)):
                node = rng.choice(sorted(ledger.rows))
                share = Share(CardId(f"{node}/{rng.randrange(2)}"), rng.randrange(900), 10)
                booking = one.booking(
                    NodeName(node), make.shape(100, 10), [share], rng.choice(list(ShareClass))
                )
                assert booking is not None
                rng.choice([one.add, one.add, one.remove])(booking)
        copy = ledger.copy(spares.pop(rng.randrange(len(spares))) if spares else None)
        for name in BOOKED:
            assert np.array_equal(getattr(copy, name), getattr(ledger, name)), (turn, name)
            assert getattr(copy, name) is not getattr(ledger, name)
        if rng.random() < 0.9:
            spares.append(copy)
