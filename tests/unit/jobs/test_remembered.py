"""What a Command does to what was remembered: finished pods, evictions, timers, tries."""

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import (
    NOW,
    evicted,
    group,
    in_phase,
    job,
    killed,
    order,
    phase_of,
    pod,
    task,
    world,
)
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.jobs.rules.views import PodPhase, World
from vc_egpu.volcano.api.job import JobAction, JobPhase
from vc_egpu.volcano.api.podgroup import PodGroupPhase

P = JobPhase
FAILED, DONE = PodPhase.FAILED, PodPhase.SUCCEEDED


def test_resuming_keeps_what_succeeded_and_makes_again_what_failed() -> None:
    """The failed pod kept its name, so no other was made, and the gang waited for its second member."""
    aborted = job(task("w", 3), status=in_phase(P.ABORTED, "AbortJob", version=1))
    pods = [pod("w-0", FAILED), pod("w-1", DONE), pod("w-2", FAILED, terminating=True)]
    first = decide(world(aborted, *pods, group=None, order=order(JobAction.RESUME_JOB)))
    assert (phase_of(first), killed(first)) == (P.RESTARTING, {"w-0"})
    resumed = job(task("w", 3), status=first.status)
    second = decide(world(resumed, *pods, group=None))
    assert killed(second) == {"w-0"}, "the first leader died before it deleted it"
    third = decide(world(resumed, pods[1], group=None))
    assert (phase_of(third), killed(third)) == (P.PENDING, set())
    fourth = decide(world(job(task("w", 3), status=third.status), pods[1], group=None))
    assert [index for _, index in fourth.create] == [0, 2]


def test_a_failed_pod_that_an_older_controller_left_after_a_resume_is_made_again() -> None:
    waiting = job(status=in_phase(P.PENDING, "Restarted", version=2, retryCount=1))
    pods = [pod("w-0", FAILED), pod("w-1", DONE)]
    assert killed(decide(world(waiting, *pods))) == {"w-0"}
    assert [index for _, index in decide(world(waiting, pods[1])).create] == [0]


def test_a_gang_of_two_is_whole_again_after_abort_and_resume(cluster: Cluster) -> None:
    policies = [{"event": "PodFailed", "action": "AbortJob"}]
    train = cluster.job("mine", tasks=[task(replicas=2)], minAvailable=2, policies=policies)
    for _ in range(3):
        cluster.look_at_job("mine")
    first, second = sorted(path for path in cluster.server.objects if "/pods/" in path)
    cluster.run_pod(first)
    cluster.run_pod(second)
    cluster.look_at_job("mine")
    uids = {cluster.server.objects[path]["metadata"]["uid"] for path in (first, second)}
    cluster.run_pod(first, "Failed")
    for _ in range(3):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    assert cluster.phase_of_job("mine") == "Aborted"
    cluster.command("ResumeJob", train)
    for _ in range(6):
        cluster.look_at_job("mine")
        cluster.tell_what_went()
    pods = {path: value for path, value in cluster.server.objects.items() if "/pods/" in path}
    assert set(pods) == {first, second}
    assert not uids & {value["metadata"]["uid"] for value in pods.values()}
    assert cluster.phase_of_job("mine") == "Pending"


def test_a_task_is_completed_by_what_succeeded_before_the_job_was_aborted_too() -> None:
    policies = [{"event": "TaskCompleted", "action": "CompleteJob"}]
    tasks = [task("master", 2), task("worker", 1)]
    resumed = job(*tasks, policies=policies, status=in_phase(P.RUNNING, version=2))
    before, worker = pod("master-0", DONE, version=0), pod("worker-0", version=2)
    for after, expected in (
        (pod("master-1", DONE, version=2), P.COMPLETING),
        (pod("master-1", version=2), P.RUNNING),
        (pod("master-1", DONE, version=0), P.RUNNING),
    ):
        assert phase_of(decide(world(resumed, before, after, worker))) is expected
    going = pod("master-0", DONE, version=0, terminating=True)
    assert phase_of(decide(world(resumed, going, pod("master-1", DONE, version=2), worker))) is P.RUNNING


WAITED_FOR = ("PodEvicted", "Unknown")


def remembering(phase: JobPhase, command: JobAction | None = None, message: str = "") -> World:
    """A Job that waits a minute with its answer to an eviction and to a broken gang."""
    policies = [{"event": event, "action": "RestartJob", "timeout": "1m"} for event in WAITED_FOR]
    status = in_phase(phase, "RestartPod" if phase is P.RESTARTING else "")
    status["state"]["message"] = message
    subject = job(task("w", 2), policies=policies, status=status)
    broken = group(PodGroupPhase.UNKNOWN)
    return world(
        subject,
        pod("w-1"),
        group=broken,
        evictions=(evicted("w-0", at=NOW - 10),),
        first_seen={"Unknown of uid-pg": NOW - 20},
        order=order(command) if command is not None else None,
    )


@pytest.mark.parametrize(
    ("phase", "command", "message"),
    [
        (P.RUNNING, JobAction.RESUME_JOB, ""),
        (P.PENDING, JobAction.RESUME_JOB, ""),
        (P.RESTARTING, JobAction.RESTART_POD, "Command uid-cmd"),
    ],
    ids=["means nothing", "means nothing yet", "was obeyed, and not taken down yet"],
)
def test_a_command_that_changes_nothing_leaves_evictions_and_timers(
    phase: JobPhase, command: JobAction, message: str
) -> None:
    """They were thrown away: the Job waited for the evicted pod's policy without end, or a minute more."""
    asked, alone = remembering(phase, command, message), remembering(phase, None, message)
    with_command, without = decide(asked), decide(alone)
    assert with_command.order_done
    assert with_command.evictions == without.evictions == asked.evictions
    assert with_command.first_seen == without.first_seen == asked.first_seen
    assert with_command.wake_at == without.wake_at == NOW + 40


@pytest.mark.parametrize(
    "command",
    [
        JobAction.ABORT_JOB,
        JobAction.RESTART_JOB,
        JobAction.RESTART_TASK,
        JobAction.RESTART_POD,
        JobAction.TERMINATE_JOB,
        JobAction.COMPLETE_JOB,
    ],
)
def test_a_command_that_stops_pods_ends_what_was_waited_for(command: JobAction) -> None:
    """What the pods suffered before is answered by it: nothing is restarted a second time for that."""
    decision = decide(remembering(P.RUNNING, command))
    assert (decision.evictions, decision.first_seen) == ((), {})


def test_a_policy_that_resumes_a_job_that_runs_hides_no_other() -> None:
    """It means nothing there. It was taken for the first answer, so the failed pod was never answered."""
    policies = [
        {"event": "TaskCompleted", "action": "ResumeJob"},
        {"event": "PodFailed", "action": "RestartJob"},
    ]
    subject = job(task("a", 1), task("b", 1), policies=policies, status=in_phase(P.RUNNING))
    decision = decide(world(subject, pod("a-0", DONE, ended_at=NOW - 5), pod("b-0", FAILED)))
    assert phase_of(decision) is P.RESTARTING


@pytest.mark.parametrize("command", [JobAction.RESTART_JOB, JobAction.RESTART_TASK, JobAction.RESTART_POD])
@pytest.mark.parametrize("reason", ["RestartJob", "RestartTask", "RestartPod", "ResumeJob"])
def test_several_reasons_to_restart_cost_one_try(reason: str, command: JobAction) -> None:
    """A Command, or a policy, that comes while the Job restarts anyway."""
    restarting = job(status=in_phase(P.RESTARTING, reason, retryCount=1, version=1))
    decision = decide(world(restarting, pod("w-0"), pod("w-1"), order=order(command)))
    assert decision.status is None or decision.status["retryCount"] == 1


def test_two_policies_that_restart_at_once_cost_one_try() -> None:
    policies = [
        {"event": "PodFailed", "action": "RestartPod"},
        {"event": "PodEvicted", "action": "RestartTask"},
        {"event": "TaskCompleted", "action": "RestartJob"},
    ]
    subject = job(task("w", 3), task("v", 1), policies=policies, status=in_phase(P.RUNNING))
    pods = [pod("w-0", FAILED), pod("w-1", FAILED), pod("v-0", DONE)]
    first = decide(world(subject, *pods, evictions=(evicted("w-2"),)))
    assert first.status is not None
    assert first.status["retryCount"] == 1
    parts = decide(world(subject, *pods[:2], pod("v-0"), evictions=(evicted("w-2"),)))
    assert parts.status is not None
    assert parts.status["retryCount"] == 1
    again = job(task("w", 3), task("v", 1), policies=policies, status=parts.status)
    whole = decide(world(again, *pods))
    assert phase_of(whole) is P.RESTARTING
    assert whole.status is not None
    assert whole.status["retryCount"] == 1, "it restarts anyway"


def test_the_second_of_two_commands_is_obeyed_although_the_first_means_nothing(cluster: Cluster) -> None:
    """One look was asked for both. The first one changed nothing, so no watch asked for another look."""
    train = cluster.job("mine")
    cluster.look_at_job("mine")
    cluster.command("ResumeJob", train, called="a")
    cluster.command("AbortJob", train, called="b")
    again_s = cluster.look_in("mine")
    assert again_s is not None
    assert again_s < 1
    assert cluster.look_at_job("mine")[0] == "Aborting"
