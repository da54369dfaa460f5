"""A kubelet refuses what we bound: the gang comes back, goes elsewhere by a scheduler, and costs no other."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import Json, group, let_go, node, pod
from unit.admission.stage import GROUPS, KEY, PODS, LoopStage, loop_on
from vc_egpu.admission.state import backoffs
from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.volcano.words import names

DIRECT: Json = {"schedulerName": names.SCHEDULER_DIRECT, "schedulingGates": []}
LACKS_CPU: Json = {
    "phase": "Failed",
    "reason": "OutOfcpu",
    "message": "Pod was rejected: Node didn't have enough resource: cpu",
}
TURNS = 400
BACK_OFF_S = 1.0


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopStage]:
    """The gang ``default/g`` of two, which we bind. A back-off counts by the wall: here it is short."""
    monkeypatch.setattr(backoffs, "FIRST_S", BACK_OFF_S)
    with loop_on(tmp_path) as found:
        for index in range(2):
            found.goes("pods", f"g-w-{index}")
            found.arrives("pods", direct(index, "first"))
        found.arrives("podgroups", group())
        yield found


def direct(index: int, life: str, **changes: Any) -> Json:
    spec = {**DIRECT, **changes.pop("spec", {})}
    return pod(f"g-w-{index}", index=index, uid=f"{life}-{index}", spec=spec, **changes)


def turn_until(stage: LoopStage, what: Callable[[], object]) -> None:
    for _ in range(TURNS):
        if what():
            return
        stage.later(0.5)
        stage.turn(0.05)
    raise AssertionError("it never came to that")


def sent(stage: LoopStage, suffix: str) -> list[Json]:
    return [
        body
        for method, path, body in stage.server.requests
        if method == "POST" and path.partition("?")[0].endswith(suffix)
    ]


def note(stage: LoopStage) -> backoffs.RolledBack:
    annotations = stage.server.objects[f"{GROUPS}/g"]["metadata"].get("annotations") or {}
    return backoffs.decode(annotations.get(names.ROLLED_BACK, ""))


def said(stage: LoopStage) -> str:
    verdict = stage.said(KEY)
    return "" if verdict is None else verdict.message


def is_bound(stage: LoopStage, life: str) -> bool:
    pods = [stage.mirror.pods.get(PodUid(f"{life}-{index}")) for index in range(2)]
    return all(found is not None and found.pod.phase is PodPhase.PLACED for found in pods)


def refuse(stage: LoopStage, name: str = "g-w-0") -> str:
    """The kubelet of the pod's node fails it; that node's name."""
    document = stage.server.objects[f"{PODS}/{name}"]
    stage.arrives("pods", {**document, "status": LACKS_CPU})
    return str(document["spec"]["nodeName"])


def remake(stage: LoopStage, make: Callable[[int], Json]) -> None:
    """Its controller replaces what was asked to go."""
    for index in range(2):
        stage.goes("pods", f"g-w-{index}")
        stage.arrives("pods", make(index))


def test_the_gang_comes_back_whole_with_the_node_left_out(stage: LoopStage) -> None:
    turn_until(stage, lambda: is_bound(stage, "first"))
    stage.arrives("nodes", node("n2"))
    assert {body["target"]["name"] for body in sent(stage, "/binding")} == {"n1"}
    assert refuse(stage) == "n1"
    turn_until(stage, lambda: note(stage).count)
    stage.later(2.0)
    assert note(stage).kubelet
    assert list(note(stage).nodes) == ["n1"]
    assert "OutOfcpu" in note(stage).why
    view = stage.view()
    assert view.by_kubelets["cpu"] == 1
    assert (view.let_go["direct"], view.let_go["scheduler"]) == (2, 0)
    # As the webhook makes them now, after a refusal.
    remake(stage, lambda index: pod(f"g-w-{index}", index=index, uid=f"second-{index}"))
    turn_until(stage, lambda: is_bound(stage, "second"))
    pinned = [stage.server.objects[f"{PODS}/g-w-{index}"]["spec"] for index in range(2)]
    assert all("n2" in str(spec["affinity"]) and not spec.get("nodeName") for spec in pinned)
    assert stage.view().let_go["scheduler"] == 2


def test_both_ways_live_in_one_gang(stage: LoopStage) -> None:
    """The webhook's copy of the PodGroup may be a moment old: some new pods are ours to bind all the same."""
    turn_until(stage, lambda: is_bound(stage, "first"))
    stage.arrives("nodes", node("n2"))
    refuse(stage)
    turn_until(stage, lambda: note(stage).count)
    ways = {0: DIRECT, 1: {}}
    remake(stage, lambda index: pod(f"g-w-{index}", index=index, uid=f"second-{index}", spec=ways[index]))
    turn_until(stage, lambda: is_bound(stage, "second"))
    ours, theirs = (stage.server.objects[f"{PODS}/g-w-{index}"]["spec"] for index in range(2))
    assert ours["nodeName"] == "n2"
    assert "n2" in str(theirs["affinity"])


def test_no_gang_goes_for_it_until_the_node_is_tried_again(stage: LoopStage) -> None:
    high = {names.PRIORITY: "high"}
    for index in range(2):
        stage.goes("pods", f"g-w-{index}")
        stage.arrives("pods", direct(index, "high", annotations=high))
    turn_until(stage, lambda: is_bound(stage, "high"))
    # Low training has all of the other node.
    stage.arrives("nodes", node("n2", cards=1))
    low = pod("low-w-0", "low", uid="low-0", annotations={names.PRIORITY: "low"})
    low["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "64"
    stage.arrives("podgroups", group("low", members=1))
    stage.arrives("pods", let_go(low, "5-9", card="GPU-n2-0", bound=True, phase="Running"))
    refuse(stage)
    turn_until(stage, lambda: note(stage).count)
    stage.later(2.0)
    stage.turn(0.05)
    gone = [body["metadata"]["name"] for body in sent(stage, "/eviction")]
    remake(stage, lambda index: direct(index, "again", annotations=high))
    turn_until(stage, lambda: "free room only" in said(stage))
    assert "low-w-0" not in gone
    assert "low-w-0" not in [body["metadata"]["name"] for body in sent(stage, "/eviction")]
    turn_until(stage, lambda: is_bound(stage, "again"))
    assert note(stage).count == 1
    assert {stage.server.objects[f"{PODS}/g-w-{index}"]["spec"]["nodeName"] for index in range(2)} == {"n1"}
