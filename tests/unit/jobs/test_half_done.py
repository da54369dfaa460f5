"""Restarts of parts of a Job that were begun and not done: the next look goes on, whichever controller's."""

from typing import Any

from unit.jobs.worlds import evicted, in_phase, job, killed, order, phase_of, pod, task, world
from vc_egpu.jobs.draft import Decision
from vc_egpu.jobs.machine import decide
from vc_egpu.volcano.job import JobAction, JobPhase

P = JobPhase


def status_of(decision: Decision) -> dict[str, Any]:
    """As the API server has it from now on."""
    assert decision.status is not None
    assert decision.status_first
    return dict(decision.status)


def test_dying_after_the_status_the_next_one_restarts_the_task_of_an_evicted_pod() -> None:
    """Who is gone shows nothing, and that it was evicted only the one before knew. So it is too where a pod
    could not be deleted at the first try."""
    tasks = [task("a", 2, policies=[{"event": "PodEvicted", "action": "RestartTask"}]), task("b", 1)]
    first = decide(
        world(job(*tasks, status=in_phase(P.RUNNING)), pod("a-1"), pod("b-0"), evictions=(evicted("a-0"),))
    )
    restarting = job(*tasks, status=status_of(first))
    second = decide(world(restarting, pod("a-1"), pod("b-0")))
    assert killed(second) == {"a-1"}
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
