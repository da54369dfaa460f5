"""Several Commands for one object: obeyed in the order in which they were given, also within one second."""

from unit.jobs.cluster import Cluster


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
