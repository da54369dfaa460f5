"""One gang's turn, and whose it is."""

from dataclasses import replace

import pytest
from unit.core import make
from unit.core.asked import HALF, HIGH, LOW, ask
from vc_egpu.core import admit
from vc_egpu.core.model.cluster import Gang, NodeName, Pod, PodPhase, PodUid, ShareClass, SuspensionState
from vc_egpu.core.model.gangs import GangView, Member
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.placing.place import place
from vc_egpu.core.trial.trial import Seated, Trial


def with_two_trainings(
    *gangs: Gang, pods: list[Pod], cap: int = 9, host: int = 0, guaranteed: int = 0
) -> Plan:
    """A card each is taken by training, so many of which the host takes and so much of which its queue is
    guaranteed; the queue that asks has a cap."""
    trains = [make.gang(key, share_class=LOW, queue="research") for key in ("train-a", "train-b")]
    whole = make.shape(make.H20_MIB, 100)
    running = [
        make.placed(make.pods(gang.key, 1, whole)[0], f"n1/{number}", suspendable=host > 0)
        for number, gang in enumerate(trains)
    ]
    queues = [
        make.queue("research", guarantee={"volcano.sh/vgpu-h20": guaranteed}),
        make.queue(capability={"volcano.sh/vgpu-h20": cap}),
    ]
    node = make.node("n1", 2, host_memory_mib=host * make.H20_MIB)
    return ask(make.snapshot([node], [*trains, *gangs], [*running, *pods], queues))


def test_what_room_is_made_for_counts_in_its_queue_at_once() -> None:
    gangs = [make.gang(key, share_class=HIGH) for key in "ab"]
    pods = [pod for key in "ab" for pod in make.pods(key, 1, make.shape(make.H20_MIB, 100))]
    plan = with_two_trainings(*gangs, pods=pods, cap=1)
    assert [entry.gang for entry in plan.admissions] == ["a"]
    assert plan.verdicts["b"].reason is Reason.WAITING_FOR_QUOTA
    assert len(with_two_trainings(*gangs, pods=pods, cap=2).admissions) == 2


def test_who_is_suspended_for_one_gang_is_not_for_the_next() -> None:
    """Neither again, in order to make room beside that gang; nor is the host's room promised twice."""
    gangs = [make.gang(key, share_class=HIGH, created=float(at)) for at, key in enumerate("abc")]
    most = make.shape(make.H20_MIB - 1024, 90)
    pods = [*make.pods("a", 1, most), *make.pods("b", 1, make.shape(1024, 10)), *make.pods("c", 1, most)]
    plan = with_two_trainings(*gangs, pods=pods, host=1)
    told = {entry.gang: (len(entry.suspensions), len(entry.evictions)) for entry in plan.admissions}
    assert told == {"a": (1, 0), "c": (0, 1)}
    assert "once 1 pod already leaving is gone" in plan.verdicts["b"].message
    plan = with_two_trainings(*gangs, pods=pods, host=2)
    assert [len(entry.suspensions) for entry in plan.admissions] == [1, 1]


@pytest.mark.parametrize(("guaranteed", "goes"), [(0, True), (1, False)])
def test_who_is_evicted_and_who_is_suspended_count_together_against_a_guarantee(
    guaranteed: int, goes: bool
) -> None:
    """Both cards are wanted, and the host takes one of the trainings."""
    both = make.pods("g", 1, make.shape(make.H20_MIB, 100, cards=2))
    plan = with_two_trainings(make.gang("g", share_class=HIGH), pods=both, host=1, guaranteed=guaranteed)
    assert [(len(one.suspensions), len(one.evictions)) for one in plan.admissions] == [(1, 1)] * goes


@pytest.mark.parametrize("tasks", [("one", "two"), ("two", "one")])
def test_of_several_ways_to_make_a_gang_whole_the_one_that_costs_least_is_taken(
    tasks: tuple[str, str],
) -> None:
    """Any one member is enough: the task that needs one card, or that which needs both."""
    cards = {"one": 1, "two": 2}
    pods = []
    for name, task in zip("ab", tasks, strict=True):
        pods += make.pods("g", 1, make.shape(make.H20_MIB, 100, cards=cards[task]), task=f"{name}-{task}")
    plan = with_two_trainings(make.gang("g", share_class=HIGH), pods=pods)
    assert [len(entry.evictions) for entry in plan.admissions] == [1]


def test_a_way_for_which_no_room_can_be_made_hides_no_other() -> None:
    pods = make.pods("g", 1, make.shape(make.H20_MIB, 100, cards=3), task="a")
    pods += make.pods("g", 1, make.shape(make.H20_MIB, 100), task="b")
    plan = with_two_trainings(make.gang("g", share_class=HIGH), pods=pods)
    assert set(plan.admissions[0].members) == {"b/0"}


def test_a_gang_that_may_be_whole_in_several_ways_is_told_why_the_first_is_not_allowed() -> None:
    pods = make.pods("g", 1, make.shape(1024, 1, cards=5), task="a")
    pods += make.pods("g", 1, make.shape(1024, 1, cards=4), task="b")
    plan = with_two_trainings(make.gang("g"), pods=pods, cap=3)
    assert "asks for 5 shares" in plan.verdicts["g"].message


def test_alike_gangs_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand may wait: what the first of them found holds for all."""
    tried: list[str] = []

    def noting(trial: Trial, view: GangView, members: tuple[Member, ...]) -> tuple[Seated, ...] | None:
        tried.append(view.gang.key)
        return place(trial, view, members)

    monkeypatch.setattr(admit, "place", noting)
    gangs = [make.gang(f"g{number}") for number in range(9)]
    pods = [pod for gang in gangs for pod in make.pods(gang.key, 1, make.shape(HALF, 10))]
    plan = with_two_trainings(*gangs, pods=pods)
    assert len({plan.verdicts[gang.key].message for gang in gangs}) == 1
    assert tried == ["g0"]


# --- whose turn it is ------------------------------------------------------------------------------------


def test_the_queue_of_higher_priority_is_served_first() -> None:
    gangs = [make.gang("a", queue="plain"), make.gang("b", queue="urgent", created=9.0)]
    pods = [pod for key in "ab" for pod in make.pods(key, 1, make.shape(make.H20_MIB, 100))]
    queues = [make.queue("plain"), make.queue("urgent", priority=1)]
    plan = ask(make.snapshot([make.node("n1", 1)], gangs, pods, queues))
    assert [entry.gang for entry in plan.admissions] == ["b"]


def with_train_asleep(*gangs: Gang, pods: list[Pod], cards: int = 1) -> Plan:
    """Training was suspended on n1/0, and the inference for which it left is gone."""
    train = make.gang("train", share_class=LOW)
    asleep = make.placed(
        make.pods("train", 1, make.shape(make.H20_MIB, 100))[0],
        "n1/0",
        suspend_ordered=True,
        suspend_order=(1, 1),
        suspension=SuspensionState.SUSPENDED,
    )
    node = make.node("n1", cards, host_memory_mib=make.H20_MIB)
    return ask(make.snapshot([node], [train, *gangs], [asleep, *pods]))


def test_suspended_training_comes_back_after_new_inference_and_before_all_others() -> None:
    new = make.pods("new", 1, make.shape(HALF, 50))
    plan = with_train_asleep(make.gang("new", share_class=HIGH), pods=new)
    assert [entry.gang for entry in plan.admissions] == ["new"]
    assert not plan.resumes, "it would have to leave again at once"
    for share_class in (LOW, ShareClass.UNSET):
        plan = with_train_asleep(make.gang("new", share_class=share_class), pods=new)
        assert [entry.gang for entry in plan.resumes] == ["train"]
        assert not plan.admissions


def test_the_replacement_in_a_running_gang_goes_before_who_comes_back() -> None:
    """Its member failed long ago: no card is kept for it any more, and the only free one is training's."""
    runs = make.gang("runs", least=2)
    alive, again = make.pods("runs", 2, make.shape(make.H20_MIB, 100))
    plan = with_train_asleep(runs, pods=[make.placed(alive, "n1/1"), again], cards=2)
    assert set(plan.admissions[0].members) == {"w/1"}
    assert not plan.resumes


def test_what_was_kept_for_a_replacement_that_has_its_place_is_free_for_the_next() -> None:
    """Its node refused the failed member: the replacement goes elsewhere, others may have the card."""
    runs = make.gang("runs", least=2, blocked_nodes=frozenset({NodeName("n2")}))
    alive, again = make.pods("runs", 2, make.shape(make.H20_MIB, 100))
    lost = replace(make.placed(again, "n2/0", phase=PodPhase.FAILED, finished=95.0), uid=PodUid("lost"))
    pods = [make.placed(alive, "n1/0"), again, lost, *make.pods("g", 1, make.shape(HALF, 50))]
    plan = ask(make.snapshot([make.node("n1", 2), make.node("n2", 1)], [runs, make.gang("g")], pods))
    places = {entry.gang: next(iter(entry.members.values())).node for entry in plan.admissions}
    assert places == {"runs": "n1", "g": "n2"}
