"""Writes that the API server refuses again and again end in another way, and the gang is told why."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import vc_egpu.admission
from unit.admission.build import group, let_go, pod
from unit.admission.stage import (
    GROUPS,
    KEY,
    PLAN_ID,
    PODS,
    REPLICA_SET,
    LoopStage,
    Stage,
    loop_on,
    plan,
    stage_on,
)
from unit.admission.suspended_gang import (
    UIDS,
    VICTIM,
    answer,
    in_time,
    order_on,
    running_gang,
    states,
    suspend,
    until,
    waiting_for,
)
from unit.kube.tiny_api import status
from vc_egpu.admission.carry_out.victims import SHIELD_S
from vc_egpu.admission.execution.carrying import LANDS_WITHIN_S
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Result, Unknown, Written, result_of
from vc_egpu.admission.recovery.rollback import RollBack, finds_no_room
from vc_egpu.admission.serving.metrics import PROCESS, Level1
from vc_egpu.admission.state.refusals import AGAIN_S
from vc_egpu.admission.suspension.suspending import Order
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    CardId,
    MemberPlacement,
    NodeName,
    PodPhase,
    PodUid,
    Share,
    SuspensionState,
)
from vc_egpu.core.model.plan import Admission, Plan, Resume, Suspension
from vc_egpu.core.model.reasons import BACK_OFF_NUMBER, Reason, Verdict
from vc_egpu.kube.wire import errors
from vc_egpu.volcano import room
from vc_egpu.volcano.words import names

FULL = "x" * (room.MAX_BYTES - 2000)
"""Leaves no room for the cards, for an order, or for the ask to Volcano's controller after some more."""
Refuses = Callable[[str, str, Any], tuple[int, Any] | None]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with stage_on(tmp_path) as found:
        yield found


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[LoopStage]:
    with loop_on(tmp_path) as found:
        yield found


def refusing(verb: str, part: str, holds: Callable[[Any], bool] = lambda body: True) -> Refuses:
    """A policy that forbids these requests."""

    def refuses(method: str, path: str, body: Any) -> tuple[int, Any] | None:
        if method == verb and part in path and holds(body):
            return 403, status(403, "Forbidden", "policy no-touch says no")
        return None

    return refuses


def annotates(name: str) -> Callable[[Any], bool]:
    """A body that says something about this annotation."""
    return lambda body: name in ((body.get("metadata") or {}).get("annotations") or {})


def is_asked_to_go(stage: Stage, name: str) -> bool:
    """Whether Volcano's controller is told to replace this pod."""
    return names.OUT_OF_SYNC in stage.server.objects[f"{PODS}/{name}"]["metadata"]["annotations"]


def fill(document: dict[str, Any], leave: int) -> dict[str, Any]:
    """The object with annotations that leave so many bytes."""
    said = document["metadata"]["annotations"]
    said["filler"] = "x" * (room.MAX_BYTES - leave - room.size(said) - len("filler"))
    return document


# --- the type ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, Written()),
        (errors.Conflict("x"), Overtaken()),
        (errors.NotFound("x"), Overtaken()),
        (errors.TooManyRequests("x"), Later()),
        (errors.BudgetExhausted("x"), Later()),
        (errors.Unauthorized("x"), Later()),
        (errors.Unavailable("x"), Unknown()),
        (errors.RequestTimeout("x"), Unknown()),
        (errors.KubeError("x"), Unknown(is_fault=True)),
        (errors.Invalid("too long"), Denied("too long")),
        (errors.Forbidden("no"), Denied("no")),
    ],
)
def test_an_error_means_one_of_five_things(error: errors.KubeError | None, result: Result) -> None:
    assert result_of(error) == result


def test_no_other_module_reads_that_off_an_error() -> None:
    """So each caller of a write matches on the result, and the type checker sees that it leaves none out."""
    read = {"Refused", "Invalid", "Forbidden", "Unauthorized", "Conflict", "Temporary", "Unavailable"}
    allowed = {"results.py", "retries.py", "executor.py", "drain.py", "leader.py", "main.py"}
    for path in sorted(Path(vc_egpu.admission.__path__[0]).rglob("*.py")):
        if path.name in allowed:
            continue
        for found in ast.walk(ast.parse(path.read_text())):
            if isinstance(found, ast.ImportFrom) and found.module == "vc_egpu.kube.wire.errors":
                assert not read & {alias.name for alias in found.names}, path


# --- evictions -----------------------------------------------------------------------------------


def victim_of_volcano(stage: Stage, leave: int) -> None:
    """A running pod of a Volcano Job whose annotations leave so many bytes; a gang needs its card."""
    raw = pod("e-0", gang="e", uid="e-0", annotations={names.PRIORITY: "low"})
    stage.put("pods", fill(let_go(raw, "5-1", bound=True, phase="Running"), leave))
    stage.put("podgroups", group("e", members=1))
    waiting_for(stage, {PodUid("e-0")}, set())


def test_a_pod_without_room_for_volcanos_lever_is_evicted_at_once(stage: Stage) -> None:
    victim_of_volcano(stage, leave=10)
    stage.outcome()
    assert stage.asked_to_go() == ["e-0"]
    assert stage.work.counters["lever_failed"] == 1


def test_a_lever_that_a_policy_forbids_is_followed_by_the_eviction_at_once(stage: Stage) -> None:
    stage.server.refuses = refusing("PATCH", "/pods/e-0", annotates(names.OUT_OF_SYNC))
    victim_of_volcano(stage, leave=100_000)
    stage.outcome()
    assert stage.asked_to_go() == ["e-0"]
    assert stage.work.refused["lever"] == 1


def test_one_full_pod_of_two_costs_the_other_nothing_for_nothing(stage: Stage) -> None:
    """Before, the other one was asked to go each time, and came back, and so on without end."""
    for i, leave in enumerate((100_000, 10)):
        raw = pod(f"e-{i}", gang="e", index=i, uid=f"e-{i}", annotations={names.PRIORITY: "low"})
        stage.put("pods", fill(let_go(raw, "5-1", bound=True, phase="Running"), leave))
    stage.put("podgroups", group("e"))
    waiting_for(stage, {PodUid("e-0"), PodUid("e-1")}, set())
    stage.outcome()
    assert stage.asked_to_go() == ["e-1"]
    assert stage.server.objects[f"{PODS}/e-0"]["metadata"]["annotations"][names.OUT_OF_SYNC] == "true"


def test_no_victim_goes_for_a_gang_whose_member_takes_no_cards(stage: Stage) -> None:
    stage.server.refuses = refusing("PATCH", "/pods/g-w-0", annotates(names.CARDS))
    victim_of_volcano(stage, leave=100_000)
    stage.outcome()
    in_time(stage, lambda: stage.plan_text() is None)
    assert stage.asked_to_go() == []
    assert not is_asked_to_go(stage, "e-0")
    assert "policy no-touch says no" in stage.mirror.pods[PodUid("pod-0")].problem


def test_victims_that_may_not_be_evicted_are_left_alone_for_long(stage: Stage) -> None:
    stage.server.refuses = refusing("POST", "/pods/e-0/eviction")
    victim_of_volcano(stage, leave=100_000)
    stage.outcome()
    assert stage.mirror.shielded == {"e-0": AGAIN_S}
    assert AGAIN_S > SHIELD_S


def test_an_eviction_without_effect_is_asked_for_again_and_again(stage: Stage) -> None:
    """The API server says that the pod is not there, and shows it: before, it was asked once."""
    stage.put("pods", let_go(pod("e-0", gang="e", uid="e-0", owners=REPLICA_SET), "5-1", bound=True))
    stage.put("podgroups", group("e", members=1))
    stage.server.refuses = lambda method, path, _: (
        (404, status(404, "NotFound")) if path.endswith("/eviction") else None
    )
    waiting_for(stage, {PodUid("e-0")}, set())
    stage.outcome()
    for _ in range(3):
        stage.time_passes(61)
        late = stage.work.evictions.overdue(stage.work.clock, stage.conductor.rolling.is_leaving)
        assert late == ["e-0"]
        stage.conductor.victims.press(PodUid("e-0"))
        stage.outcome()


# --- members -------------------------------------------------------------------------------------


def planned_gang(stage: Stage) -> None:
    for i in range(2):
        stage.put("pods", pod(f"g-w-{i}", index=i, uid=f"pod-{i}"))
    stage.put("podgroups", group(annotations={names.PLAN: plan(stage.mirror)}))
    stage.drive()


def test_a_member_that_takes_no_cards_brings_its_whole_gang_back(stage: Stage) -> None:
    stage.server.refuses = refusing("PATCH", "/pods/g-w-1", annotates(names.CARDS))
    planned_gang(stage)
    in_time(stage, lambda: is_asked_to_go(stage, "g-w-0"))
    assert stage.plan_text() is None, "no card stays booked for it"
    member = stage.mirror.pods[PodUid("pod-1")]
    assert "policy no-touch says no" in member.problem
    assert stage.mirror.groups[KEY].decoded.rolled_back, "a back-off for the next leader"
    assert stage.work.refused["carry"] == 1


def test_a_member_above_the_minimum_that_takes_no_cards_leaves_the_others_alone(stage: Stage) -> None:
    stage.server.refuses = refusing("PATCH", "/pods/g-w-1", annotates(names.CARDS))
    for i in range(2):
        stage.put("pods", pod(f"g-w-{i}", index=i, uid=f"pod-{i}"))
    stage.put("podgroups", group(members=1, annotations={names.PLAN: plan(stage.mirror)}))
    stage.drive()
    in_time(stage, lambda: stage.plan_text() is None)
    assert stage.mirror.pods[PodUid("pod-0")].pod.phase is PodPhase.PLACED
    assert not is_asked_to_go(stage, "g-w-0")


def test_its_pods_are_tried_again_after_a_while(loop: LoopStage) -> None:
    loop.server.refuses = refusing("PATCH", "/pods/g-w-1", annotates(names.CARDS))
    loop.arrives("podgroups", group())
    until_so(loop, lambda: bool(loop.mirror.pods[PodUid("pod-1")].problem))
    loop.server.refuses = None
    loop.later(AGAIN_S + 1)
    loop.idle_turn()
    assert not loop.mirror.pods[PodUid("pod-1")].problem


def test_a_gang_with_a_full_member_is_never_let_go_in_part(loop: LoopStage) -> None:
    full = fill(pod("g-w-1", index=1, uid="pod-1"), leave=100)
    loop.arrives("pods", full)
    loop.arrives("podgroups", group())
    loop.turn()
    loop.idle_turn()
    said = loop.said()
    assert said is not None
    assert said.reason is Reason.WAITING_FOR_MEMBERS
    assert "pod g-w-1: its annotations take 262044 bytes of the 262144 that Kubernetes allows" in said.message
    assert names.CARDS not in loop.server.objects[f"{PODS}/g-w-0"]["metadata"]["annotations"]


def until_so(loop: LoopStage, reached: Callable[[], bool]) -> None:
    for _ in range(60):
        if reached():
            return
        due = loop.work.due()
        if due is not None:
            loop.later(max(0.0, due - loop.clock.now()))
        loop.turn(0.2)
    pytest.fail("never came about")


def test_a_fence_that_is_refused_keeps_a_plan_only_as_long_as_a_write_can_land(stage: Stage) -> None:
    carrying = stage.conductor.members.carrying
    uid = PodUid("pod-0")
    carrying.begin(uid)
    carrying.ended(uid, errors.RequestTimeout("x"), 100.0)
    carrying.ended(uid, errors.Forbidden("x"), 100.0 + LANDS_WITHIN_S - 1)
    assert not carrying.is_settled(KEY, [uid])
    carrying.ended(uid, errors.Forbidden("x"), 100.0 + LANDS_WITHIN_S)
    assert carrying.is_settled(KEY, [uid])


def test_what_runs_without_its_peer_comes_back_where_the_peer_takes_no_cards(stage: Stage) -> None:
    """The peer is a replacement: what runs was let go for an earlier plan."""
    stage.server.refuses = refusing("PATCH", "/pods/g-w-1", annotates(names.CARDS))
    stage.put("pods", let_go(pod("g-w-0", uid="pod-0"), "5-0", bound=True, phase="Running"))
    stage.put("pods", pod("g-w-1", index=1, uid="pod-1"))
    stage.put("podgroups", group(annotations={names.PLAN: plan(stage.mirror)}))
    stage.drive()
    in_time(stage, lambda: is_asked_to_go(stage, "g-w-0"))


def test_a_gang_is_not_planned_while_a_member_still_has_to_go(stage: Stage) -> None:
    """The eviction of one failed for now: a plan that counts that member would let the others go alone."""
    stage.put("pods", let_go(pod("g-w-0", uid="pod-0"), "5-0", bound=True, phase="Running"))
    stage.put("pods", pod("g-w-1", index=1, uid="pod-1"))
    stage.put("podgroups", group())
    member = stage.mirror.members[KEY][PodUid("pod-0")]
    back = RollBack((member,), "x", frozenset())
    stage.conductor.rolling.begin(KEY, stage.mirror.groups[KEY], back, 1000.0)
    place = MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-1"), 30000, 30)),))
    admission = Admission(KEY, {"w/1": place})
    verdict = {KEY: Verdict(Reason.ADMITTED, "1 member placed")}
    stage.conductor.carry_out(Plan(1, admissions=(admission,), verdicts=verdict), 1000.0)
    assert stage.mirror.groups[KEY].effective is None


def test_a_plan_that_is_refused_is_as_good_as_no_room() -> None:
    """Members that run without a peer are rolled back after the same ten minutes."""
    refused = Verdict(Reason.WRITE_REFUSED, "no", {BACK_OFF_NUMBER: 600})
    assert finds_no_room(refused)


# --- PodGroups -----------------------------------------------------------------------------------


def test_a_full_podgroup_is_told_and_nothing_is_carried_out(loop: LoopStage) -> None:
    loop.arrives("podgroups", fill(group(), leave=100))
    loop.turn()
    loop.idle_turn()
    said = loop.said()
    assert said is not None
    assert "does not fit on its PodGroup: the other annotations there take 262044 bytes" in said.message
    assert loop.mirror.groups[KEY].effective is None, "no card is booked"
    gang = loop.mirror.state.gang(KEY)
    assert gang is not None
    assert gang.not_before > 0, "others get what it would have got"
    loop.arrives("podgroups", group())
    until_so(loop, lambda: names.CARDS in loop.server.objects[f"{PODS}/g-w-0"]["metadata"]["annotations"])


def test_a_plan_that_a_policy_forbids_is_told_and_not_tried_all_the_time(loop: LoopStage) -> None:
    loop.server.refuses = refusing("PATCH", "/podgroups/g", annotates(names.PLAN))
    loop.arrives("podgroups", group())
    until_so(loop, lambda: KEY in loop.mirror.refusals.gangs)
    until_so(loop, lambda: (said := loop.said()) is not None and said.reason is Reason.WRITE_REFUSED)
    said = loop.said()
    assert said is not None
    assert "policy no-touch says no" in said.message
    sent = len(loop.server.requests)
    for _ in range(5):
        loop.later(31)
        loop.idle_turn()
    plans = [body for _, path, body in loop.server.requests[sent:] if path == f"{GROUPS}/g" and body]
    assert not any(annotates(names.PLAN)(body) for body in plans)
    shown = Level1(loop.view).answer(PROCESS)
    assert b'egpu_admission_writes_refused_total{write="plan"} 1\n' in shown


def test_a_ready_plan_that_cannot_be_written_is_withdrawn(stage: Stage) -> None:
    waiting_for(stage, {PodUid("gone")}, set())
    stage.server.refuses = refusing(
        "PATCH",
        "/podgroups/g",
        lambda body: bool((body["metadata"].get("annotations") or {}).get(names.PLAN)),
    )
    stage.conductor.plans.turn_ready(KEY, PLAN_ID, 1000.0)
    in_time(stage, lambda: stage.plan_text() is None)
    assert KEY in stage.mirror.refusals.gangs


def test_who_was_let_go_comes_back_even_where_no_note_can_be_left(stage: Stage) -> None:
    stage.server.refuses = lambda method, path, body: (
        refusing("PATCH", "/pods/g-w-1", annotates(names.CARDS))(method, path, body)
        or refusing("PATCH", "/podgroups/g")(method, path, body)
    )
    planned_gang(stage)
    in_time(stage, lambda: is_asked_to_go(stage, "g-w-0"))


def test_a_condition_that_is_refused_is_not_written_all_the_time(loop: LoopStage) -> None:
    loop.server.refuses = refusing(
        "PATCH", "/podgroups/g", lambda body: "conditions" in body.get("status", {})
    )
    loop.goes("pods", "g-w-1")
    loop.arrives("podgroups", group())
    for _ in range(30):
        loop.later(1)
        loop.turn(0.05)
    tried = [path for method, path, _ in loop.server.requests if method == "PATCH" and "/podgroups/g" in path]
    assert len(tried) <= 3


# --- suspending ----------------------------------------------------------------------------------


def test_a_pod_without_room_for_an_order_cannot_be_suspended(stage: Stage) -> None:
    running_gang(stage, annotations={"filler": FULL})
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    stage.drive()
    assert stage.inbox.empty(), "no order is written"
    assert [stage.mirror.pods[uid].pod.suspendable for uid in UIDS] == [False, False]
    why = stage.conductor.suspending.order(VICTIM, UIDS, Order("5-9", "x", Cause.WISH))
    assert why == "pod v-0 cannot be suspended: its annotations leave no room for the order"


def test_an_order_that_is_refused_is_given_up_for_the_whole_gang(stage: Stage) -> None:
    running_gang(stage)
    stage.server.refuses = refusing("PATCH", "/pods/v-1", annotates(names.SUSPEND))
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    in_time(stage, lambda: set(stage.mirror.answers.unfit) == set(UIDS) and order_on(stage, UIDS[0]) is None)
    assert not any(stage.mirror.pods[uid].pod.suspendable for uid in UIDS), "it is evicted where it must go"
    assert "policy no-touch says no" in stage.mirror.answers.unfit[UIDS[1]]


def test_a_gang_whose_order_cannot_be_taken_off_is_replaced(stage: Stage) -> None:
    running_gang(stage)
    suspend(stage)
    stage.server.refuses = refusing("PATCH", "/pods/v-1", annotates(names.SUSPEND))
    stage.conductor.carry_out(Plan(1, resumes=(Resume(VICTIM, frozenset(UIDS)),)), 1000.0)
    in_time(stage, lambda: UIDS[1] in stage.mirror.answers.unreturning)
    assert states(stage)[1][1] is SuspensionState.FAILED, "the decision evicts and queues it again"
    stage.server.refuses = None
    stage.time_passes(601)
    stage.tick()
    until(stage, lambda: order_on(stage, UIDS[1]) is None)
    answer(stage, "running")
    assert states(stage) == [(False, SuspensionState.RUNNING)] * 2
