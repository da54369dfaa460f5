"""What is said about suspending pods: exact forms, bounds on what a node or a pod may claim, old answers."""

import json

import pytest
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.codec.suspension import (
    MAX_ANSWER_BYTES,
    MAX_PODS_PER_NODE,
    NodeSuspension,
    PodSuspension,
    SuspendOrder,
    answer_to,
    is_refused,
)
from vc_egpu.volcano.words.annotations import AnnotationError

ORDER = SuspendOrder(pod_uid="u1", plan_id="3-7", why="makes room for team/infer", since=1763000000)


def test_both_stand_on_the_wire_as_agreed() -> None:
    assert json.loads(ORDER.encode()) == {
        "version": 1,
        "podUid": "u1",
        "planId": "3-7",
        "why": "makes room for team/infer",
        "cause": "priority",
        "since": 1763000000,
        "offQuota": False,
    }
    away = PodSuspension(state=SuspensionState.SUSPENDED, plan_id="3-7", host_mib=4096)
    node = NodeSuspension(pods={"u1": away})
    assert json.loads(node.encode())["pods"]["u1"] == {
        "state": "suspended",
        "planId": "3-7",
        "suspendable": False,
        "reason": "",
        "hostMiB": 4096,
    }
    assert SuspendOrder.decode(ORDER.encode()) == ORDER
    older = '{"version":1,"podUid":"u1","planId":"3-7"}'
    assert SuspendOrder.decode(older).cause is Cause.PRIORITY, "it knew no other cause"
    assert not SuspendOrder.decode(older).off_quota, "all counted in full"
    newer = '{"version":1,"podUid":"u1","planId":"3-7","cause":"solar-flare"}'
    assert SuspendOrder.decode(newer).plan_id == "3-7", "a word of a later version spoils nothing else"
    assert NodeSuspension.decode(node.encode()) == node


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "the document"),
        ("[]", "the document"),
        ('{"version":2}', "version"),
        ('{"version":1,"pods":{"u":{"state":"dead"}}}', "pods.u.state"),
        ('{"version":1,"pods":{"u":{"hostMiB":-1}}}', "pods.u.hostMiB"),
        ('{"version":1,"pods":{"u":{"hostMiB":1e30}}}', "pods.u.hostMiB"),
        ('{"version":1,"pods":{"u":{"reason":"' + "x" * 257 + '"}}}', "pods.u.reason"),
        ('{"version":1,"pods":{"' + "u" * 65 + '":{}}}', "pods"),
    ],
)
def test_a_node_that_reports_garbage_is_told_which_field(text: str, path: str) -> None:
    with pytest.raises(AnnotationError, match=path):
        NodeSuspension.decode(text)


def test_a_node_cannot_flood_the_admission_layer() -> None:
    many = {f"u{n}": PodSuspension() for n in range(MAX_PODS_PER_NODE + 1)}
    text = json.dumps({"version": 1, "pods": {uid: {} for uid in many}})
    with pytest.raises(AnnotationError, match="pods"):
        NodeSuspension.decode(text)
    with pytest.raises(AnnotationError, match="bytes, the limit"):
        NodeSuspension.decode(" " * (MAX_ANSWER_BYTES + 1))


@pytest.mark.parametrize(
    "text",
    [
        '{"version":1,"podUid":"u1"}',
        '{"version":1,"podUid":"u1","planId":"x"}',
        '{"version":1,"podUid":"","planId":"1-1"}',
    ],
)
def test_an_order_names_pod_and_plan(text: str) -> None:
    with pytest.raises(AnnotationError):
        SuspendOrder.decode(text)


def test_a_pod_that_nobody_reports_about_runs_and_cannot_be_suspended() -> None:
    answer = answer_to(ORDER, None)
    assert (answer.state, answer.suspendable) == ("running", False)
    assert answer.reason


def said(state: str, plan_id: str, reason: str = "") -> PodSuspension:
    return PodSuspension(state=SuspensionState(state), plan_id=plan_id, reason=reason)


def test_suspended_counts_only_for_the_order_that_it_answers() -> None:
    assert answer_to(ORDER, said("suspended", "3-7")).state == "suspended"
    assert answer_to(ORDER, said("suspended", "3-6")).state == "resuming"
    assert answer_to(None, said("suspended", "3-6")).state == "suspended"
    assert answer_to(ORDER, said("failed", "3-6")).state == "failed"


def test_an_order_that_was_tried_in_vain_is_told_from_one_not_yet_seen() -> None:
    assert is_refused(ORDER, said("running", "3-7", "lock timed out"))
    assert not is_refused(ORDER, said("running", "3-6"))
    assert not is_refused(ORDER, said("suspending", "3-7"))
