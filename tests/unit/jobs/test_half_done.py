"""What was begun with a Job and not done: the next look goes on, whichever controller's."""

from typing import Any

import pytest
from unit.jobs.worlds import evicted, group, in_phase, job, killed, order, phase_of, pod, task, world
from vc_egpu.jobs.rules.draft import Decision, Group
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.views import Order, PodPhase
from vc_egpu.volcano.api.job import JobAction, JobPhase

P = JobPhase


def status_of(decision: Decision) -> dict[str, Any]:
    """As the API server has it from now on."""
    assert decision.status is not None
    assert decision.status_first
    return dict(decision.status)


def test_dying_after_the_status_the_next_one_restarts_the_task_of_an_evicted_pod() -> None:
    """A deleted pod shows nothing, and only the earlier controller knew of its eviction. The same holds if a
    pod could not be deleted at the first try."""
    tasks = [task("a", 2, policies=[{"event": "PodEvicted", "action": "RestartTask"}]), task("b", 1)]
    first = decide(
        world(job(*tasks, status=in_phase(P.RUNNING)), pod("a-1"), pod("b-0"), evictions=(evicted("a-0"),))
    )
    restarting = job(*tasks, status=status_of(first))
    second = decide(world(restarting, pod("a-1"), pod("b-0")))
    assert [(kill.pod.name, kill.mark) for kill in second.kills] == [("train-a-1", True)], "no eviction"
    assert second.status is None, "as it was: the same try"
    third = decide(world(restarting, pod("b-0")))
    assert (killed(third), phase_of(third)) == (set(), P.PENDING)
    assert third.status is not None and third.status["retryCount"] == 1


def test_dying_after_the_status_the_next_one_does_what_was_commanded() -> None:
    command = order(JobAction.RESTART_TASK)
    first = decide(world(job(status=in_phase(P.RUNNING)), pod("w-0"), pod("w-1"), order=command))
    for seen in (command, None):  # it may have been taken down already
        second = decide(world(job(status=status_of(first)), pod("w-0"), pod("w-1"), order=seen))
        assert killed(second) == {"w-0", "w-1"}
        assert second.status is None, "as it was: the same try"


def test_a_task_that_has_to_restart_as_well_is_not_forgotten_either() -> None:
    own = [{"event": "PodEvicted", "action": "RestartTask"}]
    tasks = [task("a", 2, policies=own), task("b", 2, policies=own), task("c", 1)]
    pods = [pod("a-1"), pod("b-1"), pod("c-0")]
    first = decide(world(job(*tasks, status=in_phase(P.RUNNING)), *pods, evictions=(evicted("a-0"),)))
    later = decide(world(job(*tasks, status=status_of(first)), *pods, evictions=(evicted("b-0"),)))
    assert killed(later) == {"b-1"}
    assert killed(decide(world(job(*tasks, status=status_of(later)), *pods))) == {"a-1", "b-1"}
    by_command = in_phase(P.RESTARTING, "RestartTask", retryCount=1, version=0)
    by_command["state"]["message"] = "Command uid-cmd"
    later = decide(world(job(*tasks, status=by_command), *pods, evictions=(evicted("b-0"),)))
    assert later.status is not None
    assert later.status["state"]["message"] == "Command uid-cmd", "or it would be obeyed once more"


def test_an_eviction_of_which_nobody_is_left_to_restart_does_not_hold_the_restart_up() -> None:
    policies = [{"event": "PodEvicted", "action": "RestartPod"}]
    restarting = job(status=in_phase(P.RESTARTING, "RestartPod", retryCount=1), policies=policies)
    decision = decide(world(restarting, pod("w-1"), evictions=(evicted("w-0"),)))
    assert (phase_of(decision), killed(decision)) == (P.PENDING, set())


@pytest.mark.parametrize(
    ("phase", "after"),
    [(P.ABORTING, P.ABORTED), (P.COMPLETING, P.COMPLETED), (P.TERMINATING, P.TERMINATED), (P.ABORTED, None)],
)
def test_dying_before_all_is_stopped_the_next_one_stops_it(phase: JobPhase, after: JobPhase | None) -> None:
    stopping = job(status=in_phase(phase, "AbortJob", version=1))
    first = decide(world(stopping, pod("w-0"), pod("w-1", PodPhase.PENDING), group=None))
    assert killed(first) == {"w-0", "w-1"}
    assert phase_of(first) in {None, phase}
    second = decide(world(stopping, pod("w-0", terminating=True), group=None))
    assert phase_of(second) in {None, phase}
    # A finalizer keeps its logs; it does nothing any more.
    ended = pod("w-0", PodPhase.SUCCEEDED, terminating=True)
    assert phase_of(decide(world(stopping, ended, group=None))) in {after, phase if after is None else after}


def test_what_is_stopped_or_begun_anew_is_told_apart_from_what_was_there_before() -> None:
    """Pods of an earlier version cause nothing any more, and a new beginning does away with them."""
    stopped = decide(world(job(status=in_phase(P.RUNNING)), pod("w-0"), order=order(JobAction.ABORT_JOB)))
    assert status_of(stopped)["version"] == 1
    pods = [pod("w-0"), pod("w-1", PodPhase.SUCCEEDED)]
    resume = Order("cmd-2", "uid-cmd-2", JobAction.RESUME_JOB)
    resumed = decide(world(job(status=status_of(stopped)), *pods, group=None, order=resume))
    assert status_of(resumed)["version"] == 2
    assert killed(resumed) == {"w-0"}
    begun = [pod("w-0", version=2), pod("w-1", PodPhase.SUCCEEDED)]
    assert killed(decide(world(job(status=status_of(resumed)), *begun, group=None))) == set()


@pytest.mark.parametrize("version", [0, 1])
def test_no_pod_and_no_other_group_is_made_while_the_group_is_on_its_way_out(version: int) -> None:
    pending = job(status=in_phase(P.PENDING, version=1, retryCount=1))
    decision = decide(world(pending, group=group(version=version, terminating=True)))
    assert (decision.group, decision.create) == (Group.LEAVE, ())


def test_that_the_tries_are_used_up_is_written_before_anything_is_deleted() -> None:
    used_up = job(status=in_phase(P.RESTARTING, "RestartJob", retryCount=3, version=3), maxRetry=3)
    decision = decide(world(used_up, pod("w-0", version=2)))
    assert (phase_of(decision), decision.status_first) == (P.FAILED, True)
