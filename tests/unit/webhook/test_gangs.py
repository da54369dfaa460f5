"""How much a gang needs at the least, how large it may be, and whether it could ever come together."""

from typing import Any

import pytest
from vc_egpu.webhook.protocol.context import Settings
from vc_egpu.webhook.protocol.decision import Refusal
from vc_egpu.webhook.reviews.gangs import Members, check_minimums, check_size, least_need

H20 = "volcano.sh/vgpu-h20"


def task(name: str, replicas: int, least: int = 0, shares: int = 0, **more: Any) -> Members:
    return Members(name, replicas, least, {H20: shares}, **more)


@pytest.mark.parametrize(
    ("tasks", "min_available", "need"),
    [
        ([task("w", 4, shares=2)], 2, 4),
        ([task("w", 4, shares=1), task("ps", 2)], 3, 1),
        ([task("w", 4, 2, shares=1), task("ps", 2)], 3, 2),
        ([task("a", 2, 2, shares=1), task("b", 2, 2, shares=3)], 2, 2),
        ([task("a", 2, 1, shares=1), task("b", 2, 2, shares=3)], None, 7),
        ([task("b", 3, shares=2), task("a", 1, shares=1)], 3, 5),
        ([task("a", 3, 2, shares=1), task("b", 3, 1, shares=2)], 5, 7),
    ],
    ids=[
        "some of one task", "the cheapest", "a task's own minimum", "minimums above its own count for none",
        "all minimums", "no more of the cheapest than there are", "the rest beside the minimums",
    ],
)  # fmt: skip
def test_the_least_that_a_gang_needs(tasks: list[Members], min_available: int | None, need: int) -> None:
    assert least_need(tasks, min_available) == {H20: need}


def test_what_nobody_asks_for_is_not_needed() -> None:
    assert least_need([task("ps", 2, 2)], 2) == {}


def test_a_gang_is_as_large_as_its_plan_can_tell() -> None:
    settings = Settings(max_gang_members=4, max_gang_cards=6)
    check_size([task("a", 2, cards=2), task("b", 2, cards=1)], settings, "spec")
    with pytest.raises(Refusal, match="spec: 5 members in all, the largest gang has 4; split the Job"):
        check_size([task("a", 2), task("b", 3)], settings, "spec")
    with pytest.raises(Refusal, match="spec: 7 cards in all, the largest gang has 6; split the Job"):
        check_size([task("a", 3, cards=2), task("b", 1, cards=1)], settings, "spec")


@pytest.mark.parametrize(
    ("waits", "size", "starts"),
    [
        ({"waits_for": ("first",)}, 3, True),
        ({"waits_for": ("first",)}, 4, False),
        ({"waits_for": ("first", "none")}, 4, False),
        ({"waits_for": ("first", "none"), "any_will_do": True}, 4, True),
        ({"waits_for": ("first", "second"), "any_will_do": True}, 4, False),
        ({"waits_for": ("none",)}, 5, True),
        ({"waits_for": ("unknown",)}, 4, False),
        ({}, 5, True),
    ],
)
def test_a_gang_does_not_wait_for_members_that_are_made_only_once_it_runs(
    waits: dict[str, Any], size: int, starts: bool
) -> None:
    """``none`` may have none running: whoever waits for it is made at once."""
    tasks = [task("first", 1, 1), task("second", 1, 1), task("none", 1, 0), task("later", 2, 2, **waits)]
    if starts:
        check_minimums(tasks, size)
    else:
        with pytest.raises(Refusal, match="it could never start; name at most"):
            check_minimums(tasks, size)
