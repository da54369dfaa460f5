"""Which of a node's cards a share gets."""

from dataclasses import replace

import pytest
from unit.core import make
from unit.core.asked import HIGH, LOW, ask
from vc_egpu.core.cluster import Pod, ShareClass

UNSET = ShareClass.UNSET
There = tuple[int, int, int, ShareClass]
"""(card, percent of its memory, cores, class) of a share that is there."""


def card_of(policy: str, share_class: ShareClass, *there: There, cores: int = 20) -> str:
    """The card of two that a share of a fifth of the memory gets."""
    gangs, pods = [make.gang("g", share_class=share_class)], list[Pod]()
    for number, (card, percent, taken, whose) in enumerate(there):
        gangs.append(make.gang(f"there{number}", share_class=whose))
        what = make.shape(make.H20_MIB * percent // 100, taken)
        pods.append(make.placed(make.pods(f"there{number}", 1, what)[0], f"n1/{card}"))
    pods += make.pods("g", 1, replace(make.shape(make.H20_MIB // 5, cores), card_policy=policy))
    (admission,) = ask(make.snapshot([make.node("n1", 2)], gangs, pods), preemption=False).admissions
    ((_, share),) = admission.members["w/0"].shares
    return str(share.card)


@pytest.mark.parametrize(
    ("there", "card"),
    [
        ([], "n1/0"),
        ([(0, 10, 0, UNSET), (1, 50, 0, UNSET)], "n1/1"),
        ([(0, 10, 0, UNSET), (1, 90, 0, UNSET)], "n1/0"),
        ([(0, 30, 10, UNSET), (1, 30, 60, UNSET)], "n1/1"),
        ([(0, 30, 10, HIGH), (1, 30, 60, HIGH)], "n1/1"),
        ([(0, 30, 10, LOW), (1, 30, 60, LOW)], "n1/1"),
        ([(0, 30, 10, UNSET), (1, 30, 10, UNSET)], "n1/0"),
    ],
    ids=[
        "the first",
        "the fullest",
        "one that has room",
        "fewest cores left",
        "beside high",
        "beside low",
        "alike",
    ],
)
def test_shares_are_packed(there: list[There], card: str) -> None:
    assert card_of("", UNSET, *there) == card
    assert card_of("binpack", UNSET, *there) == card


@pytest.mark.parametrize(
    ("there", "card"),
    [
        ([], "n1/0"),
        ([(0, 10, 0, UNSET), (0, 10, 0, UNSET), (1, 50, 0, UNSET)], "n1/1"),
        ([(0, 50, 0, UNSET), (1, 10, 0, UNSET)], "n1/1"),
        ([(0, 30, 60, UNSET), (1, 30, 10, UNSET)], "n1/1"),
        ([(0, 30, 60, HIGH), (1, 30, 10, HIGH)], "n1/1"),
        ([(0, 30, 60, LOW), (1, 30, 10, LOW)], "n1/1"),
        ([(0, 30, 10, UNSET), (1, 30, 10, UNSET)], "n1/0"),
    ],
    ids=[
        "the first",
        "fewest sharers",
        "most memory left",
        "most cores left",
        "beside high",
        "beside low",
        "alike",
    ],
)
def test_or_spread_where_that_is_asked_for(there: list[There], card: str) -> None:
    assert card_of("spread", UNSET, *there) == card


@pytest.mark.parametrize("policy", ["binpack", "spread"])
@pytest.mark.parametrize(("cores", "card"), [(30, "n1/1"), (10, "n1/0"), (0, "n1/0")])
def test_high_goes_first_where_it_takes_nobodys_time(policy: str, cores: int, card: str) -> None:
    """The policy would have it beside training, where ten cores are left."""
    trains: There = (0, 40, 90, LOW)
    others: list[There] = [(1, 20, 5, UNSET)] if policy == "binpack" else [(1, 20, 5, UNSET)] * 3
    assert card_of(policy, HIGH, trains, *others, cores=cores) == card
