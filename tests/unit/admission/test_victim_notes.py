"""A gang that goes for another one: its PodGroup remembers when, for the next leader too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import TABLE, Json, added, group, let_go, pod
from unit.admission.stage import GROUPS, KEY, REPLICA_SET, Stage, plan, stage_on
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.core.model.plan import Plan
from vc_egpu.volcano.codec import gang_notes
from vc_egpu.volcano.words import names


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


def victim(stage: Stage, victim_at: str | None = None, members: int = 1) -> None:
    """The gang ``default/v`` runs, one of its pods goes for the gang ``default/g``."""
    for i in range(members):
        raw = pod(f"v-{i}", gang="v", uid=f"victim-{i}", owners=REPLICA_SET)
        stage.put("pods", let_go(raw, "5-9", bound=True))
    annotations = {names.PLAN: plan(stage.mirror, group_uid="group-v", plan_id="5-9")}
    if victim_at is not None:
        annotations[names.VICTIM_AT] = victim_at
    stage.put("podgroups", group("v", members=1, annotations=annotations))
    stage.put("pods", pod("g-w-0", uid="pod-0"))
    text = plan(stage.mirror, state="waiting", victims=frozenset({PodUid("victim-0")}))
    stage.put("podgroups", group(annotations={names.PLAN: text}))


def noted(stage: Stage) -> Json:
    annotations: Json = stage.server.objects[f"{GROUPS}/v"]["metadata"]["annotations"]
    return annotations


def test_the_write_that_takes_the_plan_away_leaves_the_note(stage: Stage) -> None:
    victim(stage, gang_notes.encode_victim_at((5.0,)))
    stage.conductor.carry_out(Plan(1, (), (), (), {}), 1000.0)
    stage.outcome()
    assert names.PLAN not in noted(stage)
    times = gang_notes.decode_victim_at(noted(stage)[names.VICTIM_AT])
    assert len(times) == 1, "what is older than an hour is forgotten"
    assert stage.asked_to_go() == ["v-0"]
    later = Mirror(TABLE)
    later.apply("podgroups", added(stage.server.objects[f"{GROUPS}/v"]))
    assert later.groups["default/v"].decoded.gang.victim_at == times


def test_a_gang_that_gives_up_some_members_was_not_evicted(stage: Stage) -> None:
    victim(stage, members=2)
    stage.conductor.carry_out(Plan(1, (), (), (), {}), 1000.0)
    stage.outcome()
    assert names.VICTIM_AT not in noted(stage)
    assert stage.asked_to_go() == ["v-0"]
    assert KEY in stage.mirror.groups
