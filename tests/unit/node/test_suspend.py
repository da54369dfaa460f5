"""Suspending and resuming as ordered, and what the Node says of it."""

from dataclasses import replace
from typing import Any

import pytest
from unit.node.granted import grant
from unit.node.suspend_stage import CARD, PROCESS, UID, Stage, low_pod, order
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.codec.suspension import NodeSuspension
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.suspension.facts import LowPod, low_pods, spilled_mib
from vc_egpu_node.suspension.machine import Record
from vc_egpu_node.suspension.suspender import Store
from vc_egpu_node.suspension.verdict import Verdict
from vc_egpu_node.suspension.world import away


def test_away_and_back(stage: Stage) -> None:
    said = stage.look()
    assert (said.state, said.suspendable, said.reason, said.host_mib) == ("running", True, "", 8_000)
    stage.order(1)
    said = stage.look()
    assert (said.state, said.plan_id, said.suspendable, said.host_mib) == ("suspended", "1-1", False, 6_000)
    assert [one.pods[UID].state for one in stage.said] == ["running", "suspending", "suspended"]
    assert stage.suspender.suspended() == {UID}
    assert stage.gates[UID]
    assert stage.booked == {UID: 8_000}
    stage.now_s += 100
    (metric,) = stage.suspender.pods()
    assert (metric.suspended_s, metric.host_mib) == (100.0, 6_000)
    stage.order(None)
    said = stage.look()
    assert (said.state, said.suspendable, said.reason) == ("running", True, "")
    assert not stage.gates[UID]
    assert stage.card.calls == [("suspend", (PROCESS,)), ("resume", (PROCESS,))]
    assert [reason for reason, _ in stage.told] == ["LeftCards", "BackOnCards"]
    assert stage.suspender.pods()[0].suspended_s == 100.0


def test_a_clock_that_is_set_back_takes_nothing_off_the_time_that_was_counted(stage: Stage) -> None:
    """Who adds up counters would take it for a new beginning, and count all of it once more."""
    stage.order(1)
    stage.look()
    stage.now_s += 100
    assert [one.suspended_s for one in stage.suspender.pods()] == [100.0]
    stage.now_s -= 60
    assert [one.suspended_s for one in stage.suspender.pods()] == [100.0]
    stage.order(None)
    stage.look()
    assert [one.suspended_s for one in stage.suspender.pods()] == [100.0]


def test_nothing_is_written_while_nothing_changes(stage: Stage) -> None:
    stage.verdict_now = Verdict("uses 10 of 20 MiB", "limit")
    stage.look()
    stage.verdict_now = Verdict("uses 11 of 20 MiB", "limit")
    stage.look()
    assert len(stage.said) == 1
    stage.verdict_now = Verdict("under MPS", "mps")
    assert stage.look().reason == "under MPS"
    assert len(stage.said) == 2


def test_an_api_server_that_is_away_hears_of_it_later(stage: Stage) -> None:
    stage.api_down = True
    stage.order(1)
    stage.suspender.look()
    assert stage.suspender.wait(60)
    stage.suspender.look()
    assert stage.said == []
    stage.api_down = False
    assert stage.look().state == "suspended"


def test_what_the_api_server_did_not_take_is_said_again(stage: Stage) -> None:
    """Also where nothing changed since: what the Node said before stayed there."""
    stage.verdict_now = Verdict("its containers do not all run", "start")
    assert not stage.look().suspendable
    stage.verdict_now, stage.api_down = Verdict(), True
    stage.look()
    stage.api_down = False
    assert stage.look().suspendable
    stage.look()
    assert len(stage.said) == 2


def test_what_overwrote_the_node_is_written_over(stage: Stage) -> None:
    """A write that was given up here may be carried out by the API server after a later one."""
    stage.verdict_now = Verdict("its containers do not all run", "start")
    stage.look()
    late = stage.node
    stage.verdict_now = Verdict()
    stage.look()
    stage.node = late
    stage.look()
    assert stage.node is not None
    assert NodeSuspension.decode(stage.node).pods[UID].suspendable


def test_ordered_anew_while_it_waits_for_room(stage: Stage) -> None:
    stage.policy = Policy(resume_room_s=600.0)
    stage.order(1)
    stage.look()
    stage.card.free_mib = 0
    stage.order(None)
    stage.suspender.look()
    assert stage.state_now() is SuspensionState.RESUMING
    assert stage.suspender.suspended() == frozenset()  # booked in full from now on
    stage.order(2)
    said = stage.look()
    assert (said.state, said.plan_id) == ("suspended", "1-2")


def test_who_waits_for_room_keeps_nobody_from_making_it(stage: Stage) -> None:
    """Many wait to come back onto a card that another pod, which is ordered away, still fills."""
    others = {f"uid-{n}": low_pod(uid=f"uid-{n}", name=f"p{n}") for n in range(40)}
    for uid, pod in others.items():
        record = Record(uid, "ns", pod.view.name, state=SuspensionState.SUSPENDED, plan_id="1-1")
        Store(stage.folder).put(replace(record, card_mib=((CARD, 1),)))
    stage.policy = Policy(resume_room_s=600.0)
    stage.restart()
    stage.card.free_mib = 0
    stage.pods_here = {UID: low_pod(suspend=order(2)), **others}
    stage.suspender.look()
    stage.settle(UID)  # the one that leaves: all others wait
    assert stage.said[-1].pods[UID].state == "suspended"
    stage.card.free_mib = 1
    stage.settle()
    assert {one.state for uid, one in stage.said[-1].pods.items() if uid != UID} == {"running"}


def test_another_order_for_what_is_suspended_renames_it(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    stage.order(2)
    assert (stage.look().plan_id, len(stage.card.calls)) == ("1-2", 1)


def test_a_pod_that_is_gone_leaves_nothing_behind(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    stage.pods_here = None
    stage.suspender.look()  # the watch is not there yet: nothing is concluded
    assert stage.suspender.suspended() == {UID}
    stage.pods_here, stage.gone = {}, True
    stage.suspender.look()
    assert list(stage.folder.iterdir()) == []
    assert stage.said[-1].pods == {}
    assert (stage.suspender.suspended(), stage.suspender.pods()) == (frozenset(), [])


@pytest.mark.parametrize("text", ["", "{", '{"version":2}', order(1, "uid-other")])
def test_an_order_that_is_none_is_no_order(stage: Stage, text: str) -> None:
    stage.pods_here = {UID: low_pod(suspend=text)}
    assert stage.look().state == "running"
    assert stage.card.calls == []


# --- who it is about ---------------------------------------------------------------------------------


def test_low_pods_are_those_whose_shares_are_all_low() -> None:
    def view(name: str, **changes: Any) -> PodView:
        return replace(PodView(f"uid-{name}", "ns", name, "n", "Running", "{}"), **changes)

    grants = [
        grant("a", (CARD, 100, 1), share_class="low"),
        grant("b", (CARD, 100, 1), share_class="high"),
        grant("c", (CARD, 100, 1), share_class="low", native=True),
        grant("d", (CARD, 100, 1), share_class="low"),
    ]
    views = [view("a"), view("b"), view("c"), view("d", phase="Succeeded"), view("e")]
    assert set(low_pods(grants, views)) == {"uid-a"}
    assert spilled_mib(grants) == {}


def test_who_is_away_is_known_without_what_brings_them_back(stage: Stage) -> None:
    assert away(stage.folder.parent) == []
    stage.order(1)
    stage.look()
    assert away(stage.folder.parent) == ["ns/train"]


def test_pods_that_are_ordered_away_together_are_judged_one_after_the_other(stage: Stage) -> None:
    """Each by itself would find room on the host that its neighbour takes a second later."""
    first, second = (
        LowPod(low_pod(uid=uid, name=uid, suspend=order(1, uid)).view,
               (grant(uid, (CARD, 8_000, 50), share_class="low", pod_uid=uid),))
        for uid in ("uid-1", "uid-2")
    )  # fmt: skip
    stage.pods_here = {one.uid: one for one in (first, second)}
    stage.verdict_of = lambda node: Verdict("no room beside it" if node.leaving else "")
    stage.suspender.look()
    assert stage.leaving == {"uid-1": frozenset(), "uid-2": {"uid-1"}}
    assert stage.booked == {"uid-1": 8_000}
    stage.settle()
    assert stage.leaving["uid-2"] == frozenset()  # what has left is no longer in the host's free memory
    said = stage.said[-1].pods
    assert {uid: one.state for uid, one in said.items()} == {"uid-1": "suspended", "uid-2": "running"}
    assert said["uid-2"].reason == "no room beside it"


@pytest.mark.parametrize("refused", [True, False])
def test_what_cannot_be_noted_is_said_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    """On a full disk: all others of the node wait for the same look."""

    def full(self: Store, record: Record) -> None:
        raise OSError("no space")

    if not refused:
        stage.order(1)
        assert stage.look().state == "suspended"
    monkeypatch.setattr(Store, "put", full)
    stage.verdict_now = Verdict("uses 10 of 20 MiB", "limit")
    stage.order(2)
    said = stage.look()
    assert (said.state, said.plan_id) == ("running" if refused else "suspended", "1-2")
    assert not refused or stage.told == [("NotSuspended", "uses 10 of 20 MiB")]
