"""Several Commands for one object: obeyed in the order in which they were given, also within one second."""

from typing import Any

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import in_phase, job, order, world
from vc_egpu.jobs.rules.draft import Group
from vc_egpu.jobs.rules.machine import decide
from vc_egpu.volcano.api.job import JobAction, JobPhase


def test_a_queue_that_is_opened_and_closed_at_once_is_closed(cluster: Cluster) -> None:
    mine = cluster.queue("mine")
    cluster.command("OpenQueue", mine, called="mine-openqueue-x")
    cluster.command("CloseQueue", mine, called="mine-closequeue-x")
    cluster.look_at_queue("mine")
    assert cluster.look_at_queue("mine") == "Closed"


def test_a_job_that_is_resumed_and_aborted_at_once_is_aborted(cluster: Cluster) -> None:
    train = cluster.job("mine")
    cluster.command("ResumeJob", train, called="b")
    cluster.command("AbortJob", train, called="a")
    cluster.look_at_job("mine")
    assert cluster.look_at_job("mine") == ("Aborting", 0)


@pytest.mark.parametrize("why", [{"refusals": ["spec.plugins: 'mpi' is not here"]}, {"queue_known": False}])
@pytest.mark.parametrize(
    ("action", "phase", "reason"),
    [
        (JobAction.ABORT_JOB, JobPhase.ABORTING, "AbortJob"),
        (JobAction.TERMINATE_JOB, JobPhase.TERMINATING, "TerminateJob"),
        (JobAction.RESUME_JOB, JobPhase.PENDING, None),
    ],
)
def test_a_job_that_is_not_run_can_be_stopped(
    action: JobAction, phase: JobPhase, reason: str | None, why: dict[str, Any]
) -> None:
    """The Command was taken down and nothing came of it; whatever it asks for, no pod is made."""
    refusals, known = why.get("refusals", ()), why.get("queue_known", True)
    waiting = job(status=in_phase(JobPhase.PENDING, "Refused"))
    decision = decide(world(waiting, group=None, order=order(action), queue_known=known), refusals)
    assert decision.status is not None
    assert decision.status["state"]["phase"] == phase
    assert decision.status["state"]["reason"] == (reason or ("Refused" if refusals else "QueueNotFound"))
    assert (decision.create, decision.group) == ((), Group.LEAVE)
    assert reason or "ResumeJob means nothing in Pending" in [note.text for note in decision.notes]
