"""Pods of several processes, and programs that come to rest at a signal: when their launches wait."""

import json
from dataclasses import replace

import pytest
from unit.node.suspend_stage import PROCESS, UID, Stage, low_pod, order
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu_node.suspension.helper import Answer, Drain
from vc_egpu_node.suspension.machine import Process, Record

OTHER: Process = (72, 6)
REST = Drain("SIGUSR1", 20_000)


def several(stage: Stage) -> None:
    stage.card.states[OTHER] = "running"


def rests(stage: Stage, number: int | None) -> None:
    """The program offers a signal, and may have an order."""
    stage.pods_here = {UID: low_pod(suspend=order(number) if number else None, suspend_signal="SIGUSR1")}


def test_a_single_process_waits_with_its_launches_from_the_beginning(stage: Stage) -> None:
    stage.order(1)
    assert stage.look().state == "suspended"
    assert (stage.card.gate_then, stage.card.drains) == ([True], [None])


@pytest.mark.parametrize("signal", [False, True])
def test_ranks_launch_until_all_of_them_stand_still(stage: Stage, signal: bool) -> None:
    several(stage)
    rests(stage, 1) if signal else stage.order(1)
    assert stage.look().state == "suspended"
    assert stage.card.gate_then == [False], "one may have to launch what another waits for"
    assert stage.gates[UID], "what begins now would take what they left"
    assert stage.card.drains == [REST if signal else None]
    rests(stage, None) if signal else stage.order(None)
    assert stage.look().state == "running"
    assert stage.card.drains[1:] == [REST if signal else None]
    assert not stage.gates[UID]


def test_one_that_did_not_come_to_rest_runs_on_and_the_node_says_why(stage: Stage) -> None:
    several(stage)
    why = "process 72 did not come to rest within 20000 ms of SIGUSR1"
    stage.card.answers.append(Answer(done=False, error=why, states={71: "running", 72: "running"}))
    rests(stage, 1)
    said = stage.look()
    assert (said.state, said.plan_id, said.reason) == ("running", "1-1", why)
    assert not stage.gates[UID]
    assert [verb for verb, _ in stage.card.calls] == ["suspend"]
    assert ("NotSuspended", why) in stage.told


def test_an_agent_that_ends_while_they_come_to_rest_does_not_stop_their_launches(stage: Stage) -> None:
    several(stage)
    rests(stage, 1)
    record = Record(
        UID, "ns", "train", SuspensionState.SUSPENDING, "1-1", processes=(PROCESS, OTHER), signal="SIGUSR1"
    )
    stage.suspender.stop()
    (stage.folder / f"{UID}.json").write_text(_text(record))
    stage.gates.clear()
    stage.restart()
    assert stage.suspender.closed() == frozenset()
    assert stage.look().state == "suspended"
    assert stage.card.drains == [REST]


def test_records_without_a_signal_are_as_earlier_agents_read_them() -> None:
    plain = Record(UID, "ns", "train")
    assert "signal" not in plain.document()
    with_signal = replace(plain, signal="SIGTSTP")
    assert Record.of_document(with_signal.document()) == with_signal
    assert Record.of_document(plain.document()) == plain


def _text(record: Record) -> str:
    return json.dumps(record.document())
