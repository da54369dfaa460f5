"""Lifecycle policies: which happening is answered by what, and when."""

from typing import Any

import pytest
from unit.jobs.worlds import NOW, evicted, group, job, pod, task, world
from vc_egpu.jobs.rules.policies import Verdict, judge
from vc_egpu.jobs.rules.views import PodPhase, PodView
from vc_egpu.volcano.api.job import Job, JobAction
from vc_egpu.volcano.api.podgroup import PodGroupPhase

FAILED, PENDING, DONE = PodPhase.FAILED, PodPhase.PENDING, PodPhase.SUCCEEDED


def action(verdict: Verdict) -> JobAction | None:
    return verdict.answer.action if verdict.answer is not None else None


def failed_with(*codes: int, name: str = "w-0") -> PodView:
    """A pod whose containers ended with these codes and with 0."""
    return pod(name, FAILED, exit_codes=frozenset(codes))


def with_policies(*policies: dict[str, Any], own: list[dict[str, Any]] | None = None) -> Job:
    return job(task(policies=own or []), policies=list(policies))


@pytest.mark.parametrize(
    ("policy", "happens"),
    [
        ({"event": "PodFailed"}, [pod(phase=FAILED)]),
        ({"events": ["PodEvicted", "PodFailed"]}, [pod(phase=FAILED)]),
        ({"event": "*"}, [pod(phase=FAILED)]),
        ({"exitCode": 137}, [failed_with(137)]),
        ({"event": "TaskCompleted"}, [pod("w-0", DONE), pod("w-1", DONE)]),
        ({"event": "TaskFailed"}, [pod("w-0", restarts=2), pod("w-1", restarts=1)]),
        ({"event": "PodPending", "timeout": "30s"}, [pod(phase=PENDING, created_at=NOW - 31)]),
    ],
)
def test_what_answers(policy: dict[str, Any], happens: list[PodView]) -> None:
    subject = with_policies({**policy, "action": "AbortJob"})
    assert action(judge(world(subject, *happens))) is JobAction.ABORT_JOB


@pytest.mark.parametrize(
    ("policy", "happens"),
    [
        ({"event": "PodEvicted"}, [pod(phase=FAILED)]),
        ({"exitCode": 1}, [failed_with(137)]),
        ({"exitCode": 1}, [pod(phase=FAILED)]),
        ({"event": "TaskCompleted"}, [pod("w-0", DONE), pod("w-1")]),
        ({"event": "TaskFailed"}, [pod("w-0", restarts=2)]),
        ({"event": "PodPending", "timeout": "30s"}, [pod(phase=PENDING, created_at=NOW - 29)]),
        ({"event": "PodPending", "timeout": "30s"}, [pod(created_at=NOW - 31)]),
        ({"event": "*"}, [pod(phase=PENDING, created_at=NOW - 1000)]),
        ({"event": "*"}, [pod(phase=FAILED, terminating=True)]),
        ({"event": "*"}, [pod(phase=FAILED, out_of_sync=True)]),
    ],
)
def test_what_does_not(policy: dict[str, Any], happens: list[PodView]) -> None:
    subject = with_policies({**policy, "action": "AbortJob"})
    assert action(judge(world(subject, *happens))) is None


@pytest.mark.parametrize("codes", [(42,), (1, 42)])
def test_of_several_codes_any_one_matches_and_the_first_policy_counts(codes: tuple[int, ...]) -> None:
    subject = with_policies(
        {"exitCode": 42, "action": "RestartJob"},
        {"exitCode": 1, "action": "TerminateJob"},
        {"event": "PodFailed", "action": "AbortJob"},
    )
    assert action(judge(world(subject, failed_with(*codes)))) is JobAction.RESTART_JOB


def test_the_tasks_own_policies_come_first() -> None:
    subject = with_policies(
        {"event": "PodFailed", "action": "AbortJob"}, own=[{"event": "PodFailed", "action": "RestartTask"}]
    )
    assert action(judge(world(subject, pod(phase=FAILED)))) is JobAction.RESTART_TASK


def test_a_tasks_policies_answer_for_its_own_pods_only() -> None:
    subject = job(
        task("a", 1),
        task("b", 1, policies=[{"event": "PodFailed", "action": "RestartTask"}]),
        policies=[{"event": "PodFailed", "action": "AbortJob"}],
    )
    assert action(judge(world(subject, pod("b-0", FAILED)))) is JobAction.RESTART_TASK
    assert action(judge(world(subject, pod("a-0", FAILED)))) is JobAction.ABORT_JOB


@pytest.mark.parametrize(
    ("policies", "happens", "targets"),
    [
        ([{"event": "PodFailed", "action": "RestartPod"}], [pod("w-0", FAILED), pod("w-1")], {"uid-w-0"}),
        (
            [{"event": "PodFailed", "action": "RestartTask"}],
            [pod("w-0", FAILED), pod("w-1"), pod("v-0")],
            {"uid-w-0", "uid-w-1"},
        ),
        (
            [{"event": "TaskFailed", "action": "RestartPod"}],
            [pod("w-0", restarts=3), pod("w-1"), pod("v-0")],
            {"uid-w-0", "uid-w-1"},
        ),
        (
            [{"exitCode": 1, "action": "RestartTask"}, {"event": "PodFailed", "action": "RestartPod"}],
            [failed_with(1, name="v-0"), pod("v-1"), pod("w-0", FAILED), pod("w-1")],
            {"uid-v-0", "uid-v-1", "uid-w-0"},
        ),
    ],
    ids=["a pod", "a task", "a task, for what is no single pod's doing", "both"],
)
def test_who_is_restarted(policies: list[dict[str, Any]], happens: list[PodView], targets: set[str]) -> None:
    verdict = judge(world(job(task("w"), task("v"), policies=policies), *happens))
    assert verdict.answer is not None
    assert verdict.answer.targets == targets
    one = targets == {"uid-w-0"}
    assert verdict.answer.action is (JobAction.RESTART_POD if one else JobAction.RESTART_TASK)


def test_of_what_happened_at_once_that_a_task_is_done_counts_before_that_a_pod_failed() -> None:
    subject = job(
        task("a", 1),
        task("b", 1),
        policies=[
            {"event": "PodEvicted", "action": "TerminateJob"},
            {"event": "PodFailed", "action": "RestartJob"},
            {"event": "TaskCompleted", "action": "CompleteJob"},
        ],
    )
    gone = (evicted("b-0", at=NOW - 1),)
    for pods, expected in (
        ([pod("a-0", DONE), pod("b-0", FAILED)], JobAction.COMPLETE_JOB),
        ([pod("a-0"), pod("b-0", FAILED)], JobAction.RESTART_JOB),
        ([pod("a-0")], JobAction.TERMINATE_JOB),
    ):
        assert action(judge(world(subject, *pods, evictions=gone))) is expected


def test_an_eviction_counts_while_it_is_the_evicted_pod_that_still_runs() -> None:
    subject = with_policies({"event": "PodEvicted", "action": "AbortJob"})
    gone = (evicted("w-0"),)
    for uid, expected in (("old-uid-w-0", JobAction.ABORT_JOB), ("uid-w-0", None)):
        assert (
            action(judge(world(subject, pod("w-0", uid=uid, terminating=True), evictions=gone))) is expected
        )


def test_the_first_of_several_delays_wakes() -> None:
    subject = with_policies(
        {"event": "PodFailed", "action": "RestartJob", "timeout": "1m"},
        {"event": "PodPending", "action": "AbortJob", "timeout": "90s"},
    )
    pods = [pod("w-0", FAILED, ended_at=NOW - 5), pod("w-1", PENDING, created_at=NOW - 60)]
    assert judge(world(subject, *pods)).wake_at == NOW + 30
    assert judge(world(subject, pods[0])).wake_at == NOW + 55


@pytest.mark.parametrize(
    ("event", "happens", "because"),
    [
        ("PodFailed", [pod(phase=FAILED)], "PodFailed of pod train-w-0"),
        ("PodFailed", [failed_with(137)], "PodFailed of pod train-w-0 with exit code 137"),
        ("PodFailed", [failed_with(42, 1)], "PodFailed of pod train-w-0 with exit codes 1, 42"),
        (
            "PodFailed",
            [failed_with(*range(1, 400))],
            "PodFailed of pod train-w-0 with exit codes 1, 2, 3, 4, 5, ...",
        ),
        ("TaskCompleted", [pod("w-0", DONE), pod("w-1", DONE)], "TaskCompleted of task w"),
        ("Unknown", [pod("w-0")], "Unknown of gang"),
    ],
)
def test_a_job_says_what_it_was_stopped_for(event: str, happens: list[PodView], because: str) -> None:
    subject = with_policies({"event": event, "action": "AbortJob"})
    more = {"group": group(PodGroupPhase.UNKNOWN)} if event == "Unknown" else {}
    answer = judge(world(subject, *happens, **more)).answer
    assert answer is not None
    assert answer.because == because


def test_what_was_before_the_job_began_anew_counts_no_more() -> None:
    done = with_policies({"event": "TaskCompleted", "action": "CompleteJob"})
    both = (pod("w-0", DONE), pod("w-1", DONE))
    assert action(judge(world(done, *both))) is JobAction.COMPLETE_JOB
    assert action(judge(world(done, both[0], pod("w-1", DONE, out_of_sync=True)))) is None
    failed = with_policies({"event": "*", "action": "AbortJob"})
    for subject in (done, failed):
        subject.status.version = 1
        assert action(judge(world(subject, *both, evictions=(evicted("w-0", version=0),)))) is None
    assert action(judge(world(failed, evictions=(evicted("w-0", version=1),)))) is JobAction.ABORT_JOB


def test_the_whole_job_comes_before_its_parts() -> None:
    subject = with_policies(
        {"event": "PodEvicted", "action": "TerminateJob"}, {"event": "PodFailed", "action": "RestartPod"}
    )
    verdict = judge(world(subject, pod("w-1", FAILED), evictions=(evicted("w-0"),)))
    assert action(verdict) is JobAction.TERMINATE_JOB


def test_what_happened_first_counts_first() -> None:
    """A master that completes takes its workers down; their failures came later and mean nothing."""
    subject = job(
        task("master", 1, policies=[{"event": "TaskCompleted", "action": "CompleteJob"}]),
        task("worker", 1),
        policies=[{"event": "PodFailed", "action": "RestartJob"}],
    )
    master, worker = pod("master-0", DONE, ended_at=NOW - 5), pod("worker-0", FAILED, ended_at=NOW - 5)
    assert action(judge(world(subject, master, worker))) is JobAction.COMPLETE_JOB
    earlier = pod("worker-0", FAILED, ended_at=NOW - 6)
    assert action(judge(world(subject, master, earlier))) is JobAction.RESTART_JOB


def test_a_timeout_delays_the_action() -> None:
    subject = with_policies({"event": "PodFailed", "action": "RestartJob", "timeout": "1m"})
    early = judge(world(subject, pod(phase=FAILED, ended_at=NOW - 59)))
    assert (action(early), early.wake_at, early.evictions) == (None, NOW + 1, ())
    late = judge(world(subject, pod(phase=FAILED, ended_at=NOW - 60)))
    assert action(late) is JobAction.RESTART_JOB


def test_a_delayed_eviction_is_remembered_until_the_pod_is_back() -> None:
    subject = with_policies({"event": "PodEvicted", "action": "RestartJob", "timeout": "1m"})
    eviction = evicted("w-0", at=NOW - 10)
    waiting = judge(world(subject, pod("w-1"), evictions=(eviction,)))
    assert (action(waiting), waiting.evictions) == (None, (eviction,))
    still = judge(world(subject, pod("w-0", PENDING), evictions=(eviction,), now=NOW + 51))
    assert action(still) is JobAction.RESTART_JOB
    back = judge(world(subject, pod("w-0"), evictions=(eviction,), now=NOW + 51))
    assert (action(back), back.evictions) == (None, ())


def test_restarting_an_evicted_pod_does_not_kill_its_replacement() -> None:
    subject = with_policies({"event": "PodEvicted", "action": "RestartPod"})
    verdict = judge(world(subject, pod("w-0", PENDING), evictions=(evicted("w-0"),)))
    assert verdict.answer is not None
    assert verdict.answer.targets == frozenset()


def test_a_task_without_max_retry_has_three() -> None:
    subject = job(task(maxRetry=0), policies=[{"event": "TaskFailed", "action": "AbortJob"}])
    assert action(judge(world(subject, pod("w-0", restarts=2)))) is None
    assert action(judge(world(subject, pod("w-0", restarts=3)))) is JobAction.ABORT_JOB


@pytest.mark.parametrize("most", [1, 5])
def test_a_tasks_max_retry_counts_the_restarts_of_those_that_run(most: int) -> None:
    subject = job(task(maxRetry=most), policies=[{"event": "TaskFailed", "action": "AbortJob"}])
    assert action(judge(world(subject, pod("w-0", restarts=most - 1)))) is None
    assert action(judge(world(subject, pod("w-0", restarts=most)))) is JobAction.ABORT_JOB
    assert action(judge(world(subject, pod("w-0", DONE, restarts=most), pod("w-1")))) is None


def test_a_broken_gang_is_an_event_of_its_own_until_its_group_is_replaced() -> None:
    subject = with_policies({"event": "Unknown", "action": "RestartJob"})
    broken = group(PodGroupPhase.UNKNOWN)
    assert action(judge(world(subject, pod("w-0"), group=broken))) is JobAction.RESTART_JOB
    subject.status.version = 1
    assert action(judge(world(subject, pod("w-0", version=1), group=broken))) is None


@pytest.mark.parametrize(
    ("event", "happens", "broken"),
    [
        ("PodFailed", [pod(phase=FAILED, ended_at=0.0)], False),
        ("TaskFailed", [pod("w-0", restarts=3)], False),
        ("Unknown", [pod("w-0")], True),
    ],
)
def test_a_timeout_runs_from_when_it_was_first_seen_where_nothing_says_since_when(
    event: str, happens: list[PodView], broken: bool
) -> None:
    """A pod that its node evicted has no container that ended; a broken gang does not say since when."""
    subject = with_policies({"event": event, "action": "RestartJob", "timeout": "1m"})
    more = {"group": group(PodGroupPhase.UNKNOWN)} if broken else {}
    first = judge(world(subject, *happens, **more))
    assert (action(first), first.wake_at, list(first.first_seen.values())) == (None, NOW + 60, [NOW])
    later = judge(world(subject, *happens, **more, now=NOW + 59, first_seen=first.first_seen))
    assert (action(later), later.wake_at, later.first_seen) == (None, NOW + 60, first.first_seen)
    due = judge(world(subject, *happens, **more, now=NOW + 60, first_seen=later.first_seen))
    assert (action(due), due.first_seen) == (JobAction.RESTART_JOB, {})
    over = judge(world(subject, pod("w-0"), now=NOW + 30, first_seen=first.first_seen))
    assert (action(over), over.first_seen) == (None, {}), "it recovered"


@pytest.mark.parametrize(
    ("event", "happens"),
    [
        ("PodFailed", [pod(phase=FAILED, ended_at=NOW + 600)]),
        ("TaskCompleted", [pod("w-0", DONE, ended_at=NOW + 600), pod("w-1", DONE)]),
        ("PodPending", [pod(phase=PENDING, created_at=NOW + 600)]),
    ],
)
def test_a_clock_that_is_ahead_delays_nothing(event: str, happens: list[PodView]) -> None:
    """When a container ended its node says, and nobody waits until our own clock has caught up with that."""
    prompt = with_policies({"event": event, "action": "RestartJob", "timeout": "0s"})
    assert action(judge(world(prompt, *happens))) is JobAction.RESTART_JOB
    subject = with_policies({"event": event, "action": "RestartJob", "timeout": "1m"})
    first = judge(world(subject, *happens))
    assert (action(first), first.wake_at) == (None, NOW + 60)
    due = judge(world(subject, *happens, now=NOW + 60, first_seen=first.first_seen))
    assert action(due) is JobAction.RESTART_JOB


@pytest.mark.parametrize(
    ("now_is", "again"), [(PENDING, True), (FAILED, True), (PodPhase.RUNNING, False), (DONE, False)]
)
def test_an_evicted_pod_whose_replacement_ran_has_recovered(now_is: PodPhase, *, again: bool) -> None:
    """A replacement may end before a watch shows that it runs: the Job restarted though nothing was
    missing."""
    subject = with_policies({"event": "PodEvicted", "action": "RestartJob", "timeout": "1m"})
    replaced = pod("w-0", now_is), pod("w-1")
    verdict = judge(world(subject, *replaced, evictions=(evicted("w-0", at=NOW - 60),)))
    assert (action(verdict) is JobAction.RESTART_JOB) is again
