"""Members above the minimum: each has its place by itself, whatever becomes of the others."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from unit.core.asked import HALF, HIGH, LOW, ask
from vc_egpu.core.model.cluster import CardAsk, Pod, PodPhase, PodShape, QueueName, ShareClass, Snapshot
from vc_egpu.core.model.reasons import Reason

LARGE = make.shape(make.H20_MIB, 100, cards=4)
SMALL = make.shape(HALF, 10)
T4 = make.shape(asks=(CardAsk("main", "t4", 1, 1024, 0),))


def grows(*waiting: tuple[str, PodShape, int], cards: int = 2, cap: int = 1000, **more: Any) -> Snapshot:
    """A gang of one member that runs, and others of it that wait: (task, shape, how many)."""
    gang = make.gang("g", **more)
    runs = make.placed(make.pods("g", 1, SMALL, task="first")[0], "n1/0")
    pods: list[Pod] = [runs]
    for task, shape, count in waiting:
        pods += make.pods("g", count, shape, task=task)
    queue = make.queue(capability={"volcano.sh/vgpu-h20": cap, "volcano.sh/vgpu-t4": 1})
    return make.snapshot([make.node("n1", cards)], [gang], pods, [queue])


@pytest.mark.parametrize("cap", [5, 6])
def test_what_the_cap_leaves_is_not_kept_for_a_member_that_fits_nowhere(cap: int) -> None:
    plan = ask(grows(("a", LARGE, 1), ("b", SMALL, 3), cap=cap))
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


def test_a_kind_that_the_cap_forbids_keeps_no_other_out() -> None:
    wide = make.shape(HALF, 10, cards=3)
    plan = ask(grows(("a", wide, 2), ("b", SMALL, 1), cap=3))
    assert set(plan.admissions[0].members) == {"b/0"}


@pytest.mark.parametrize(
    ("what", "cap", "reason", "message"),
    [
        (
            SMALL,
            1,
            Reason.WAITING_FOR_QUOTA,
            "1 share of h20 (49152 MiB, 10 cores); the queue all has 0 of 1 left",
        ),
        (
            LARGE,
            3,
            Reason.EXCEEDS_CAP,
            "4 shares of h20 (98304 MiB, 100 cores each); the queue all may use 3 of h20 at most",
        ),
        (
            LARGE,
            99,
            Reason.WAITING_FOR_CARDS,
            "4 shares of h20 (98304 MiB, 100 cores each); there is no place for it now on 1 node with h20",
        ),
        (T4, 1, Reason.WAITING_FOR_MODEL, "t4; no node offers t4 to share now"),
    ],
)
def test_who_waits_above_the_minimum_is_told_what_one_more_lacks(
    what: PodShape, cap: int, reason: Reason, message: str
) -> None:
    verdict = ask(grows(("a", what, 2), cap=cap)).verdicts["g"]
    assert verdict.reason is reason
    assert verdict.message == f"1 of 3 members have a place. One more asks for {message}"


def beside_training(share_class: ShareClass, *training: Pod, cards: int = 2) -> Snapshot:
    """A gang that grows by one whole card, and training that holds the other card, or leaves it."""
    snapshot = grows(("a", make.shape(make.H20_MIB, 100), 2), share_class=share_class, cards=cards)
    gangs = {**snapshot.gangs, "low": make.gang("low", share_class=LOW)}
    return replace(snapshot, gangs=gangs, pods={**snapshot.pods, **{pod.uid: pod for pod in training}})


TRAINS = make.placed(make.pods("low", 1, make.shape(make.H20_MIB, 100))[0], "n1/1")


def test_only_a_gang_of_high_priority_has_others_evicted_in_order_to_grow() -> None:
    assert ask(beside_training(HIGH, TRAINS)).admissions[0].evictions
    assert not ask(beside_training(ShareClass.UNSET, TRAINS)).admissions
    assert not ask(beside_training(HIGH, TRAINS), preemption=False).admissions


def test_a_gang_grows_by_as_many_as_room_can_be_made_for() -> None:
    snapshot = grows(("a", make.shape(make.H20_MIB, 100), 5), share_class=HIGH, cards=3)
    gated = make.pods("low", 2, make.shape(make.H20_MIB, 100))
    training = [make.placed(pod, f"n1/{at}") for at, pod in enumerate(gated, 1)]
    gangs = {**snapshot.gangs, "low": make.gang("low", share_class=LOW)}
    plan = ask(replace(snapshot, gangs=gangs, pods={**snapshot.pods, **{pod.uid: pod for pod in training}}))
    assert set(plan.admissions[0].members) == {"a/0", "a/1"}
    assert [one.pods for one in plan.admissions[0].evictions] == [{pod.uid for pod in training}]


def test_a_gang_that_could_grow_once_others_are_gone_waits_for_them() -> None:
    leaves = replace(TRAINS, phase=PodPhase.TERMINATING)
    plan = ask(beside_training(HIGH, leaves))
    assert not plan.admissions
    assert plan.verdicts["g"].message == (
        "1 of 3 members have a place. One more asks for 1 share of h20 (98304 MiB, 100 cores); "
        "there is room once 1 pod already leaving is gone"
    )


def test_what_is_tried_in_vain_for_members_is_not_charged_to_their_queue() -> None:
    """Nobody goes for either kind; those who come next in the same queue have what the cap leaves."""
    snapshot = grows(("a", LARGE, 1), ("b", make.shape(HALF, 10, cards=3), 1), share_class=HIGH, cap=5)
    low = make.placed(make.pods("low", 1, make.shape(make.H20_MIB, 100))[0], "n1/1")
    gangs = {**snapshot.gangs, "low": make.gang("low", share_class=LOW, queue="other")}
    gangs |= {"h": make.gang("h", least=4), "i": make.gang("i", created=1.0)}
    later = [*make.pods("h", 4, make.shape(1024, 1)), *make.pods("i", 1, make.shape(1024, 1))]
    queues = {**snapshot.queues, QueueName("other"): make.queue("other")}
    pods = {**snapshot.pods, low.uid: low, **{pod.uid: pod for pod in later}}
    plan = ask(replace(snapshot, gangs=gangs, pods=pods, queues=queues))
    assert [entry.gang for entry in plan.admissions] == ["h"], plan.verdicts
    assert plan.verdicts["i"].reason is Reason.WAITING_FOR_QUOTA


def test_a_gang_is_told_how_many_of_it_have_their_place() -> None:
    snapshot = grows(("a", SMALL, 2))
    done = replace(make.pods("g", 1, SMALL, task="done")[0], phase=PodPhase.SUCCEEDED)
    plan = ask(replace(snapshot, pods={**snapshot.pods, done.uid: done}))
    assert plan.verdicts["g"].message == "2 more members placed, 4 in all"
