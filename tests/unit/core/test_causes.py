"""The table of causes: every cause has its row, and four of them take gangs."""

from unit.core import make
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.room.causes import RULES, hunts_for
from vc_egpu.core.room.hunt import gangs
from vc_egpu.core.trial.trial import Trial


def trial(*, preemption: bool = True) -> Trial:
    found = [make.gang("high", share_class=ShareClass.HIGH), make.gang("low", share_class=ShareClass.LOW)]
    return Trial(index_of(make.snapshot([make.node("n1", 1)], found, [])), Policy(preemption=preemption), 0.0)


def causes(tried: Trial, key: str) -> list[Cause]:
    view = tried.index.view(key)
    return [hunt.cause for hunt in hunts_for(tried, view, view.waiting)]


def test_every_cause_has_its_row_and_its_sentence() -> None:
    assert set(RULES) == set(Cause)
    for rule in RULES.values():
        assert rule.event
        assert "{" not in rule.said("gang default/g")


def test_only_high_priority_asks_for_victims_where_no_queue_deserves_any() -> None:
    tried = trial()
    assert causes(tried, "high") == [Cause.PRIORITY]
    assert not causes(tried, "low")
    tried = trial(preemption=False)
    assert not causes(tried, "high")


def test_only_low_gangs_are_taken_for_priority() -> None:
    assert {cause for cause, rule in RULES.items() if rule.taking is not None} == {
        Cause.PRIORITY,
        Cause.GUARANTEE,
        Cause.RECLAIM,
        Cause.DEFRAGMENTATION,
    }
    tried = trial()
    view = tried.index.view("high")
    (hunt,) = hunts_for(tried, view, view.waiting)
    assert list(gangs(tried, hunt)) == ["low"]


def test_numbers_of_both_queues_are_told() -> None:
    h20 = "volcano.sh/vgpu-h20"
    accounts = (Account("research", h20, 1_000_000, 4_000_000), Account("serving", h20, 6_250_000, 2_000_000))
    assert RULES[Cause.RECLAIM].said("gang a/b", accounts) == (
        "makes room for gang a/b, whose queue has less than it deserves: "
        "research has 1 of 4 h20, serving has 6.25 of 2 h20"
    )
