"""Moves on their way through the controller: the claim stands on the PodGroup before the gang leaves."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, added, group, let_go, pod
from unit.admission.stage import GROUPS, REPLICA_SET, Stage, plan, stage_on
from vc_egpu.admission import settings
from vc_egpu.admission.decision import without_admissions
from vc_egpu.admission.state.agenda import Why
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import CardId, MemberPlacement, Move, NodeName, PodUid, Share
from vc_egpu.core.model.plan import Eviction, Plan
from vc_egpu.core.model.policy import Moving
from vc_egpu.volcano.codec import gang_notes
from vc_egpu.volcano.words import names

UID = PodUid("11111111-2222-4333-8444-555555555555")
PLACES = {"w/0": MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-0"), 30000, 30)),))}
MOVE = Move(990.0, PLACES, frozenset({UID}), "default/large", {"volcano.sh/vgpu-h20": 1}, 1000)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


def running(stage: Stage, moved: str | None = None) -> None:
    """The gang ``default/v`` runs with one pod."""
    stage.put("pods", let_go(pod("v-0", gang="v", uid=UID, owners=REPLICA_SET), "5-9", bound=True))
    annotations = {names.PLAN: plan(stage.mirror, group_uid="group-v", plan_id="5-9")}
    if moved is not None:
        annotations[names.MOVED] = moved
    stage.put("podgroups", group("v", members=1, annotations=annotations))


def noted(stage: Stage) -> Json:
    annotations: Json = stage.server.objects[f"{GROUPS}/v"]["metadata"]["annotations"]
    return annotations


def test_the_claim_is_written_and_the_next_leader_knows_it(stage: Stage) -> None:
    running(stage)
    stage.conductor.carry_out(Plan(1, moves={"default/v": MOVE}), 1000.0)
    stage.outcome()
    assert gang_notes.decode_move(noted(stage)[names.MOVED], "group-v", stage.mirror.nodes) == MOVE
    assert not stage.asked_to_go()
    later = Mirror(TABLE)
    for node in stage.nodes.values():
        later.apply("nodes", added(node))
    later.apply("podgroups", added(stage.server.objects[f"{GROUPS}/v"]))
    later.settle_all()
    assert later.snapshot().gangs["default/v"].move == MOVE


def test_a_claim_that_is_given_up_is_remembered_and_holds_no_card(stage: Stage) -> None:
    running(stage, gang_notes.encode_move(MOVE, "group-v", stage.mirror.nodes))
    stage.conductor.carry_out(Plan(1, moves={"default/v": MOVE.give_up(1000.0)}), 1000.0)
    stage.outcome()
    known = gang_notes.decode_move(noted(stage)[names.MOVED], "group-v", stage.mirror.nodes)
    assert known == Move(1000.0, whom="default/large", given_up=1)
    assert known is not None
    assert known.stays
    assert not stage.asked_to_go()


def test_a_claim_that_came_asks_for_a_decision_about_all(stage: Stage) -> None:
    running(stage)
    stage.agenda.take_question()
    stage.conductor.carry_out(Plan(1, moves={"default/v": MOVE}), 1000.0)
    stage.outcome()
    assert stage.agenda.take_question().all_for is Why.MOVE


def test_a_gang_with_other_cards_leaves_its_old_ones(stage: Stage) -> None:
    running(stage, gang_notes.encode_move(MOVE, "group-v", stage.mirror.nodes))
    going = Eviction("default/v", frozenset({UID}), whole=True, cause=Cause.DEFRAGMENTATION)
    stage.conductor.carry_out(Plan(1, evictions=(going,)), 1000.0)
    stage.outcome()
    assert stage.asked_to_go() == ["v-0"]
    assert names.MOVED in noted(stage), "the claim outlives the plan"
    assert names.PLAN not in noted(stage)


def test_nothing_moves_while_the_operator_has_stopped_admitting() -> None:
    going = Eviction("default/v", frozenset({UID}), whole=True, cause=Cause.DEFRAGMENTATION)
    past, stays = Move(990.0), MOVE.give_up(995.0)
    stopped = without_admissions(Plan(1, evictions=(going,), moves={"a": MOVE, "b": stays, "c": past}))
    assert not stopped.evictions
    assert stopped.moves == {"b": stays, "c": past}


def test_flags() -> None:
    assert settings.parse([]).policy.moving == Moving()
    words = ["--defrag=always", "--defrag-per-hour=9", "--defrag-after-s=60", "--defrag-hours=22-6"]
    assert settings.parse(words).policy.moving == Moving(True, True, 9, 60.0, hours=(22, 6))
    assert not settings.parse(["--defrag=waiting"]).policy.moving.for_fragments
    for wrong in ("x", "3", "25-3", "1-30", "-"):
        with pytest.raises(SystemExit):
            settings.parse([f"--defrag-hours={wrong}"])


def test_hours_of_the_day() -> None:
    night = Moving(hours=(22, 6))
    assert night.is_time(23 * 3600.0)
    assert night.is_time(86_400 * 5.0)
    assert not night.is_time(12 * 3600.0)
    assert Moving(hours=(1, 3)).is_time(3600.0)
    assert not Moving(hours=(1, 3)).is_time(3 * 3600.0)
