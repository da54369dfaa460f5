"""Claims on PodGroups: written, read by the next leader, and taken off with the plan."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, node, pod, queue
from unit.admission.stage import BROKEN, CONFLICT, GROUPS, KEY, Stage, stage_on
from vc_egpu.admission.decision import without_admissions
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, Reservation, Share
from vc_egpu.core.model.plan import Admission, Plan
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.volcano.words import names

PLACE = MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-0"), 30000, 30)),))
CLAIM = Reservation(1000.0, 1300.0, {"w/0": PLACE, "w/1": PLACE})
REFUSED: Any = (422, {"kind": "Status", "status": "Failure", "message": "no", "code": 422}, {})


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        found.put("podgroups", group())
        for i in range(2):
            found.put("pods", pod(f"g-w-{i}", uid=f"pod-{i}", index=i))
        yield found


def says(stage: Stage, reservation: Reservation | None) -> None:
    """A decision says this of the gang."""
    stage.conductor.carry_out(Plan(1, reservations={KEY: reservation}), 1000.0)


def known(mirror: Mirror) -> Reservation | None:
    """What the next decision knows of it."""
    return mirror.snapshot().gangs[KEY].reservation


def written(stage: Stage) -> str | None:
    annotations: dict[str, str] = stage.server.objects[f"{GROUPS}/g"]["metadata"].get("annotations") or {}
    return annotations.get(names.RESERVED)


def next_leader(stage: Stage, *nodes: dict[str, Any]) -> Mirror:
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    for document in nodes:
        mirror.apply("nodes", added(document))
    for i in range(2):
        mirror.apply("pods", added(pod(f"g-w-{i}", uid=f"pod-{i}", index=i)))
    mirror.apply("podgroups", added(stage.server.objects[f"{GROUPS}/g"]))
    return mirror


def test_a_place_in_the_line_is_kept_in_memory(stage: Stage) -> None:
    says(stage, Reservation(1000.0))
    assert known(stage.mirror) == Reservation(1000.0)
    assert written(stage) is None
    says(stage, None)
    assert known(stage.mirror) is None


def test_a_claim_is_written_and_the_next_leader_knows_it(stage: Stage) -> None:
    says(stage, CLAIM)
    assert known(stage.mirror) == CLAIM, "it counts from now on"
    stage.outcome()
    assert known(stage.mirror) == CLAIM
    assert known(next_leader(stage, node())) == CLAIM


def test_with_its_node_the_claim_is_gone_and_not_its_place_in_the_line(stage: Stage) -> None:
    says(stage, CLAIM)
    stage.outcome()
    assert known(next_leader(stage)) == Reservation(1000.0)
    stage.mirror.apply("nodes", deleted(node()))
    assert known(stage.mirror) == Reservation(1000.0)


def test_a_claim_that_is_over_is_taken_off(stage: Stage) -> None:
    says(stage, CLAIM)
    stage.outcome()
    says(stage, None)
    assert known(stage.mirror) is None
    stage.outcome()
    assert written(stage) is None
    assert known(stage.mirror) is None


def test_the_write_of_the_plan_takes_the_claim_off(stage: Stage) -> None:
    says(stage, CLAIM)
    stage.outcome()
    admission = Admission(KEY, dict(CLAIM.members))
    verdicts = {KEY: Verdict(Reason.ADMITTED, "")}
    plan = Plan(1, (admission,), verdicts=verdicts, reservations={KEY: None})
    stage.conductor.carry_out(plan, 1000.0)
    stage.outcome()
    assert written(stage) is None
    assert stage.plan_text() is not None
    assert known(stage.mirror) is None


@pytest.mark.parametrize("failure", [BROKEN, CONFLICT])
def test_a_write_that_failed_is_said_again(stage: Stage, failure: Any) -> None:
    stage.server.script.append(failure)
    says(stage, CLAIM)
    stage.answered()
    assert known(stage.mirror) == Reservation(1000.0), "so that the next decision makes the claim again"


def test_where_the_api_server_takes_no_claim_this_leader_still_knows_it(stage: Stage) -> None:
    stage.server.script.append(REFUSED)
    says(stage, CLAIM)
    stage.answered()
    assert known(stage.mirror) == CLAIM
    assert written(stage) is None


def test_garbage_is_no_claim(stage: Stage) -> None:
    stage.put("podgroups", group("x", annotations={names.RESERVED: '{"since": "x"}'}))
    stage.put("podgroups", group("y", annotations={names.RESERVED: "[" * 99}))
    assert all(gang.reservation is None for gang in stage.mirror.snapshot().gangs.values())


def test_the_line_stands_still_while_admitting_is_stopped() -> None:
    stopped = without_admissions(replace(Plan(1), reservations={KEY: None}))
    assert not stopped.reservations
