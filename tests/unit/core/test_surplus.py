"""Members above the minimum: each has its place by itself, whatever becomes of the others."""

from dataclasses import replace
from typing import Any

from unit.core import make
from unit.core.asked import HALF, HIGH, LOW, ask
from vc_egpu.core.cluster import Pod, PodShape, Snapshot

LARGE = make.shape(make.H20_MIB, 100, cards=4)
SMALL = make.shape(HALF, 10)


def grows(*waiting: tuple[str, PodShape, int], cards: int = 2, cap: int = 1000, **more: Any) -> Snapshot:
    """A gang of one member that runs, and others of it that wait: (task, shape, how many)."""
    gang = make.gang("g", **more)
    runs = make.placed(make.pods("g", 1, SMALL, task="first")[0], "n1/0")
    pods: list[Pod] = [runs]
    for task, shape, count in waiting:
        pods += make.pods("g", count, shape, task=task)
    queue = make.queue(capability={"volcano.sh/vgpu-h20": cap})
    return make.snapshot([make.node("n1", cards)], [gang], pods, [queue])


def test_what_the_cap_leaves_is_not_kept_for_a_member_that_fits_nowhere() -> None:
    plan = ask(grows(("a", LARGE, 1), ("b", SMALL, 3), cap=5))
    assert set(plan.admissions[0].members) == {"b/0", "b/1", "b/2"}, plan.verdicts["g"].message


def test_no_cap_is_exceeded_by_those_that_get_it_instead() -> None:
    plan = ask(grows(("a", LARGE, 1), ("b", SMALL, 3), ("c", make.shape(HALF, 5), 3), cap=5, cards=8))
    admitted = plan.admissions[0].members
    assert set(admitted) == {"a/0"}, "it fits: the first has it"
    plan = ask(grows(("a", LARGE, 1), ("b", SMALL, 3), ("c", make.shape(1024, 5), 3), cap=5, cards=3))
    assert set(plan.admissions[0].members) == {"b/0", "b/1", "b/2", "c/0"}


def test_room_is_made_for_the_members_for_which_it_can_be_made() -> None:
    snapshot = grows(("a", LARGE, 1), ("b", make.shape(make.H20_MIB, 100), 1), share_class=HIGH)
    low = make.placed(make.pods("low", 1, make.shape(make.H20_MIB, 100))[0], "n1/1")
    gangs = {**snapshot.gangs, "low": make.gang("low", share_class=LOW)}
    plan = ask(replace(snapshot, gangs=gangs, pods={**snapshot.pods, low.uid: low}))
    assert set(plan.admissions[0].members) == {"b/0"}, plan.verdicts["g"].message
    assert [entry.gang for entry in plan.admissions[0].evictions] == ["low"]
