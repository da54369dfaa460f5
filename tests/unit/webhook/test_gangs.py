"""How much a gang needs at the least, how large it may be, and whether it could ever come together."""

from itertools import product
from typing import Any

import pytest
from vc_egpu.core.model.gangs import too_few
from vc_egpu.jobs.objects.podgroups import job_group_spec
from vc_egpu.jobs.rules.defaults import complete, problems
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.views import World
from vc_egpu.volcano.api.job import Job
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


MASTER = {"name": "master", "replicas": 4, "minAvailable": 2}
WORK = {"name": "work", "replicas": 2, "minAvailable": 1, "dependsOn": {"name": ["master"]}}


def members(job: Job) -> list[Members]:
    return [
        Members(
            each.name,
            each.replicas,
            each.min_available or 0,
            {},
            waits_for=tuple(each.depends_on.name) if each.depends_on is not None else (),
            any_will_do=each.depends_on is not None and each.depends_on.iteration == "any",
        )
        for each in job.spec.tasks
    ]


def job(*tasks: dict[str, Any], least: int) -> Job:
    spec = {"minAvailable": least, "tasks": [{**one, "template": {"spec": CONTAINERS}} for one in tasks]}
    return complete(Job.parse({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": spec}))


CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}


def door(found: Job) -> str:
    try:
        check_minimums(members(found), found.spec.min_available)
    except Refusal as refusal:
        return str(refusal)
    return ""


def test_a_task_that_is_made_later_has_no_minimum_in_a_gang_that_waits_for_it() -> None:
    assert door(job(MASTER, WORK, least=3)) == (
        "spec.tasks[\"work\"].minAvailable: the gang needs 1 of task 'work', which are made only "
        "once 'master' runs (dependsOn): it could never start; "
        "set it to 0, or name at most 2 as spec.minAvailable"
    )
    assert door(job(MASTER, WORK, least=2)) == door(job(MASTER, {**WORK, "minAvailable": 0}, least=3)) == ""


def test_the_advice_of_a_refusal_is_not_refused_in_turn() -> None:
    assert "name at most 2" in door(job(MASTER, WORK, least=5)), "4 masters are no gang without a worker"


def starts(found: Job) -> bool:
    """Whether the decision takes what is made first for complete, by the PodGroup that goes with it."""
    spec = job_group_spec(found, {})
    made = [task.name for task, _ in decide(World(found, now=1.0)).create]
    counts = {name: made.count(name) for name in made}
    return too_few(spec["minMember"], spec["minTaskMember"], counts) is None


def test_the_door_lets_in_what_the_decision_can_start_and_nothing_else() -> None:
    """Tried on all small Jobs of three tasks: some are made once another runs, or any of two does."""
    verdicts = set()
    waits: list[dict[str, Any]] = [
        {},
        {"dependsOn": {"name": ["a"]}},
        {"dependsOn": {"name": ["a", "b"], "iteration": "any"}},
    ]
    numbers = [(1, 0), (2, 1), (2, 2)]
    for a, b, c in product(numbers, repeat=3):
        for of_b, of_c, least in product(waits[:2], waits, range(1, 7)):
            sizes = [{"replicas": n, "minAvailable": m} for n, m in (a, b, c)]
            names = [{"name": "a"}, {"name": "b", **of_b}, {"name": "c", **of_c}]
            found = job(*({**name, **size} for name, size in zip(names, sizes, strict=True)), least=least)
            if not problems(found):
                refusal = door(found)
                assert (refusal == "") is starts(found), (refusal, found.spec)
                verdicts.add(refusal == "")
    assert verdicts == {True, False}
