"""Suspending and resuming when something goes wrong: undone, finished by the next agent, or failed."""

import json
from collections.abc import Sequence

import pytest
from unit.node.suspend_stage import PROCESS, UID, Stage
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.codec.suspension import SuspendOrder, is_refused
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.suspension.helper import (
    MAX_PROCESSES,
    Answer,
    Drain,
    HelperError,
    NotBegunError,
    NotNowError,
    Verb,
)
from vc_egpu_node.suspension.machine import ATTEMPTS, RETRY_MOST_S, RETRY_S, Process, Record
from vc_egpu_node.suspension.suspender import Store
from vc_egpu_node.suspension.verdict import Verdict


def test_what_cannot_be_suspended_is_refused_once_and_the_order_named(stage: Stage) -> None:
    stage.verdict_now = Verdict("it holds 5 MiB of managed memory", "managed")
    stage.order(1)
    said = stage.look()
    assert is_refused(SuspendOrder(pod_uid=UID, plan_id="1-1"), said)
    assert said.reason == "it holds 5 MiB of managed memory"
    stage.verdict_now = Verdict()
    assert stage.look().state == "running"  # the same order is not tried again
    assert stage.card.calls == []
    stage.order(2)
    assert stage.look().state == "suspended"


def test_a_helper_that_undid_all_leaves_it_running(stage: Stage) -> None:
    stage.card.answers = [Answer(done=False, error="Lock of 71: 600", states={71: "running"})]
    stage.order(1)
    said = stage.look()
    assert is_refused(SuspendOrder(pod_uid=UID, plan_id="1-1"), said)
    assert said.reason == "Lock of 71: 600"
    assert not stage.gates[UID]
    assert len(stage.card.calls) == 1
    stage.order(None)
    assert stage.look().reason == ""


def test_what_a_helper_left_half_way_is_brought_back(stage: Stage) -> None:
    stage.card.answers = [Answer(done=False, error="no", states={71: "checkpointed"})]
    stage.order(1)
    assert stage.look().state == "running"
    assert [verb for verb, _ in stage.card.calls] == ["suspend", "resume"]


def test_what_cannot_be_brought_back_has_failed_and_stays_so(stage: Stage) -> None:
    no = Answer(done=False, error="no", states={71: "checkpointed"})
    stage.card.answers = [no, no]
    stage.order(1)
    said = stage.look()
    assert (said.state, said.reason) == ("failed", "no; not brought back: no")
    assert stage.gates[UID]
    stage.order(None)
    assert stage.look().state == "failed"
    stage.restart()
    assert stage.look().state == "failed"
    assert stage.told == [("ResumeFailed", "no; not brought back: no")]


def test_memory_that_stays_on_the_card_was_not_suspended(stage: Stage) -> None:
    stage.card.leaves_mib = 500
    stage.order(1)
    said = stage.look()
    assert (said.state, said.plan_id) == ("running", "1-1")
    assert "500 MiB of it stay on its cards" in said.reason
    assert [verb for verb, _ in stage.card.calls] == ["suspend", "resume"]


def test_a_driver_that_tells_nothing_is_no_proof_that_memory_has_left(stage: Stage) -> None:
    """Somebody else would get the card's memory, and find it taken."""
    stage.card.leaves_mib = 500

    def silent(verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None) -> Answer:
        stage.card.untold = 4
        return run(verb, processes, lock_ms)

    run = stage.card.run
    stage.card.run = silent  # type: ignore[method-assign]
    stage.order(1)
    said = stage.look()
    assert (said.state, said.plan_id) == ("running", "1-1")
    assert "500 MiB of it stay on its cards" in said.reason


def test_processes_that_began_to_use_the_card_meanwhile_go_too(stage: Stage) -> None:
    late: Process = (72, 9)
    known = iter([(PROCESS,)])
    all_of_them = stage.card.processes
    stage.card.processes = lambda pod, look: next(known, None) or all_of_them(pod, look)  # type: ignore[method-assign]
    stage.card.states[late] = "running"
    stage.order(1)
    assert stage.look().state == "suspending"
    assert stage.gates[UID]
    stage.now_s += RETRY_S
    said = stage.look()
    assert (said.state, said.host_mib) == ("suspended", 2 * 6_000)
    assert stage.card.calls == [("suspend", (PROCESS,)), ("suspend", (PROCESS, late))]


def test_whoever_is_away_already_is_among_those_that_come_back(stage: Stage) -> None:
    """With more processes than a helper takes, and with one whose number another has by now."""
    idle = [(100 + number, 1) for number in range(MAX_PROCESSES)]
    later = [(101, 2), *idle[2:], (900, 1), PROCESS, (901, 1)]
    found = iter([(PROCESS, *idle[1:])])
    stage.card.processes = lambda pod, look: next(found, tuple(later))  # type: ignore[method-assign]
    stage.card.answers = [HelperError("no answer")]
    stage.order(1)
    assert stage.look().state == "suspending"
    stage.now_s += RETRY_S
    assert stage.look().state == "suspended"
    (_, first), (_, second) = stage.card.calls
    assert (first[0], len(first)) == (PROCESS, MAX_PROCESSES)
    assert (PROCESS in second, len(second)) == (True, MAX_PROCESSES)
    assert len({pid for pid, _ in second}) == len(second)  # a helper refuses all of them else


def test_one_failed_restore_is_a_failure(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    stage.card.answers = [Answer(done=False, error="Restore of 71: 2", states={71: "checkpointed"})]
    stage.order(None)
    assert stage.look().state == "failed"
    assert stage.suspender.suspended() == frozenset()  # its memory may come back at any moment: it is booked


@pytest.mark.parametrize(("left", "resumed"), [("checkpointed", True), ("failed", False)])
def test_room_that_somebody_took_before_the_restore_is_waited_for(
    stage: Stage, left: str, resumed: bool
) -> None:
    """A process of the host, say: the pod's memory lies where it did, and its work is not lost yet."""
    stage.policy = Policy(resume_room_s=600.0)
    stage.order(1)
    stage.look()
    stage.card.answers = [Answer(done=False, error="Restore of 71: 2", states={71: left})]
    looks = stage.card.looks
    stage.order(None)
    assert stage.look().state == ("running" if resumed else "failed")
    assert [verb for verb, _ in stage.card.calls] == ["suspend", *["resume"] * (1 + resumed)]
    assert not resumed or stage.card.looks >= looks + 2  # whether there is room was asked anew


def test_no_room_in_time_is_a_failure_and_nothing_is_tried(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    stage.card.free_mib = 5_999
    stage.order(None)
    said = stage.look()
    assert (said.state, "5999 MiB free, 6000 are needed" in said.reason) == ("failed", True)
    assert [verb for verb, _ in stage.card.calls] == ["suspend"]


def test_an_unanswered_helper_is_asked_again_and_given_up(stage: Stage) -> None:
    stage.card.answers = [HelperError("pod gone")] * ATTEMPTS
    stage.order(1)
    assert stage.look().state == "suspending"
    assert stage.look().state == "suspending"
    assert len(stage.card.calls) == 1
    for _ in range(ATTEMPTS - 1):
        stage.now_s += RETRY_S
        said = stage.look()
    assert (said.state, said.reason) == ("failed", "pod gone")
    assert len(stage.card.calls) == ATTEMPTS


@pytest.mark.parametrize("restarted", [False, True])
def test_what_lies_on_the_host_is_known_though_the_answer_was_lost(stage: Stage, restarted: bool) -> None:
    """The second helper finds nothing left to do, and nothing on the card: there it needs room again."""
    run = stage.card.run

    def lost(verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None) -> Answer:
        run(verb, processes, lock_ms)
        stage.card.run = run  # type: ignore[method-assign]
        raise HelperError("no answer")

    stage.card.run = lost  # type: ignore[method-assign]
    stage.order(1)
    assert stage.look().state == "suspending"
    if restarted:
        stage.restart()
    stage.now_s += RETRY_S
    said = stage.look()
    assert (said.state, said.host_mib) == ("suspended", 6_000)
    stage.card.free_mib = 5_999
    stage.order(None)
    assert stage.look().reason == "no room to come back within 0 s: 5999 MiB free, 6000 are needed"


def test_what_an_earlier_helper_took_away_comes_back_though_a_later_one_knows_nothing_of_it(
    stage: Stage,
) -> None:
    """It did not get as far as looking: that nothing is away it does not say."""
    run = stage.card.run
    unusable = Answer(done=False, error="cuInit: 999", states={71: "none"})
    said: list[Answer | None] = [None, unusable]

    def one(verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None) -> Answer:
        if not said:
            return run(verb, processes, lock_ms)
        answer = said.pop(0)
        if answer is None:
            run(verb, processes, lock_ms)
            raise HelperError("no answer")
        return answer

    stage.card.run = one  # type: ignore[method-assign]
    stage.order(1)
    assert stage.look().state == "suspending"
    stage.now_s += RETRY_S
    assert (stage.look().state, stage.card.states[PROCESS]) == ("running", "running")


def test_an_unanswered_helper_whose_order_was_taken_back_is_undone(stage: Stage) -> None:
    stage.card.answers = [HelperError("pod gone")]
    stage.order(1)
    stage.look()
    stage.order(None)
    stage.now_s += RETRY_S
    assert stage.look().state == "running"
    assert [verb for verb, _ in stage.card.calls] == ["suspend", "resume"]


def test_a_helper_that_could_not_begin_is_no_reason_to_touch_a_pod(stage: Stage) -> None:
    stage.card.answers = [NotBegunError("no such template")]
    stage.order(1)
    said = stage.look()
    assert is_refused(SuspendOrder(pod_uid=UID, plan_id="1-1"), said)
    assert (said.reason, stage.gates[UID]) == ("no such template", False)
    assert stage.told == [("NotSuspended", "no such template")]


def test_one_that_was_suspended_before_is_not_halted_for_a_helper_that_cannot_begin(stage: Stage) -> None:
    """What a helper did for an earlier order is over: nothing of it is left to be undone."""
    stage.order(1)
    assert stage.look().state == "suspended"
    stage.order(None)
    assert stage.look().state == "running"
    stage.card.answers = [NotBegunError("no such template")]
    stage.order(2)
    said = stage.look()
    assert is_refused(SuspendOrder(pod_uid=UID, plan_id="1-2"), said)
    assert (said.reason, stage.gates[UID]) == ("no such template", False)


def test_a_pod_that_is_away_waits_for_a_helper_for_as_long_as_it_takes(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    stage.card.answers = [NotBegunError("refused"), NotNowError("API server away")] * ATTEMPTS
    stage.order(None)
    for _ in range(2 * ATTEMPTS):
        said = stage.look()
        assert said.state == "resuming"
        stage.now_s += RETRY_S
    assert stage.look().state == "running"


def test_a_helper_that_is_refused_for_good_is_asked_for_ever_more_seldom(stage: Stage) -> None:
    """By a policy of others, say, on all nodes at once."""
    stage.order(1)
    stage.look()
    stage.card.answers = [NotBegunError("refused")] * 1000
    stage.order(None)
    for _ in range(720):
        stage.look()
        stage.now_s += RETRY_S
    in_an_hour = len(stage.card.calls)
    assert in_an_hour < 120
    stage.card.answers = []
    stage.now_s += RETRY_MOST_S
    assert stage.look().state == "running"


def test_a_clock_that_is_set_back_keeps_nobody_away(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    stage.card.answers = [NotNowError("API server away")]
    stage.order(None)
    assert stage.look().state == "resuming"
    stage.now_s -= 2 * 3600
    assert stage.look().state == "running"


def test_what_may_have_begun_is_undone_by_a_helper(stage: Stage) -> None:
    stage.card.answers = [NotNowError("answer lost"), NotBegunError("refused")]
    stage.order(1)
    stage.look()
    stage.order(None)
    for _ in range(2):
        stage.now_s += RETRY_S
        said = stage.look()
    assert said.state == "running"
    assert [verb for verb, _ in stage.card.calls] == ["suspend", "resume", "resume"]


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("state", [SuspensionState.SUSPENDING, SuspensionState.RESUMING])
def test_the_next_agent_finishes_or_undoes(stage: Stage, state: SuspensionState, ordered: bool) -> None:
    stage.card.states[PROCESS] = "locked"
    Store(stage.folder).put(
        Record(UID, "ns", "train", state=state, plan_id="1-1", processes=(PROCESS, (72, 6)))
    )
    stage.restart()
    stage.order(1 if ordered else None)
    said = stage.look()
    assert said.state == ("suspended" if ordered else "running")
    assert stage.gates[UID] is ordered
    assert stage.card.calls == [("suspend" if ordered else "resume", (PROCESS, (72, 6)))]


def test_the_next_agent_knows_who_is_suspended(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    stage.gates.clear()
    stage.restart()
    assert stage.suspender.suspended() == {UID}
    assert stage.look().state == "suspended"
    assert (stage.gates[UID], len(stage.card.calls)) == (True, 1)


def test_a_record_that_cannot_be_read_is_set_aside(stage: Stage) -> None:
    stage.order(1)
    stage.look()
    (path,) = stage.folder.iterdir()
    path.write_text(path.read_text()[:-9])
    stage.restart()
    assert sorted(one.suffix for one in stage.folder.iterdir()) == [".broken", ".json"]
    assert stage.look().state == "suspended"  # by the order: said and done once more
    path.write_text(json.dumps({**Record("uid-other", "ns", "x").document()}))
    for _ in range(2):  # also the agent after the next
        assert list(Store(stage.folder).all()) == [UID]
        assert stage.state_now() == "suspending"


@pytest.mark.parametrize("spoilt", ["cut", "newer"])
def test_a_pod_whose_record_cannot_be_read_is_brought_back(stage: Stage, spoilt: str) -> None:
    """Nobody else knows that it is away: it would stand still for ever, and nothing would say so."""
    stage.order(1)
    stage.look()
    (path,) = stage.folder.iterdir()
    text = path.read_text()
    path.write_text(text[:-9] if spoilt == "cut" else text.replace('"version": 1', '"version": 2'))
    stage.order(None)
    stage.restart()
    assert stage.suspender.suspended() == frozenset()  # its memory may be on the card
    assert stage.look().state == "running"
    assert stage.card.calls[-1] == ("resume", (PROCESS,))
    assert stage.card.states[PROCESS] == "running"
    assert not stage.gates[UID]
    assert [one.pod for one in stage.suspender.pods()] == ["train"]


def test_a_pod_that_is_here_is_not_forgotten_while_its_cards_are_not_known(stage: Stage) -> None:
    """The CDI folder was cleared, and the kubelet, who knows its containers, starts again itself."""
    stage.order(1)
    stage.look()
    stage.restart()
    stage.pods_here = {}
    stage.suspender.look()
    assert stage.state_now() == "suspended"
    stage.gates.clear()
    stage.order(1)
    assert stage.look().state == "suspended"
    assert stage.gates[UID]
    stage.pods_here, stage.gone = {}, True
    stage.suspender.look()
    assert list(stage.folder.iterdir()) == []


def test_a_disk_that_is_full_begins_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Store, record: Record) -> None:
        raise OSError("no space")

    monkeypatch.setattr(Store, "put", full)
    stage.order(1)
    assert stage.look().state == "running"
    assert (stage.card.calls, stage.suspender.closed()) == ([], frozenset())
