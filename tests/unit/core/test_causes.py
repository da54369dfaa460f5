"""The table of causes: every cause has its row, and only priority takes gangs today."""

from unit.core import make
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.room.causes import RULES, cause_for
from vc_egpu.core.trial.trial import Trial


def trial(*, preemption: bool = True) -> Trial:
    gangs = [make.gang("high", share_class=ShareClass.HIGH), make.gang("low", share_class=ShareClass.LOW)]
    return Trial(index_of(make.snapshot([make.node("n1", 1)], gangs, [])), Policy(preemption=preemption), 0.0)


def test_every_cause_has_its_row_and_its_sentence() -> None:
    assert set(RULES) == set(Cause)
    for rule in RULES.values():
        assert rule.event
        assert "{" not in rule.said("gang default/g")


def test_only_high_priority_asks_for_victims() -> None:
    tried = trial()
    assert cause_for(tried, tried.index.view("high")) is Cause.PRIORITY
    assert cause_for(tried, tried.index.view("low")) is None
    tried = trial(preemption=False)
    assert cause_for(tried, tried.index.view("high")) is None


def test_only_low_gangs_are_taken_for_priority() -> None:
    taking = {cause: rule.taking for cause, rule in RULES.items() if rule.taking is not None}
    assert set(taking) == {Cause.PRIORITY}
    assert list(taking[Cause.PRIORITY].gangs(trial())) == ["low"]
