"""What a task needs: so many of its own to succeed, so many of another to be there before it begins."""

from typing import Any

import pytest
from unit.jobs.worlds import NOW, evicted, group, in_phase, job, phase_of, pod, task, world
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.policies import judge
from vc_egpu.jobs.rules.views import PodPhase, PodView
from vc_egpu.volcano.api.job import JobAction, JobPhase

P = JobPhase
DONE, BAD = PodPhase.SUCCEEDED, PodPhase.FAILED


@pytest.mark.parametrize(
    ("a", "b", "least", "expected"),
    [
        ([DONE, DONE], [BAD], 2, P.FAILED),
        ([DONE, BAD], [DONE], 2, P.COMPLETED),
        ([DONE, DONE], [BAD], 1, P.COMPLETED),
        ([DONE, DONE], [], 2, P.COMPLETED),
    ],
    ids=[
        "of b none",
        "of each one",
        "less than the tasks' own minimums",
        "a task without pods is not judged",
    ],
)
def test_a_job_is_completed_if_enough_of_each_task_have_succeeded(
    a: list[PodPhase], b: list[PodPhase], least: int, expected: JobPhase
) -> None:
    """Each needs one; what the gang needs in all, two, is there in any case."""
    tasks = [task("a", 2, minAvailable=1), task("b", len(b), minAvailable=1)]
    pods = [
        pod(f"{name}-{at}", phase) for name, phases in (("a", a), ("b", b)) for at, phase in enumerate(phases)
    ]
    decision = decide(world(job(*tasks, status=in_phase(P.RUNNING), minAvailable=least), *pods))
    assert phase_of(decision) is expected
    if expected is P.FAILED:
        assert decision.notes[-1].text == "Running -> Failed: 0 pods of task b succeeded, 1 had to"


@pytest.mark.parametrize(
    ("pods", "begins"),
    [
        ([pod("a-0")], False),
        ([pod("a-0"), pod("b-0"), pod("b-1")], False),
        ([pod("a-0"), pod("a-1")], True),
        ([pod("a-0"), pod("a-1", terminating=True)], False),
        ([pod("a-0"), pod("a-1", ready=False)], False),
        ([pod("a-0"), pod("a-1", PodPhase.PENDING, ready=True)], False),
        ([pod("a-0"), pod("a-1", DONE)], True),
    ],
    ids=[
        "one",
        "others",
        "both",
        "one goes",
        "one is not ready",
        "one does not run",
        "one has done its part",
    ],
)
def test_a_task_begins_once_enough_of_the_other_are_there(pods: list[PodView], begins: bool) -> None:
    tasks: list[dict[str, Any]] = [
        task("b", 2, minAvailable=0),
        task("a", 3, minAvailable=2),
        task("c", 1, dependsOn={"name": ["a"]}),
    ]
    decision = decide(world(job(*tasks, status=in_phase(P.PENDING), minAvailable=1), *pods))
    assert ("c" in {made.name for made, _ in decision.create}) is begins


def test_a_job_that_has_begun_is_not_stopped_by_what_would_have_kept_it_from_beginning() -> None:
    """A plugin is not there any more, or its queue was deleted: all its pods are being made again."""
    for begun in (job(status=in_phase(P.RUNNING)), job(status=in_phase(P.PENDING))):
        pods = [pod("w-0")] if begun.status.state.phase is P.PENDING else []
        decision = decide(world(begun, *pods), ["spec.plugins: 'mpi' is not here"])
        assert decision.create
    waits = decide(world(job(status=in_phase(P.PENDING)), queue_known=False, group=group()))
    assert waits.create, "its gang is known already"


def test_of_several_delays_that_of_the_task_which_waits_least_is_over_first() -> None:
    def own(minutes: int) -> list[dict[str, Any]]:
        return [{"event": "PodPending", "action": "AbortJob", "timeout": f"{minutes}m"}]

    tasks = [task("a", 1, policies=own(9)), task("b", 1, policies=own(1)), task("c", 1, policies=own(5))]
    pods = [
        pod(f"{name}-0", PodPhase.PENDING, created_at=NOW - age)
        for name, age in (("a", 9), ("b", 8), ("c", 7))
    ]
    assert judge(world(job(*tasks), *pods)).wake_at == NOW - 8 + 60


def test_evictions_that_do_not_count_hide_none_that_does() -> None:
    """One of an earlier version, and one whose replacement runs."""
    subject = job(
        task("w", 3), status={"version": 1}, policies=[{"event": "PodEvicted", "action": "RestartJob"}]
    )
    gone = (evicted("w-0", version=0, at=NOW - 9), evicted("w-1", version=1, at=NOW - 8))
    runs = pod("w-1", version=1)
    assert judge(world(subject, runs, evictions=gone)).answer is None
    last = evicted("w-2", version=1, at=NOW - 7)
    answer = judge(world(subject, runs, evictions=(*gone, last))).answer
    assert answer is not None
    assert (answer.action, answer.because) == (JobAction.RESTART_JOB, "PodEvicted of pod train-w-2")
