"""The direct way: one Binding carries node and cards, and what is not known of it is found out first."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import TABLE, group, pod
from unit.admission.stage import BROKEN, KEY, PLAN_ID, PODS, Stage, plan, stage_on
from unit.admission.suspended_gang import other_victim
from vc_egpu.admission.execution import writes
from vc_egpu.admission.execution.outcomes import GateWrite
from vc_egpu.admission.execution.results import NotSent
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodPhase, PodUid, Share, ShareClass
from vc_egpu.core.model.plan import Plan
from vc_egpu.kube.wire.errors import Conflict, Unavailable
from vc_egpu.volcano import room
from vc_egpu.volcano.codec import pod_codec
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

ON_N1 = MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-0"), 30000, 30)),))
DIRECT: dict[str, Any] = {"schedulerName": names.SCHEDULER_DIRECT, "schedulingGates": []}


def direct(index: int = 0, **changes: Any) -> dict[str, Any]:
    return pod(f"g-w-{index}", index=index, uid=f"pod-{index}", spec=DIRECT, **changes)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        for index in range(2):
            found.put("pods", direct(index))
        found.put("podgroups", group(annotations={names.PLAN: plan(found.mirror)}))
        yield found


def bindings(stage: Stage) -> list[Any]:
    return [body for method, path, body in stage.server.requests if path.endswith("/binding")]


def phases(stage: Stage) -> list[PodPhase]:
    return [stage.mirror.pods[PodUid(f"pod-{index}")].pod.phase for index in range(2)]


def test_a_pod_under_our_name_waits_for_us() -> None:
    decoded = pod_codec.pod(direct(), TABLE)
    assert (decoded.waiting, decoded.managed, decoded.pod.phase) == (True, True, PodPhase.GATED)
    bound = direct()
    bound["spec"] = {**bound["spec"], "nodeName": "n1"}
    assert pod_codec.pod(bound, TABLE, before=decoded).pod.phase is PodPhase.PLACED


def test_each_member_is_bound_by_one_write_with_its_cards(stage: Stage) -> None:
    stage.drive()
    stage.outcome()
    stage.outcome()
    sent = bindings(stage)
    assert len(sent) == len(stage.server.requests) == 2
    for index, body in enumerate(sorted(sent, key=lambda one: str(one["metadata"]["name"]))):
        assert (body["kind"], body["target"]["name"]) == ("Binding", "n1")
        assert body["metadata"]["uid"] == f"pod-{index}"
        cards = Cards.decode(body["metadata"]["annotations"][names.CARDS])
        assert (cards.node, cards.plan_id, cards.pod_uid) == ("n1", PLAN_ID, f"pod-{index}")
        stored = stage.server.objects[f"{PODS}/g-w-{index}"]
        assert stored["spec"]["nodeName"] == "n1"
        assert names.CARDS in stored["metadata"]["annotations"]


def test_what_is_bound_counts_at_once_and_is_not_bound_again(stage: Stage) -> None:
    stage.drive()
    stage.outcome()
    stage.outcome()
    assert phases(stage) == [PodPhase.PLACED, PodPhase.PLACED], "before any watch tells"
    assert stage.mirror.pods[PodUid("pod-0")].pod.plan_id == PLAN_ID
    assert stage.mirror.groups[KEY].outstanding == set()
    stage.later(60)
    assert len(bindings(stage)) == 2


def test_a_later_word_of_the_watch_counts_more(stage: Stage) -> None:
    stage.drive()
    stage.outcome()
    stage.outcome()
    gone_on = {**stage.server.objects[f"{PODS}/g-w-0"], "status": {"phase": "Failed"}}
    stage.put("pods", gone_on)
    assert phases(stage)[0] is PodPhase.FAILED
    before = pod_codec.pod(direct(), TABLE)
    stage.mirror.assume_bound(writes.as_bound(before, writes.binding(before, ON_N1, **OF_PLAN)))
    assert phases(stage)[0] is PodPhase.FAILED, "what was assumed of an earlier version is no news"


OF_PLAN: dict[str, Any] = {"plan_id": PLAN_ID, "share_class": ShareClass.LOW}


def test_a_conflict_is_read_back_before_anything_else(stage: Stage) -> None:
    """Another client wrote to the pod since: it is bound as it is now, once."""
    path = f"{PODS}/g-w-0"
    changed = {**stage.server.objects[path]}
    changed["metadata"] = {**changed["metadata"], "labels": {**changed["metadata"]["labels"], "a": "b"}}
    stage.server.put(path, changed)
    stage.drive()
    done = [stage.answered(), stage.answered()]
    failed = next(one for one in done if one.error is not None)
    assert isinstance(failed, GateWrite)
    assert isinstance(failed.error, Conflict)
    assert failed.document is not None
    stage.later(60)
    stage.outcome()
    assert phases(stage) == [PodPhase.PLACED, PodPhase.PLACED]


def test_an_unknown_outcome_is_made_sure_of_before_the_plan_goes(stage: Stage) -> None:
    """The Binding may still land: the pod is written to, so that no earlier Binding holds any more."""
    stage.server.script_for, stage.server.script = "pod-0", [BROKEN]
    stage.drive()
    done = [stage.answered(), stage.answered()]
    assert any(isinstance(one.error, Unavailable) for one in done)
    stage.time_passes(60)
    stage.work.wake_due()
    assert not stage.conductor.members.is_settled(KEY), "it is written to now"
    stage.answered()
    assert stage.conductor.members.is_settled(KEY)
    late = next(body for body in bindings(stage) if body["metadata"]["uid"] == "pod-0")
    with pytest.raises(Conflict):
        stage.work.api.bind(late)


def test_what_was_bound_past_us_is_seen_as_it_is(stage: Stage) -> None:
    path = f"{PODS}/g-w-0"
    stage.server.put(path, {**stage.server.objects[path], "spec": {**DIRECT, "nodeName": "elsewhere"}})
    stage.drive()
    stage.outcome()
    stage.outcome()
    found = stage.mirror.pods[PodUid("pod-0")]
    assert (found.pod.node, found.pod.shares) == ("elsewhere", ())


def test_full_annotations_are_counted_before_the_api_server_takes_them() -> None:
    """It would bind the pod, and refuse each later write to it."""
    padded = pod_codec.pod(direct(annotations={"note": "x" * (room.MAX_BYTES - 100)}), TABLE)
    writes.binding(pod_codec.pod(direct(), TABLE), ON_N1, **OF_PLAN)
    with pytest.raises(NotSent, match="more than is left of 262144"):
        writes.binding(padded, ON_N1, **OF_PLAN)


def test_a_member_without_a_node_is_never_bound(stage: Stage) -> None:
    with pytest.raises(NotSent, match="names no node"):
        writes.binding(pod_codec.pod(direct(), TABLE), MemberPlacement(None), **OF_PLAN)


def test_a_waiting_pod_says_in_the_words_of_kubernetes_why() -> None:
    value = writes.condition(admitted=False, reason="WaitingForCards", message="0 of 2", now=0)
    body = writes.pod_condition_patch(pod_codec.pod(direct(), TABLE), value)
    ours, theirs = body["status"]["conditions"]
    assert ours == value
    assert (theirs["type"], theirs["status"], theirs["reason"]) == ("PodScheduled", "False", "Unschedulable")
    quota = writes.condition(admitted=False, reason="WaitingForQuota", message="0 of 2", now=0)
    (_, theirs) = writes.pod_condition_patch(pod_codec.pod(direct(), TABLE), quota)["status"]["conditions"]
    assert theirs["reason"] == "WaitingForQuota"
    gated = pod_codec.pod(pod(), TABLE)
    assert len(writes.pod_condition_patch(gated, quota)["status"]["conditions"]) == 1


def test_before_victims_go_each_binding_is_tried_dry(stage: Stage) -> None:
    """A patch of a gate would be refused: such a pod has none, and its affinity cannot change."""
    victim = other_victim(stage)
    text = plan(stage.mirror, state="waiting", victims=frozenset({victim}))
    stage.put("podgroups", group(annotations={names.PLAN: text}))
    stage.conductor.carry_out(Plan(1), 1000.0)
    stage.answered()
    members = [(method, path) for method, path, _ in stage.server.requests if "/g-w-" in path]
    assert sorted(members) == [("POST", f"{PODS}/g-w-{index}/binding?dryRun=All") for index in range(2)]
    assert stage.asked_to_go() == ["e-0"]
    assert phases(stage) == [PodPhase.GATED, PodPhase.GATED]
