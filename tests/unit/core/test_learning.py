"""What usual work is: learned from what comes, by a value that goes in and one that comes out."""

import pytest
from unit.core import make
from vc_egpu.core.model.cluster import CardAsk, PodShape, Resources
from vc_egpu.core.placing.learning import (
    AT_MOST_EVERY,
    ENDS_THAT_TELL,
    FIRST_AT,
    MOST_CLASSES,
    Experience,
    ended,
    kind_of,
    placed,
    seen,
)

SMALL = make.shape(8192)
LARGE = make.shape(make.H20_MIB, cards=4)
BARE = make.shape(0)


def came(*shapes: PodShape, times: int = 1, now: Experience | None = None) -> Experience:
    now = now or Experience()
    for _ in range(times):
        now = seen(now, shapes)
    return now


def test_nothing_is_told_by_a_few_pods() -> None:
    assert came(SMALL, times=FIRST_AT - 1).mix.classes == ()
    assert len(came(SMALL, times=FIRST_AT).mix.classes) == 1


def test_classes_have_their_parts_and_what_they_ask_for() -> None:
    mix = came(SMALL, SMALL, LARGE, BARE, times=25).mix
    assert sorted(round(each.frequency, 2) for each in mix.classes) == [0.25, 0.25, 0.5]
    large = next(each for each in mix.classes if each.cards == 4)
    assert (large.memory_mib, large.model, large.cpu_milli) == (make.H20_MIB, "h20", 1000)
    assert [each.model for each in mix.classes if not each.cards] == [""]


def test_the_mix_changes_at_few_moments_only() -> None:
    now, changes, before = Experience(), [], None
    for number in range(1, 8001):
        now = seen(now, [SMALL])
        if now.mix.classes is not before:
            changes.append(number)
            before = now.mix.classes
    before_first = [number for number in changes if number >= FIRST_AT]
    assert before_first == [50, 100, 200, 400, 800, 1600, 3200, 5200, 7200]


def test_old_pods_count_less() -> None:
    now = came(SMALL, times=4000)
    now = came(LARGE, times=AT_MOST_EVERY * 4, now=now)
    parts = {each.cards: each.frequency for each in now.mix.classes}
    assert parts[1] < 0.25 < parts[4]


def test_a_value_does_not_change() -> None:
    before = came(SMALL, times=10)
    counts = dict(before.counts)
    seen(before, [LARGE])
    ended(before, SMALL, 5.0)
    assert before.counts == counts


def test_churn_is_what_comes_back_of_what_is_given() -> None:
    now = came(SMALL, times=60)
    assert now.mix.churn == 0
    for _ in range(400):
        now = placed(seen(now, [SMALL]), [SMALL])
    assert now.mix.churn == 0
    for _ in range(200):
        now = ended(now, SMALL, 10.0)
    assert now.mix.churn == pytest.approx(0.5, abs=0.05)
    assert placed(now, [BARE]) is now, "pods without cards are no churn of cards"
    assert ended(now, BARE, 10.0) is now


def test_demand_is_by_time_once_enough_pods_have_ended() -> None:
    now = came(SMALL, LARGE, times=30)
    assert {each.hold_s for each in now.mix.classes} == {1.0}
    for _ in range(ENDS_THAT_TELL // 2):
        now = ended(ended(now, SMALL, 10.0), LARGE, 1e9)
    now = came(SMALL, LARGE, times=200, now=now)
    hold = {each.cards: each.hold_s for each in now.mix.classes}
    assert hold[4] / hold[1] == pytest.approx(6 * 3600 / 10, rel=0.01), "no pod counts more than six hours"


def test_as_many_kinds_as_somebody_makes_are_bounded() -> None:
    now = Experience()
    for number in range(2 * AT_MOST_EVERY):
        now = seen(now, [make.shape(1000 + number)])
    assert len(now.mix.classes) <= MOST_CLASSES
    assert len(now.counts) <= MOST_CLASSES + AT_MOST_EVERY


def test_a_pod_of_several_asks_counts_as_its_largest() -> None:
    asks = (CardAsk("a", "h20", 1, 1000, 10), CardAsk("b", "h20", 2, 9000, 0))
    kind = kind_of(PodShape(asks=asks, requests=Resources(500)))
    assert (kind.cards, kind.memory_mib, kind.cpu_milli) == (3, 9000, 500)
