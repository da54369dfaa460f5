"""The phase machine of a Job: what is decided in which phase, and that a controller may die in between."""

from dataclasses import replace
from typing import Any

import pytest
from unit.jobs.worlds import NOW, evicted, group, in_phase, job, killed, order, phase_of, pod, task, world
from vc_egpu.jobs.rules.draft import Decision, Group
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.views import PodPhase, PodView, World
from vc_egpu.volcano.api.job import Job, JobAction, JobPhase
from vc_egpu.volcano.api.podgroup import PodGroupPhase

P, POD = JobPhase, PodPhase
FAILED_POD_RESTARTS_JOB = [{"event": "PodFailed", "action": "RestartJob"}]


def created(decision: Decision) -> list[str]:
    return [f"{made.name}-{index}" for made, index in decision.create]


# --- a Job's ordinary life ----------------------------------------------------------------------------


def test_a_new_job_gets_its_group_and_all_pods_at_once() -> None:
    decision = decide(world(job(), group=None))
    assert decision.group is Group.MAKE
    assert created(decision) == ["w-0", "w-1"]
    assert phase_of(decision) is P.PENDING
    assert decision.status is not None and decision.status["pending"] == 2


@pytest.mark.parametrize("phase", [PodGroupPhase.PENDING, None])
def test_no_pod_before_the_group_is_enqueued(phase: PodGroupPhase | None) -> None:
    decision = decide(world(job(), group=replace(group(), phase=phase)))
    assert created(decision) == []


def test_missing_pods_are_made_by_name() -> None:
    decision = decide(world(job(status=in_phase(P.RUNNING), minAvailable=1), pod("w-1")))
    assert created(decision) == ["w-0"]


def test_nothing_to_do_says_nothing() -> None:
    first = decide(world(job(status=in_phase(P.RUNNING)), pod("w-0"), pod("w-1")))
    assert first.status is not None
    settled = job(status=first.status)
    assert decide(world(settled, pod("w-0"), pod("w-1"))) == Decision()


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod("w-0"), pod("w-1")], P.RUNNING),
        ([pod("w-0"), pod("w-1", POD.SUCCEEDED)], P.RUNNING),
        ([pod("w-0"), pod("w-1", POD.FAILED)], P.RUNNING),
        ([pod("w-0"), pod("w-1", POD.PENDING)], P.PENDING),
    ],
)
def test_pending_until_enough_pods_have_started(pods: list[PodView], expected: JobPhase) -> None:
    assert phase_of(decide(world(job(status=in_phase(P.PENDING)), *pods))) is expected


DONE, BAD = POD.SUCCEEDED, POD.FAILED


@pytest.mark.parametrize(
    ("spec", "pods", "expected"),
    [
        pytest.param({}, [DONE, DONE], P.COMPLETED, id="all succeeded"),
        pytest.param({}, [DONE, BAD], P.FAILED, id="the task lacks a success"),
        pytest.param({"minAvailable": 1}, [DONE, BAD], P.COMPLETED, id="gang of one of two"),
        pytest.param({"minAvailable": 1}, [BAD, BAD], P.FAILED, id="nobody succeeded"),
        pytest.param(
            {"minSuccess": 1, "minAvailable": 1}, [DONE, POD.RUNNING], P.COMPLETED, id="minSuccess met"
        ),
        pytest.param({"minSuccess": 2, "minAvailable": 1}, [DONE, BAD], P.FAILED, id="minSuccess missed"),
        pytest.param({}, [DONE, POD.RUNNING], P.RUNNING, id="one still runs"),
        pytest.param({}, [POD.RUNNING, POD.PENDING], P.PENDING, id="the gang is not complete"),
        pytest.param({"minAvailable": 1}, [POD.RUNNING, POD.PENDING], P.RUNNING, id="the surplus may wait"),
    ],
)
def test_from_running(spec: dict[str, Any], pods: list[PodPhase], expected: JobPhase) -> None:
    minimum = {"minAvailable": spec["minAvailable"]} if "minAvailable" in spec else {}
    running = job(task(**minimum), status=in_phase(P.RUNNING), **spec)
    decision = decide(world(running, *(pod(f"w-{i}", phase) for i, phase in enumerate(pods))))
    assert phase_of(decision) is expected


def test_a_job_that_has_enough_makes_no_more_pods() -> None:
    """One was evicted as the other succeeded: a pod made now would be taken down, and its gang is gone."""
    running = job(task(replicas=2), status=in_phase(JobPhase.RUNNING), minSuccess=1)
    decision = decide(world(running, pod("w-0", PodPhase.SUCCEEDED)))
    assert phase_of(decision) is JobPhase.COMPLETED
    assert decision.create == ()
    assert decision.status is not None
    assert "pending" not in decision.status


def test_a_task_that_failed_is_no_harm_where_the_gang_is_smaller_than_its_tasks() -> None:
    running = job(task("a", 1), task("b", 1), status=in_phase(P.RUNNING), minAvailable=1)
    assert phase_of(decide(world(running, pod("a-0", DONE), pod("b-0", BAD)))) is P.COMPLETED


def test_scaled_to_nothing_the_phase_stays() -> None:
    decision = decide(world(job(task(replicas=0), status=in_phase(P.RUNNING)), pod("w-0")))
    assert phase_of(decision) is P.RUNNING
    assert killed(decision) == {"w-0"}


def test_scaling_down_marks_the_pods_so_that_nobody_takes_it_for_an_eviction() -> None:
    decision = decide(world(job(task(replicas=1), status=in_phase(P.RUNNING)), pod("w-0"), pod("w-1")))
    assert [(kill.pod.name, kill.mark) for kill in decision.kills] == [("train-w-1", True)]


def test_the_lever_recreates_a_pod_without_a_retry() -> None:
    policies = [{"event": "*", "action": "RestartJob"}]
    running = job(status=in_phase(P.RUNNING), policies=policies)
    decision = decide(world(running, pod("w-0", out_of_sync=True), pod("w-1", BAD, out_of_sync=True)))
    assert killed(decision) == {"w-0", "w-1"}
    assert decision.status is not None and "retryCount" not in decision.status
    assert phase_of(decision) is P.RUNNING


# --- restarts -----------------------------------------------------------------------------------------


def test_restart_job_writes_what_it_is_about_to_do_before_it_kills() -> None:
    running = job(status=in_phase(P.RUNNING), policies=FAILED_POD_RESTARTS_JOB)
    decision = decide(world(running, pod("w-0", BAD), pod("w-1")))
    assert decision.status_first
    assert phase_of(decision) is P.RESTARTING
    assert decision.status is not None
    assert (decision.status["retryCount"], decision.status["version"]) == (1, 1)
    assert killed(decision) == {"w-0", "w-1"}
    assert decision.group is Group.DELETE


def test_dying_after_that_status_the_next_one_goes_on() -> None:
    """The status is written, half of the pods are deleted, the controller is gone."""
    restarting = job(
        status=in_phase(P.RESTARTING, "RestartJob", retryCount=1, version=1), policies=FAILED_POD_RESTARTS_JOB
    )
    decision = decide(
        world(restarting, pod("w-0", BAD), pod("w-1", terminating=True), group=group(version=0))
    )
    assert killed(decision) == {"w-0"}
    assert decision.group is Group.DELETE
    assert phase_of(decision) is not P.PENDING  # both still hold their names
    assert decision.status is not None and decision.status["retryCount"] == 1


def test_a_restart_waits_for_the_old_pods_and_then_begins_anew() -> None:
    restarting = job(status=in_phase(P.RESTARTING, "RestartJob", retryCount=1, version=1))
    waiting = decide(world(restarting, pod("w-0", terminating=True), pod("w-1"), group=None))
    assert phase_of(waiting) is P.RESTARTING
    over = decide(world(restarting, group=None))
    assert phase_of(over) is P.PENDING
    assert over.status is not None
    again = decide(world(job(status=over.status), group=None))
    assert created(again) == ["w-0", "w-1"]
    assert again.group is Group.MAKE


def test_the_old_group_goes_before_a_new_one_is_made() -> None:
    pending = job(status=in_phase(P.PENDING, version=1, retryCount=1))
    decision = decide(world(pending, group=group(version=0)))
    assert decision.group is Group.DELETE
    assert created(decision) == []


def test_after_max_retry_restarts_the_job_has_failed_and_keeps_its_finished_pods() -> None:
    running = job(status=in_phase(P.RUNNING, retryCount=2), policies=FAILED_POD_RESTARTS_JOB)
    last = decide(world(running, pod("w-0", BAD), pod("w-1")))
    assert phase_of(last) is P.RESTARTING
    assert killed(last) == {"w-1"}
    assert last.status is not None
    failed = decide(world(job(status=last.status), pod("w-0", BAD), pod("w-1", terminating=True)))
    assert phase_of(failed) is P.FAILED
    assert failed.status is not None and failed.status["state"]["reason"] == "MaxRetryReached"


def test_a_job_that_may_be_restarted_once_fails_at_the_second_time() -> None:
    running = job(status=in_phase(P.RUNNING), policies=FAILED_POD_RESTARTS_JOB, maxRetry=1)
    first = decide(world(running, pod("w-0", BAD), pod("w-1")))
    assert first.status is not None
    second = decide(world(job(status=first.status, maxRetry=1), pod("w-0", BAD)))
    assert phase_of(second) is P.FAILED


def test_zero_tries_are_three_as_in_volcano() -> None:
    restarted = job(status=in_phase(P.RESTARTING, "RestartJob", retryCount=2, version=2), maxRetry=0)
    assert phase_of(decide(world(restarted))) is P.PENDING
    used_up = job(status=in_phase(P.RESTARTING, "RestartJob", retryCount=3, version=3), maxRetry=0)
    assert phase_of(decide(world(used_up))) is P.FAILED


def test_several_failures_at_once_are_one_try() -> None:
    running = job(
        task(replicas=4),
        status=in_phase(P.RUNNING),
        policies=[{"event": "PodFailed", "action": "RestartPod"}],
    )
    pods = [pod("w-0", BAD), pod("w-1", BAD), pod("w-2"), pod("w-3")]
    decision = decide(world(running, *pods))
    assert killed(decision) == {"w-0", "w-1"}
    assert all(kill.mark for kill in decision.kills)
    assert decision.status is not None
    assert decision.status["retryCount"] == 1
    assert decision.status["state"]["message"] == "PodFailed of pod train-w-0"
    assert "version" not in decision.status, "the others go on: their events still count"
    assert decision.group is Group.LEAVE
    # One more fails while the Job restarts anyway.
    later = job(
        task(replicas=4), status=decision.status, policies=[{"event": "PodFailed", "action": "RestartPod"}]
    )
    third = decide(world(later, pod("w-0", BAD, terminating=True), pod("w-2", BAD), pod("w-3")))
    assert killed(third) == {"w-2"}
    assert third.status is not None and third.status["retryCount"] == 1


def test_restart_task_kills_that_task_only() -> None:
    tasks = [task("a", 2, policies=[{"event": "PodFailed", "action": "RestartTask"}]), task("b", 1)]
    running = job(*tasks, status=in_phase(P.RUNNING))
    decision = decide(world(running, pod("a-0", BAD), pod("a-1"), pod("b-0")))
    assert killed(decision) == {"a-0", "a-1"}


def test_a_half_done_targeted_restart_is_finished_by_the_next_one() -> None:
    """Status written, nothing killed yet: the failed pod still shows what has to be done."""
    policies = [{"event": "PodFailed", "action": "RestartPod"}]
    restarting = job(status=in_phase(P.RESTARTING, "RestartPod", retryCount=1), policies=policies)
    decision = decide(world(restarting, pod("w-0", BAD), pod("w-1")))
    assert killed(decision) == {"w-0"}
    assert decision.status is not None and decision.status["retryCount"] == 1


def test_pods_older_than_the_jobs_version_cause_nothing() -> None:
    running = job(status=in_phase(P.RUNNING, version=1), policies=FAILED_POD_RESTARTS_JOB, minAvailable=1)
    decision = decide(world(running, pod("w-0", BAD, version=0), pod("w-1", version=1)))
    assert phase_of(decision) in {None, P.RUNNING}


# --- stopping -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "first", "then"),
    [
        (JobAction.ABORT_JOB, P.ABORTING, P.ABORTED),
        (JobAction.COMPLETE_JOB, P.COMPLETING, P.COMPLETED),
        (JobAction.TERMINATE_JOB, P.TERMINATING, P.TERMINATED),
    ],
)
@pytest.mark.parametrize("phase", [P.PENDING, P.RUNNING, P.RESTARTING])
def test_stopping_by_command(action: JobAction, first: JobPhase, then: JobPhase, phase: JobPhase) -> None:
    decision = decide(world(job(status=in_phase(phase)), pod("w-0"), pod("w-1", DONE), order=order(action)))
    assert phase_of(decision) is first
    assert decision.order_done and decision.status_first
    assert killed(decision) == {"w-0"}, "finished pods stay"
    assert decision.group is Group.DELETE
    assert decision.status is not None
    stopping = job(status=decision.status)
    waiting = decide(world(stopping, pod("w-0", terminating=True), pod("w-1", DONE), group=None))
    assert phase_of(waiting) in {None, first}
    over = decide(world(stopping, pod("w-1", DONE), group=None))
    assert phase_of(over) is then


def test_a_suspended_job_resumes_with_its_finished_pods() -> None:
    aborted = job(status=in_phase(P.ABORTED, version=1), minAvailable=2)
    decision = decide(world(aborted, pod("w-1", DONE), group=None, order=order(JobAction.RESUME_JOB)))
    assert phase_of(decision) is P.RESTARTING
    assert killed(decision) == set()
    assert decision.status is not None and decision.status["retryCount"] == 1
    pending = decide(world(job(status=decision.status), pod("w-1", DONE), group=None))
    assert phase_of(pending) is P.PENDING
    assert pending.status is not None
    assert created(decide(world(job(status=pending.status), pod("w-1", DONE), group=None))) == ["w-0"]


def test_a_command_is_obeyed_once_even_if_it_could_not_be_deleted() -> None:
    command = order(JobAction.RESTART_JOB)
    first = decide(world(job(status=in_phase(P.RUNNING)), pod("w-0"), pod("w-1"), order=command))
    assert first.status is not None
    again = decide(world(job(status=first.status), pod("w-0"), pod("w-1"), order=command))
    assert again.order_done
    assert again.status is None, "as it was: one restart counted"


@pytest.mark.parametrize("action", [one for one in JobAction if one is not JobAction.RESUME_JOB])
@pytest.mark.parametrize("phase", [P.COMPLETED, P.FAILED, P.TERMINATED, P.ABORTED])
def test_a_command_without_meaning_is_dropped_and_says_so(phase: JobPhase, action: JobAction) -> None:
    decision = decide(world(job(status=in_phase(phase)), pod("w-0", DONE), group=None, order=order(action)))
    assert decision.order_done and not decision.kills
    assert [note.reason for note in decision.notes] == ["Ignored"]
    assert phase_of(decision) in {None, phase}


@pytest.mark.parametrize("phase", [P.COMPLETED, P.FAILED, P.TERMINATED])
def test_a_finished_job_holds_nothing_but_finished_pods(phase: JobPhase) -> None:
    finished = job(status=in_phase(phase), policies=FAILED_POD_RESTARTS_JOB)
    decision = decide(world(finished, pod("w-0"), pod("w-1", BAD)))
    assert killed(decision) == {"w-0"}
    assert (decision.group, decision.notes) == (Group.DELETE, ())
    assert created(decision) == []


def test_ttl_counts_from_the_end() -> None:
    status = in_phase(P.COMPLETED)
    status["state"]["lastTransitionTime"] = "2025-06-15T15:06:40Z"  # NOW
    finished = job(status=status, ttlSecondsAfterFinished=30)
    early = decide(world(finished, group=None, now=NOW + 10))
    assert (early.delete_job, early.wake_at) == (False, NOW + 30)
    assert decide(world(finished, group=None, now=NOW + 30)).delete_job


def test_ttl_counts_from_now_where_nobody_knows_the_end() -> None:
    """As of a Job that was brought back from a backup: not deleted with its logs at the first look."""
    unknown = decide(world(job(status=in_phase(P.FAILED), ttlSecondsAfterFinished=30), group=None))
    assert (unknown.delete_job, unknown.wake_at) == (False, NOW + 30)
    assert unknown.status is not None
    known = job(status=unknown.status, ttlSecondsAfterFinished=30)
    assert not decide(world(known, group=None, now=NOW + 29)).delete_job
    assert decide(world(known, group=None, now=NOW + 30)).delete_job


def test_ttl_does_not_touch_a_suspended_job() -> None:
    status = in_phase(P.ABORTED)
    status["state"]["lastTransitionTime"] = "2025-06-15T15:06:40Z"
    aborted = job(status=status, ttlSecondsAfterFinished=0)
    assert not decide(world(aborted, group=None, now=NOW + 99)).delete_job


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    document = job(status=in_phase(P.RUNNING)).document()
    document["metadata"]["deletionTimestamp"] = "2025-06-15T15:06:40Z"
    assert decide(world(Job.parse(document), pod("w-0"), group=None)) == Decision()


# --- tasks that wait for others -----------------------------------------------------------------------


def _with_dependency(iteration: str | None = None) -> Job:
    depends_on: dict[str, Any] = {"name": ["a", "b"]}
    if iteration:
        depends_on["iteration"] = iteration
    tasks = [task("a", 1), task("b", 1), task("c", 1, dependsOn=depends_on)]
    return job(*tasks, status=in_phase(P.PENDING), minAvailable=1)


def test_pods_of_a_dependent_task_wait_until_all_others_are_ready() -> None:
    assert created(decide(world(_with_dependency()))) == ["a-0", "b-0"]
    assert created(decide(world(_with_dependency(), pod("a-0"), pod("b-0", ready=False)))) == []
    assert created(decide(world(_with_dependency(), pod("a-0"), pod("b-0")))) == ["c-0"]
    assert created(decide(world(_with_dependency(), pod("a-0", DONE), pod("b-0")))) == ["c-0"]


def test_any_of_them_is_enough_where_the_job_says_so() -> None:
    assert created(decide(world(_with_dependency("any"), pod("a-0")))) == ["b-0", "c-0"]


# --- what is not run ----------------------------------------------------------------------------------


def test_a_refused_job_says_why_and_makes_nothing() -> None:
    decision = decide(world(job(), group=None), ["spec.plugins: 'mpi' is not here"])
    assert phase_of(decision) is P.PENDING
    assert decision.status is not None
    assert decision.status["state"]["reason"] == "Refused"
    assert "mpi" in decision.status["state"]["message"]
    assert (created(decision), decision.group) == ([], Group.LEAVE)
    assert [note.warning for note in decision.notes] == [True]
    again = decide(world(job(status=decision.status), group=None), ["spec.plugins: 'mpi' is not here"])
    assert again == Decision()


def test_a_refused_job_starts_once_the_reason_is_gone() -> None:
    refused = in_phase(P.PENDING, "Refused")
    decision = decide(world(job(status=refused), group=None))
    assert created(decision) == ["w-0", "w-1"]
    assert decision.status is not None and decision.status["state"]["reason"] == "Accepted"


def test_a_job_waits_for_its_queue_to_exist() -> None:
    decision = decide(World(job=job(queue="nowhere"), queue_known=False, now=NOW))
    assert decision.group is Group.LEAVE
    assert decision.status is not None and "nowhere" in decision.status["state"]["message"]


def test_evictions_restart_only_where_the_author_asked_for_it() -> None:
    running = job(status=in_phase(P.RUNNING))
    decision = decide(world(running, pod("w-1"), evictions=(evicted("w-0"),)))
    assert created(decision) == ["w-0"]
    assert decision.evictions == ()
    asked = job(status=in_phase(P.RUNNING), policies=[{"event": "PodEvicted", "action": "RestartJob"}])
    decision = decide(world(asked, pod("w-1"), evictions=(evicted("w-0"),)))
    assert phase_of(decision) is P.RESTARTING
