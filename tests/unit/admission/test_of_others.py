"""Gangs that no Volcano Job makes: whose pods are whose, and who tells their makers to make them."""

from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, node, pod, queue
from vc_egpu.admission.inqueue import enqueue, filling
from vc_egpu.admission.inqueue.enqueue import Pending
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodUid, Share
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words import names

Json = dict[str, Any]
KEY = "default/g"


def ref(kind: str, uid: str) -> Json:
    return {"apiVersion": "example.org/v1", "kind": kind, "name": "x", "uid": uid, "controller": True}


def others_group(owner: Json | None, **changes: Any) -> Json:
    document = group(**changes)
    document["metadata"]["ownerReferences"] = [owner] if owner else []
    return document


def early(uid: str, owner: Json) -> Json:
    return pod(uid=uid, owners=[owner], annotations={names.GROUP_UNSEEN: "true"})


def world(*documents: Json) -> Mirror:
    mirror = Mirror(TABLE)
    for kind, document in (("nodes", node()), ("queues", queue())):
        mirror.apply(kind, added(document))
    for document in documents:
        mirror.apply("pods", added(document))
    return mirror


@pytest.mark.parametrize(
    ("owner", "is_member"),
    [
        (ref("Pod", "leader"), True),
        (ref("StatefulSet", "set"), True),
        (None, True),
        (ref("RayCluster", "another"), False),
    ],
    ids=["the pod's own", "of what makes the pod", "nobody's", "somebody else's"],
)
def test_a_pod_that_came_before_its_group_is_in_no_gang_of_another(
    owner: Json | None, is_member: bool
) -> None:
    mirror = world(early("leader", ref("StatefulSet", "set")))
    assert mirror.pods[PodUid("leader")].problem == ""
    mirror.apply("podgroups", added(others_group(owner, members=1)))
    problem = mirror.pods[PodUid("leader")].problem
    assert (problem == "") is is_member
    assert is_member or "belongs to RayCluster 'x'" in problem
    assert (PodUid("leader") in mirror.snapshot().pods) is is_member


def test_the_same_with_the_group_first_and_again_with_another_group() -> None:
    """A watch may tell of the group first; and groups are deleted and made anew."""
    mirror = world()
    mirror.apply("podgroups", added(others_group(ref("RayCluster", "another"), members=1)))
    mirror.apply("pods", added(early("leader", ref("StatefulSet", "set"))))
    assert mirror.pods[PodUid("leader")].problem
    mirror.apply("podgroups", deleted(others_group(ref("RayCluster", "another"), members=1)))
    own = others_group(ref("Pod", "leader"), members=1, uid="group-2")
    mirror.apply("podgroups", added(own))
    assert mirror.pods[PodUid("leader")].problem == ""
    assert PodUid("leader") in mirror.snapshot().pods


def test_their_makers_are_told_to_make_the_pods_where_they_wait_for_that() -> None:
    """Some wait until the PodGroup is not pending; without a vc-scheduler nobody else moves it."""
    for owner in (ref("PyTorchJob", "job"), None):
        mirror, pending = world(), Pending()
        mirror.apply("podgroups", added(others_group(owner, phase="Pending")))
        pending.look(KEY, mirror, 10.0)
        assert pending.admit(mirror, 10.0) == [KEY]
        assert pending.unplanned(mirror, 10.0) == [], "vc-scheduler may do so by itself"
        assert pending.unplanned(mirror, 10.0 + enqueue.GRACE_S) == [KEY]
        mirror.apply("podgroups", added(others_group(owner, phase="Inqueue")))
        pending.look(KEY, mirror, 11.0)
        assert not pending.since


def test_pods_that_are_planned_are_bound_though_vc_scheduler_left_their_group_pending() -> None:
    """Its stock configuration has no room for an ask that names limits per card, which no node offers."""
    mirror, pending = world(), Pending()
    ask = {"volcano.sh/vgpu-h20": "2", "volcano.sh/vgpu-memory": "60k"}
    for index in range(2):
        owners = [ref("RayCluster", "ray")]
        mirror.apply("pods", added(pod(f"g-w-{index}", index=index, uid=f"pod-{index}", owners=owners)))
    mirror.apply("podgroups", added(others_group(ref("RayCluster", "ray"), phase="Pending", least=ask)))
    pending.look(KEY, mirror, 10.0)
    assert not pending.since, "while they wait for cards nobody needs the phase"
    share = Share(CardId("GPU-n1-0"), 30000, 30)
    record = PlanRecord(
        plan_id=plans.plan_id(5, 1),
        group_uid="group-g",
        state="ready",
        members={
            f"w/{i}": PlannedMember(
                MemberPlacement(node=NodeName("n1"), shares=(("main", share),)), PodUid(f"pod-{i}")
            )
            for i in range(2)
        },
    )
    annotations = {names.PLAN: plans.encode(record, mirror.nodes)}
    mirror.apply(
        "podgroups",
        added(others_group(ref("RayCluster", "ray"), phase="Pending", least=ask, annotations=annotations)),
    )
    pending.look(KEY, mirror, 11.0)
    assert pending.unplanned(mirror, 11.0 + enqueue.GRACE_S) == [KEY]


def test_gangs_without_cards_are_somebody_elses() -> None:
    mirror, pending = world(), Pending()
    document = others_group(ref("PyTorchJob", "job"), phase="Pending", least={"cpu": "4"})
    mirror.apply("podgroups", added(document))
    pending.look(KEY, mirror, 10.0)
    assert not pending.since


def test_a_volcano_job_is_planned_from_its_template_and_not_told_blindly() -> None:
    mirror, pending = world(), Pending()
    mirror.apply("podgroups", added(group(phase="Pending")))
    pending.look(KEY, mirror, 10.0)
    assert not pending.since, "without its Job nobody knows that it is ours"


def test_high_ones_first() -> None:
    mirror, pending = world(), Pending()
    for name, annotations in (("a", {}), ("b", {names.PRIORITY: "high"})):
        document = others_group(
            ref("PyTorchJob", name),
            name=name,
            members=filling.MOST_FILLING,
            phase="Pending",
            annotations=annotations,
        )
        mirror.apply("podgroups", added(document))
        pending.look(f"default/{name}", mirror, 10.0)
    assert pending.admit(mirror, 10.0) == ["default/b"]
