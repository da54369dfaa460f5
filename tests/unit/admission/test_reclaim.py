"""Queues take back what they deserve: who is tried when, and what stands on the plan and the events."""

from collections.abc import Callable
from pathlib import Path

from unit.admission.build import added, group, node, pod, queue
from unit.admission.stage import GROUPS, LoopStage, loop_on
from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.reasons import Reason
from vc_egpu.volcano.codec import cluster_codec, plans
from vc_egpu.volcano.words import names

TAKER = "default/t"
H20 = "volcano.sh/vgpu-h20"


def test_a_queue_says_whether_high_gangs_make_room_in_its_cap() -> None:
    document = queue()
    assert cluster_codec.queue(document).preempts_within
    for value, preempts in (("true", True), ("false", False), ("no", True)):
        document["metadata"]["annotations"] = {names.PREEMPT_WITHIN_QUEUE: value}
        assert cluster_codec.queue(document).preempts_within is preempts


def two_queues(stage: LoopStage) -> None:
    """One card, which ``team`` borrows, and ``owners`` deserves."""
    stage.deliver("nodes", added(node(cards=1)))
    for name, deserved in (("team", "0"), ("owners", "1")):
        document = queue(name)
        document["spec"]["deserved"] = {H20: deserved}
        stage.deliver("queues", added(document))


def taker_comes(stage: LoopStage) -> None:
    document = group("t")
    document["spec"]["queue"] = "owners"
    stage.arrives("podgroups", document)
    for i in range(2):
        stage.arrives("pods", pod(f"t-w-{i}", gang="t", index=i, uid=f"taker-{i}"))


def until(stage: LoopStage, is_so: Callable[[], bool]) -> None:
    """Turns, each after a write was answered."""
    while not is_so():
        stage.await_outcome()
        stage.turn()


def said(stage: LoopStage) -> Reason | None:
    verdict = stage.said(TAKER)
    return verdict.reason if verdict is not None else None


def plan_text(stage: LoopStage) -> str:
    metadata = stage.server.objects[f"{GROUPS}/t"]["metadata"]
    return str((metadata.get("annotations") or {}).get(names.PLAN, ""))


def test_a_gang_takes_back_from_one_that_was_still_on_its_way(tmp_path: Path) -> None:
    """It finds no victim while the gates of the other one fall, and nothing else happens after that."""
    with loop_on(tmp_path) as stage:
        two_queues(stage)
        stage.arrives("podgroups", group())
        stage.turn()
        stage.server.answers.clear()
        taker_comes(stage)
        stage.turn()
        assert said(stage) is Reason.WAITING_FOR_CARDS
        stage.server.answers.set()
        until(stage, lambda: bool(plan_text(stage)))
        verdict = stage.said(TAKER)
        assert verdict is not None
        assert verdict.reason is Reason.WAITING_FOR_EVICTION
        assert verdict.message.endswith("owners has 0 of 1 h20, team has 0.61 of 0 h20")
        plan = plans.decode(plan_text(stage), stage.mirror.nodes)
        assert plan.cause is Cause.RECLAIM
        assert plan.accounts == (Account("owners", H20, 0, 1_000_000), Account("team", H20, 610_350, 0))
