"""A gang of low priority that is told to leave its cards and to come back; its node's agent is played."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from unit.admission.build import group, let_go, node, pod
from unit.admission.stage import PODS, REPLICA_SET, Stage, stage_on
from unit.admission.stage import plan as plan_text
from vc_egpu.admission.telling import suspension_words as words
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, PodUid, Share, SuspensionState
from vc_egpu.core.model.plan import Plan, Suspension
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError

VICTIM = "default/v"
UIDS = [PodUid("v-0"), PodUid("v-1")]
ABLE = PodSuspension(suspendable=True)


@contextmanager
def suspendable_on(folder: Path) -> Iterator[Stage]:
    """Where such a gang runs."""
    with stage_on(folder) as found:
        running_gang(found)
        yield found


def running_gang(stage: Stage, **changes: Any) -> None:
    """A gang of low priority with two members on node n1, both able to leave."""
    for i, uid in enumerate(UIDS):
        low = {names.PRIORITY: "low", **changes.get("annotations", {})}
        raw = pod(f"v-{i}", gang="v", index=i, uid=uid, owners=REPLICA_SET, annotations=low)
        stage.put("pods", let_go(raw, "5-1", bound=True, phase="Running"))
    stage.put("podgroups", group("v"))
    report(stage, dict.fromkeys(UIDS, ABLE))
    stage.agenda.take_question()
    stage.drive()


def report(
    stage: Stage, pods: dict[PodUid, PodSuspension], text: str | None = None, name: str = "n1"
) -> None:
    """The node's agent says so."""
    raw = node(name)
    raw["metadata"]["annotations"][names.NODE_SUSPENSION] = (
        NodeSuspension(pods={str(uid): one for uid, one in pods.items()}).encode() if text is None else text
    )
    stage.node_says(raw)


def answer(stage: Stage, state: Any, **more: Any) -> None:
    """The agent has acted on the orders that stand there, or on their absence."""
    said = {}
    for uid in UIDS:
        order = order_on(stage, uid)
        plan_id = order.plan_id if order is not None else "5-1"
        said[uid] = PodSuspension(state=state, plan_id=plan_id, suspendable=True, **more)
    report(stage, said)
    stage.drive()


def order_on(stage: Stage, uid: str) -> SuspendOrder | None:
    """What stands on the pod on the server."""
    text = (stage.server.objects[f"{PODS}/{uid}"]["metadata"].get("annotations") or {}).get(names.SUSPEND)
    try:
        return None if text is None else SuspendOrder.decode(text)
    except AnnotationError:
        return None


def until(stage: Stage, reached: Callable[[], bool]) -> None:
    """Take in outcomes until it is so."""
    stage.drive()
    for _ in range(200):
        if reached():
            return
        stage.outcome()
    pytest.fail("never came about")


def in_time(stage: Stage, reached: Callable[[], bool]) -> None:
    """Take in outcomes, and let time pass where there are none, until it is so."""
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        try:
            stage.conductor.done(stage.inbox.get(timeout=0.05))
        except Empty:
            stage.later(40)
        else:
            stage.drive()


def ordered(stage: Stage) -> bool:
    return all(order_on(stage, uid) is not None for uid in UIDS) and all(
        stage.mirror.pods[uid].pod.suspend_ordered for uid in UIDS
    )


def lifted(stage: Stage) -> bool:
    stands = any(
        names.SUSPEND in stage.server.objects[f"{PODS}/{uid}"]["metadata"]["annotations"] for uid in UIDS
    )
    return not stands and not stage.mirror.answers.lifting


def suspend(stage: Stage) -> None:
    """By a user's wish, all the way."""
    wish = Plan(1, suspensions=(Suspension(VICTIM, frozenset(UIDS), Cause.WISH),))
    stage.conductor.carry_out(wish, 1000.0)
    until(stage, lambda: ordered(stage))
    answer(stage, "suspended", host_mib=31000)


def said_of(stage: Stage, path: str) -> words.Said | None:
    return words.standing((stage.server.objects[path].get("status") or {}).get("conditions") or ())


def states(stage: Stage) -> list[tuple[bool, SuspensionState]]:
    pods = [stage.mirror.snapshot().pods[uid] for uid in UIDS]
    return [(found.suspend_ordered, found.suspension) for found in pods]


def waiting_for(stage: Stage, victims: set[PodUid], suspends: set[PodUid], **changes: Any) -> None:
    """A gang of high priority whose plan waits."""
    stage.put("pods", pod("g-w-0", uid="pod-0"))
    members = {"w/0": planned("pod-0")}
    text = plan_text(
        stage.mirror,
        state="waiting",
        members=members,
        victims=frozenset(victims),
        suspends=frozenset(suspends),
        **changes,
    )
    stage.put("podgroups", group(members=1, annotations={names.PLAN: text}))
    stage.conductor.carry_out(Plan(1), 1000.0)


def planned(uid: str) -> PlannedMember:
    share = Share(CardId("GPU-n1-0"), 30000, 30)
    return PlannedMember(MemberPlacement(NodeName("n1"), (("main", share),)), PodUid(uid))


def other_victim(stage: Stage) -> PodUid:
    raw = pod("e-0", gang="e", uid="e-0", owners=REPLICA_SET, annotations={names.PRIORITY: "low"})
    stage.put("pods", let_go(raw, "5-1", bound=True))
    stage.put("podgroups", group("e", members=1))
    return PodUid("e-0")
