"""What decisions remember, of themselves and of earlier ones, changes none: random lives, event by event."""

import random
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import seeds
import soak_sim
from property import generate
from vc_egpu.core.books.capacity import places
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.placing.place import groups_of
from vc_egpu.core.room.reduce import RowCount
from vc_egpu.core.trial.trial import Trial

NODES, LIVES = 12, 2
FILLED, DECISIONS = 150, 60
"""Decisions until the cluster is full, and those that are compared then."""


class Forgetful(dict[object, tuple[int, object]]):
    """Keeps nothing."""

    def __setitem__(self, _key: object, _value: object) -> None:
        return


class PlainTrial(Trial):
    """Works everything out again whenever it is asked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.notes = Forgetful()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [*range(LIVES), *seeds.fresh(LIVES)])
def test_what_is_remembered_changes_no_decision(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    soak = soak_sim.Soak(NODES, seed)
    world, real = soak.world, soak.world.decide
    seen: list[Plan] = []
    number = count()

    def both(only: list[str] | None = None) -> Plan:
        if next(number) < FILLED:
            return real(only)
        snapshot = world.snapshot()
        with monkeypatch.context() as patch:
            patch.setattr("vc_egpu.core.decide.Trial", PlainTrial)
            plain = decide(replace(snapshot, index=None), world.policy, world.now, only)
        plan = real(only)
        assert plan == replace(plain, revision=plan.revision), f"decision {len(seen)} of seed {seed}"
        seen.append(plan)
        return plan

    monkeypatch.setattr(world, "decide", both)
    soak.begin()
    while len(seen) < DECISIONS:
        world.engine.step()
    assert any(plan.admissions for plan in seen)


@pytest.mark.parametrize("seed", seeds.fresh(60))
def test_equal_books_have_equal_signatures_and_no_others(seed: int) -> None:
    rng = random.Random(seed)
    index = fresh_index(generate.case(seed).snapshot)
    one, other = index.ledger.copy(), index.ledger.copy()
    bookings = list(index.bookings.values())
    before = one.signature, one.states.tolist()
    for ledger in (one, other):
        rng.shuffle(bookings)
        for booking in bookings[: len(bookings) // 2]:
            ledger.remove(booking)
        ledger.remove_all(bookings[len(bookings) // 2 :])
    assert (one.signature, one.states.tolist()) == (other.signature, other.states.tolist())
    assert one.signature != before[0]
    one.add_all(bookings[:1])
    row = bookings[0].row
    assert one.signature != other.signature
    assert [at for at, state in enumerate(one.states) if state != other.states[at]] == [row]
    one.add_all(bookings[1:] * 30)
    for booking in bookings[1:] * 29:
        one.remove(booking)
    assert (one.signature, one.states.tolist()) == before


@pytest.mark.parametrize("seed", seeds.fresh(60))
def test_places_are_counted_row_by_row_as_all_at_once(seed: int) -> None:
    rng = random.Random(seed)
    case = generate.case(seed)
    trial = Trial(fresh_index(case.snapshot), Policy(), 2000.0)
    view = trial.index.view(case.asking[0])
    group = groups_of(trial, view, view.waiting)[0]
    there = [uid for uid, pod in case.snapshot.pods.items() if pod.phase is PodPhase.PLACED]
    rng.shuffle(there)
    lifted = {uid: trial.lift([uid]) for uid in there}
    counted = RowCount(trial.ledger, group)
    for uid in there:
        trial.put_back(lifted[uid])
        enough = places(trial.ledger, group.need, group.mask) >= len(group.members)
        assert counted.copy().is_enough_after(b.row for b in lifted[uid]) == enough
        if not counted.is_enough_after(b.row for b in lifted[uid]):
            trial.lift([uid])
