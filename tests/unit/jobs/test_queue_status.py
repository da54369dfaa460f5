"""What a queue's status counts: the gangs that the caps count, whatever a PodGroup names."""

import pytest
from unit.jobs.cluster import Cluster
from vc_egpu.jobs.work import Look


@pytest.fixture(autouse=True)
def two_queues(cluster: Cluster) -> None:
    cluster.queue("theirs")


def test_a_gang_counts_to_the_queue_that_its_podgroup_names(cluster: Cluster) -> None:
    cluster.group("g", "mine")
    cluster.member("a", "g", checked="mine")
    cluster.member("b", "g", checked="mine")
    assert (cluster.use_of("mine"), cluster.use_of("theirs")) == ((1, "2"), (0, "0"))


def test_a_podgroup_that_was_made_anew_counts_where_its_pods_were_checked(cluster: Cluster) -> None:
    """Nobody checked who may use the queue that it names now; the caps count its pods where they were."""
    cluster.group("g", "theirs")
    cluster.member("a", "g", checked="mine")
    assert (cluster.use_of("mine"), cluster.use_of("theirs")) == ((1, "1"), (0, "0"))


def test_pods_without_their_podgroup_count_where_they_were_checked(cluster: Cluster) -> None:
    cluster.member("a", "gone", checked="mine")
    assert cluster.use_of("mine") == (0, "1")


def test_what_is_over_says_nothing_of_where_a_gang_counts(cluster: Cluster) -> None:
    cluster.group("g", "theirs")
    cluster.member("a", "g", checked="mine", phase="Succeeded")
    cluster.member("b", "g", checked="theirs")
    assert (cluster.use_of("mine"), cluster.use_of("theirs")) == ((0, "0"), (1, "1"))


def test_pods_that_nobody_checked_count_where_their_podgroup_says(cluster: Cluster) -> None:
    """The door looks at managed pods only: what others carry, anybody may have written."""
    cluster.group("g", "mine")
    cluster.member("a", "g", checked="theirs", managed=False)
    cluster.member("b", "none", checked="theirs", managed=False)
    assert (cluster.use_of("mine"), cluster.use_of("theirs")) == ((1, "1"), (0, "0"))


def test_all_queues_that_a_change_concerns_are_looked_at(cluster: Cluster) -> None:
    cluster.queues_asked()
    cluster.group("g", "theirs")
    cluster.member("a", "g", checked="mine")
    assert cluster.queues_asked() == {"mine", "theirs"}
    cluster.member("a", "g", checked="mine", phase="Succeeded")
    assert cluster.queues_asked() == {"mine", "theirs"}
    cluster.member("b", "g", checked="mine")
    cluster.queues_asked()
    cluster.group("g", "mine")
    assert cluster.queues_asked() == {"mine", "theirs"}


def test_a_gang_that_goes_over_to_a_third_queue_has_that_looked_at(cluster: Cluster) -> None:
    """Its pods were checked for two others; when those of the first are over, it counts to the second."""
    cluster.group("g", "named")
    cluster.member("a", "g", checked="mine")
    cluster.member("b", "g", checked="theirs")
    assert cluster.use_of("mine") == (1, "2")
    cluster.member("a", "g", checked="mine", phase="Failed")
    cluster.queues_asked()
    cluster.controller.look(Look.GROUP, ("mine", "g"))
    assert "theirs" in cluster.queues_asked()
    assert (cluster.use_of("mine"), cluster.use_of("theirs")) == ((0, "0"), (1, "1"))
