"""A pod that the kubelet refused is made anew, whoever made it and whoever leads by then."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, group, let_go, pod
from unit.admission.stage import KEY, PLAN_ID, PODS, Stage, plan, stage_on
from unit.admission.test_conduct import roll_back
from vc_egpu.admission.recovery.rollback import Watchlist, judge
from vc_egpu.admission.state import owners
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.volcano.codec import cluster_codec, pod_codec
from vc_egpu.volcano.words import names

REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


def owner(api_version: str, kind: str) -> list[Json]:
    return [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "o", "controller": True}]


def refused_gang(stage: Stage, owners_: list[Json]) -> None:
    """One member that the kubelet refused, one that runs; both were let go by the gang's plan."""
    for i, status in enumerate((REFUSED, {"phase": "Running"})):
        raw = pod(f"g-w-{i}", index=i, uid=f"pod-{i}", owners=owners_)
        stage.put("pods", let_go(raw, PLAN_ID, bound=True, **status))
    stage.put("podgroups", group(annotations={names.PLAN: plan(stage.mirror)}))
    stage.drive()
    watchlist = Watchlist()
    members = stage.mirror.members[KEY]
    for member in members.values():
        watchlist.note(member, 0.0)
    back = judge(stage.mirror.groups[KEY].decoded.gang, members, watchlist, 0.0)
    assert back is not None
    roll_back(stage, back)
    stage.outcome()  # the plan is gone
    stage.outcome()  # the pods have been asked to go


@pytest.mark.parametrize(
    "kind",
    [("batch/v1", "Job"), ("apps/v1", "ReplicaSet"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet")],
)
def test_pods_of_other_controllers_are_evicted_the_refused_one_too(
    stage: Stage, kind: tuple[str, str]
) -> None:
    refused_gang(stage, owner(*kind))
    assert stage.asked_to_go() == ["g-w-0", "g-w-1"]


def test_volcanos_lever_comes_first_and_a_refused_pod_that_it_does_not_move_is_evicted(stage: Stage) -> None:
    """Volcano's controller does not look at pods of a Job that failed meanwhile: the lever has no effect."""
    refused_gang(stage, owner("batch.volcano.sh/v1alpha1", "Job"))
    assert stage.asked_to_go() == []
    marked = stage.server.objects[f"{PODS}/g-w-0"]["metadata"]["annotations"]
    assert marked[names.OUT_OF_SYNC] == "true"
    late = stage.work.evictions.overdue(owners.LEVER_TIMEOUT_S, stage.conductor.rolling.is_leaving)
    assert sorted(late) == ["pod-0", "pod-1"]
    for uid in sorted(late):
        stage.conductor.victims.press(uid)
        stage.outcome()
    assert stage.asked_to_go() == ["g-w-0", "g-w-1"]


def test_a_victim_that_ended_by_itself_is_not_pressed(stage: Stage) -> None:
    raw = let_go(pod("g-w-0", uid="pod-0"), PLAN_ID, bound=True, phase="Failed")
    stage.put("pods", raw)
    assert stage.conductor.rolling.is_leaving(PodUid("pod-0")), "its cards are free: nobody waits for it"


def test_a_refused_member_without_cards_is_seen_after_its_plan_is_gone() -> None:
    """A leader that died between the plan's removal and the evictions leaves exactly this."""
    raw = pod("g-w-0", uid="pod-0", annotations={names.REQUEST: '{"version":1,"containers":{}}'})
    raw["spec"] = {"containers": raw["spec"]["containers"], "nodeName": "n1"}
    raw["status"] = {**REFUSED, "reason": "OutOfcpu"}
    member = pod_codec.pod(raw, TABLE)
    assert member.refusal
    assert not member.pod.plan_id
    watchlist = Watchlist()
    watchlist.note(member, 0.0)
    back = judge(cluster_codec.group(group(members=1)).gang, {member.pod.uid: member}, watchlist, 0.0)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-w-0"]


def test_a_member_that_ran_before_its_node_was_rebooted_was_refused_all_the_same() -> None:
    """The kubelet says first that it refuses the pod, and a moment later how its containers of the former
    boot ended. A leader that comes up after that sees both at once."""
    raw = let_go(pod("g-w-0", uid="pod-0"), PLAN_ID, bound=True, **REFUSED)
    raw["status"]["containerStatuses"] = [
        {"name": "main", "state": {"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}}}
    ]
    member = pod_codec.pod(raw, TABLE)
    watchlist = Watchlist()
    watchlist.note(member, 0.0)
    back = judge(cluster_codec.group(group(members=1)).gang, {member.pod.uid: member}, watchlist, 0.0)
    assert back is not None
    assert [found.pod.name for found in back.pods] == ["g-w-0"]


def test_a_second_refusal_does_not_make_the_first_forgotten(stage: Stage) -> None:
    """Surplus members come back one by one, each when the kubelet says no to it."""
    for i in range(2):
        raw = pod(f"g-w-{i}", index=i, uid=f"pod-{i}", owners=owner("apps/v1", "ReplicaSet"))
        stage.put("pods", let_go(raw, PLAN_ID, bound=True, **REFUSED))
    stage.put("podgroups", group(members=0, annotations={names.PLAN: plan(stage.mirror)}))
    stage.drive()
    members = stage.mirror.members[KEY]
    for uid in sorted(members):
        watchlist = Watchlist()
        watchlist.note(members[uid], 0.0)
        back = judge(stage.mirror.groups[KEY].decoded.gang, members, watchlist, 0.0)
        assert back is not None
        assert len(back.pods) == 1
        stage.conductor.roll_back(KEY, stage.mirror.groups[KEY], back, 1000.0)
    stage.drive()
    stage.outcome()
    stage.outcome()
    assert stage.asked_to_go() == ["g-w-0", "g-w-1"]
