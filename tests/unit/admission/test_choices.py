"""Gangs that take any of several models: the choice is written, and pods that wait are made again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import Json, group, pod
from unit.admission.stage import GROUPS, KEY, PODS, REPLICA_SET, Stage, loop_on, stage_on
from vc_egpu.admission.state.owners import LEVER_TIMEOUT_S
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest, Request, RequestOption


def asks(model: str, choice: str | None = None) -> str:
    options = tuple(
        RequestOption(
            name=name,
            containers={
                "main": ContainerRequest(model=name, cards=1, memory_mib=10000, cores_percent=10),
            },
        )
        for name in ("h20", "l20")
    )
    chosen = next((option.containers for option in options if option.name == choice), {})
    assert model in {"any", choice}
    return Request(containers=chosen, options=options, choice=choice).encode()


def member(index: int, choice: str | None = None, **changes: Any) -> Json:
    request = {names.REQUEST: asks(choice or "any", choice)}
    return pod(f"g-w-{index}", index=index, uid=f"pod-{index}", annotations=request, **changes)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


def told_to_be_made_again(stage: Stage) -> list[str]:
    """Pods of which Volcano's controller was asked to make others."""
    return [
        path.rsplit("/", 1)[-1]
        for method, path, body in stage.server.requests
        if method == "PATCH" and names.OUT_OF_SYNC in (body["metadata"].get("annotations") or {})
    ]


def test_a_choice_is_written_before_any_pod_is_made_again(stage: Stage) -> None:
    stage.put("podgroups", group())
    for index in range(2):
        stage.put("pods", member(index))
    stage.drive()
    assert not told_to_be_made_again(stage)
    verdict = Verdict(Reason.WAITING_FOR_MEMBERS, "takes h20")
    stage.conductor.carry_out(Plan(1, choices={KEY: "h20"}, verdicts={KEY: verdict}), 1e9)
    stage.answered()
    annotations = stage.server.objects[f"{GROUPS}/g"]["metadata"]["annotations"]
    assert annotations[names.CHOICE] == "h20"
    assert not told_to_be_made_again(stage)
    stage.drive()
    stage.answered()
    assert told_to_be_made_again(stage) == ["g-w-0", "g-w-1"]
    assert stage.work.counters["made_again"] == 2
    stage.drive()
    assert len(told_to_be_made_again(stage)) == 2, "each is asked once"


def test_pods_that_were_made_with_the_choice_stay(stage: Stage) -> None:
    stage.put("podgroups", group(annotations={names.CHOICE: "h20"}))
    stage.put("pods", member(0, "h20"))
    stage.put("pods", member(1, "l20"))
    stage.drive()
    stage.answered()
    assert told_to_be_made_again(stage) == ["g-w-1"]


def test_a_choice_that_pods_do_not_know_moves_none_of_them(stage: Stage) -> None:
    stage.put("podgroups", group(annotations={names.CHOICE: "t4"}))
    stage.put("pods", member(0))
    stage.put("pods", pod("g-w-1", index=1))
    stage.drive()
    assert not told_to_be_made_again(stage)


def test_replicas_are_evicted_and_a_bare_pod_is_left_alone(stage: Stage) -> None:
    stage.put("podgroups", group(annotations={names.CHOICE: "h20"}))
    stage.put("pods", member(0, owners=REPLICA_SET))
    stage.put("pods", member(1, owners=[]))
    stage.drive()
    stage.answered()
    assert stage.asked_to_go() == ["g-w-0"]


def test_a_pod_that_its_controller_does_not_replace_is_evicted_plainly(stage: Stage) -> None:
    stage.put("podgroups", group(annotations={names.CHOICE: "h20"}))
    stage.put("pods", member(0))
    stage.drive()
    stage.answered()
    stage.time_passes(LEVER_TIMEOUT_S)
    overdue = stage.work.evictions.overdue(stage.work.clock, stage.conductor.is_leaving)
    assert overdue == ["pod-0"]
    stage.conductor.victims.press(overdue[0])
    stage.answered()
    assert stage.asked_to_go() == ["g-w-0"]


def test_from_the_open_pods_to_the_plan(tmp_path: Path) -> None:
    """A decision chooses, the controller makes the pods again, and those get the plan."""
    with loop_on(tmp_path) as stage:
        for index in range(2):
            stage.arrives("pods", member(index))
        stage.arrives("podgroups", group())
        stage.turn()
        said = stage.said()
        assert said is not None
        assert said.message == "takes h20; 2 of its pods are made again with it"
        stage.await_outcome()
        stage.turn()
        assert stage.server.objects[f"{GROUPS}/g"]["metadata"]["annotations"][names.CHOICE] == "h20"
        assert names.PLAN not in stage.server.objects[f"{GROUPS}/g"]["metadata"]["annotations"]
        stage.await_outcome()
        for index in range(2):
            assert names.OUT_OF_SYNC in stage.server.objects[f"{PODS}/g-w-{index}"]["metadata"]["annotations"]
            stage.goes("pods", f"g-w-{index}")
            again = member(index, "h20")
            again["metadata"]["uid"] += "-again"
            stage.arrives("pods", again)
        stage.turn()
        stage.await_outcome()
        stage.turn()
        assert names.PLAN in stage.server.objects[f"{GROUPS}/g"]["metadata"]["annotations"]
