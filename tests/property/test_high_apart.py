"""High and low gangs of several pods on no card together, where operators say so: against dumb oracles."""

import random
from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest
import seeds
from property import brute
from unit.core import make
from vc_egpu.core.books.booking import Booking
from vc_egpu.core.books.capacity import copies, need_of, rooms
from vc_egpu.core.books.ledger import Ledger
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import CardAsk, CardId, Gang, Pod, Share, ShareClass, Snapshot
from vc_egpu.core.model.plan import Admission
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.placing.pack import Board

M = make.H20_MIB
HIGH, LOW = ShareClass.HIGH, ShareClass.LOW
APART = Policy(high_apart=True, reclaim=False)
NOW = 2000.0
WORLDS = 60

Party = tuple[ShareClass, bool]
"""A share's class, and whether its gang is of several pods."""


def clash(parties: Iterable[Party]) -> bool:
    """The rule, spelt out."""
    there = set(parties)
    return (LOW, True) in there and any(cls is HIGH for cls, _ in there)


# --- the ledger ------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_what_fits_on_a_card_is_what_the_oracle_says(seed: int, apart: bool) -> None:
    rng = random.Random(seed)
    node = make.node("n1", 2)
    ledger = Ledger()
    row = ledger.put_node(node)
    ledger.apart = apart
    (there,) = brute.world(make.snapshot([node]))
    held: list[tuple[int, brute.Sitting, Party, Booking]] = []
    for _ in range(60):
        ask = CardAsk("main", "h20", 1, rng.choice([M // 2, M // 8, M // 16]), rng.choice([0, 10, 60]))
        party = (rng.choice(list(ShareClass)), rng.random() < 0.5)
        need = need_of(ledger, make.shape(asks=(ask,)), party[0], several=party[1])
        counts, _ = copies(ledger, need, need.asks[0], np.array([row]))
        slots = {slot.col: slot for slot in Board(ledger, row).slots}
        open_to = []
        for col, card in enumerate(there.cards):
            near = [other for at, _, other, _ in held if at == col]
            expected = there.takes_card(card, ask, party[0]) and not (apart and clash([*near, party]))
            assert bool(counts[0, col]) == expected, (ask, party, near)
            assert slots[col].takes(need.asks[0]) == expected, (ask, party, near)
            open_to += [col] * expected
        assert bool(rooms(ledger, need, np.array([row]))[0][0]) == bool(open_to)
        if open_to:
            col = rng.choice(open_to)
            share = Share(CardId(there.cards[col].uuid), ask.memory_mib, ask.cores_percent)
            booking = ledger.booking(node.name, None, [share], party[0], several=party[1])
            assert booking is not None
            ledger.add(booking)
            there.cards[col].seats.append(there.seat(ask, party[0]))
            held.append((col, there.cards[col].seats[-1], party, booking))
        if held and rng.random() < 0.4:
            col, sitting, _, booking = held.pop(rng.randrange(len(held)))
            there.cards[col].seats.remove(sitting)
            ledger.remove(booking)
        assert bool(ledger.within_limits(np.array([row]))[0])


# --- decisions -------------------------------------------------------------------------------------


def some_world(rng: random.Random) -> tuple[Snapshot, Gang, list[Pod]]:
    """Three cards, gangs that run on them as the rule allows, and one that asks."""
    nodes = [make.node("n1", 2), make.node("n2", 1)]
    cards = [card.uuid for node in nodes for card in node.cards]
    gangs, pods = [], list[Pod]()
    on: dict[str, list[tuple[Party, int, int]]] = {card: [] for card in cards}
    for at in range(rng.randrange(6)):
        least, cls = rng.choice([1, 2]), rng.choice(list(ShareClass))
        what = make.shape(rng.choice([M // 2, M // 4, M // 8]), rng.choice([10, 30]))
        where = [rng.choice(cards) for _ in range(least)]
        after = {card: list(seats) for card, seats in on.items()}
        for card in where:
            after[card].append(((cls, least > 1), what.asks[0].memory_mib, what.asks[0].cores_percent))
        if any(sum(mib for _, mib, _ in seats) > M for seats in after.values()):
            continue
        if any(sum(cores for _, _, cores in seats) > 100 for seats in after.values()):
            continue
        if any(clash(party for party, _, _ in seats) for seats in after.values()):
            continue
        on = after
        gangs.append(make.gang(f"ns/r{at}", share_class=cls, least=least))
        pods += [make.placed(p, c) for p, c in zip(make.pods(f"ns/r{at}", least, what), where, strict=True)]
    least = rng.choice([1, 2])
    asking = make.gang("ns/asks", share_class=rng.choice([HIGH, LOW, LOW]), least=least, created=1.0)
    what = make.shape(rng.choice([M // 2, M // 4, M]), rng.choice([10, 40]))
    waiting = make.pods("ns/asks", least, what)
    return make.snapshot(nodes, [*gangs, asking], [*pods, *waiting]), asking, waiting


def parties(snapshot: Snapshot, without: Iterable[str] = ()) -> dict[str, list[Party]]:
    """By card: who runs there."""
    found: dict[str, list[Party]] = {card.uuid: [] for n in snapshot.nodes.values() for card in n.cards}
    for pod in snapshot.pods.values():
        gang = snapshot.gangs[pod.gang or ""]
        for _, share in pod.shares if pod.uid not in set(without) else ():
            found[share.card].append((gang.share_class, gang.min_member > 1))
    return found


def placeable(snapshot: Snapshot, gang: Gang, waiting: list[Pod], without: Iterable[str] = ()) -> bool:
    """Every way to put the members on cards is tried."""
    party, near = (gang.share_class, gang.min_member > 1), parties(snapshot, without)
    for where in product(near, repeat=len(waiting)):
        if any(clash([*near[card], party]) for card in where):
            continue
        nodes = brute.world(snapshot, without)
        ask, fits = waiting[0].shape.asks[0], True
        for uuid in where:
            node, card = next((n, c) for n in nodes for c in n.cards if c.uuid == uuid)
            fits = fits and node.takes_card(card, ask, gang.share_class)
            card.seats.append(node.seat(ask, gang.share_class))
        if fits:
            return True
    return False


def answer(snapshot: Snapshot, policy: Policy) -> Admission | None:
    plan = decide(snapshot, policy, NOW, only=["ns/asks"])
    return next((one for one in plan.admissions if one.gang == "ns/asks"), None)


def test_a_gang_is_placed_exactly_where_the_rule_leaves_room() -> None:
    refused = made_room = without_rule = 0
    for seed in seeds.fresh(WORLDS):
        snapshot, gang, waiting = some_world(random.Random(seed))
        found, free = answer(snapshot, APART), placeable(snapshot, gang, waiting)
        gone = [uid for e in found.evictions for uid in e.pods] if found is not None else []
        assert (found is not None and not gone) == free, f"seed {seed}"
        near = parties(snapshot, gone)
        for place in found.members.values() if found is not None else ():
            for _, share in place.shares:
                assert not clash([*near[share.card], (gang.share_class, gang.min_member > 1)]), f"seed {seed}"
        if found is None and gang.share_class is HIGH:
            low = [p.uid for p in snapshot.pods.values() if snapshot.gangs[p.gang or ""].share_class is LOW]
            assert not placeable(snapshot, gang, waiting, low), f"seed {seed}"
        refused += found is None
        made_room += bool(gone)
        without_rule += (
            not free
            and (other := answer(snapshot, Policy(reclaim=False))) is not None
            and not (other.evictions)
        )
    assert min(refused, made_room, without_rule) > 0, "the worlds are too roomy, or too full"
