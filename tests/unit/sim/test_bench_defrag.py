"""The three rules of moving pods on a small trace: what they report is so, and none breaks an invariant."""

import random

import pytest
from bench.defrag import RULES, Begin, begin, measure
from unit.sim.test_openb import folder_of
from vc_egpu.core.model.policy import OURS


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Begin:
    folder = folder_of(tmp_path_factory.mktemp("openb"), random.Random(5), nodes=16, pods=120)
    return begin(folder, "tiny", 42, OURS)


def test_each_rule_says_what_it_won(begun: Begin) -> None:
    assert begun.dropped
    found = {rule: measure(begun, rule, 0.2) for rule in RULES}
    for rule, figures in found.items():
        assert figures["begin"] == found["nothing"]["begin"]
        won = (figures["end"] - figures["begin"]) / 100 * begun.cards_milli / 1000
        assert figures["cards_won"] == pytest.approx(won)
        if rule != "authors":
            assert figures["lost"] == 0, "no pod leaves without another place"
            assert figures["cards_won"] >= 0
    assert found["nothing"]["moved"] == 0
    assert found["authors"]["moved"] <= 0.2 * begun.pods + 1
    assert found["fragments"]["moved"] <= 0.2 * begun.pods + 1


def test_equal_runs_are_equal(begun: Begin) -> None:
    for rule in RULES:
        assert measure(begun, rule, 0.1) == measure(begun, rule, 0.1)
