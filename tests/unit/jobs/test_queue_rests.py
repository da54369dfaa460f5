"""A queue of very many pods is not counted again and again: each long count is followed by a rest."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.jobs.cluster import Cluster
from vc_egpu.jobs.workers.queueworker import QueueWorker
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import QUEUES

KEY = ("", "mine")


class Processor:
    """Each count takes as long as the test says."""

    def __init__(self) -> None:
        self.look_s, self.counts, self._asked = 0.0, 0, 0

    def __call__(self) -> float:
        self._asked += 1
        self.counts = self._asked // 2
        return self.look_s * self.counts


@pytest.fixture
def processor() -> Processor:
    return Processor()


@pytest.fixture
def worker(cluster: Cluster, processor: Processor, tmp_path: Path) -> Iterator[QueueWorker]:
    api = ApiConnection.connect(cluster.server.kubeconfig(tmp_path), pool_size=1, timeout_s=30)
    yield QueueWorker(
        api, cluster.controller.known, cluster.recorder, monotonic=cluster.clock, processor_s=processor
    )
    api.close()


def known_of(cluster: Cluster) -> Json:
    """The queue, as it is known."""
    queue = cluster.controller.known.queues.get(KEY)
    assert queue is not None
    return queue


def test_after_a_long_count_comes_nine_times_as_long_a_rest(
    cluster: Cluster, worker: QueueWorker, processor: Processor
) -> None:
    processor.look_s = 0.4
    assert worker.look(KEY) is None
    cluster.clock.now += 1.0
    assert worker.look(KEY) == pytest.approx(2.6)
    assert processor.counts == 1
    cluster.clock.now += 2.7
    assert worker.look(KEY) is None
    assert processor.counts == 2


def test_what_changes_meanwhile_is_in_the_next_count(
    cluster: Cluster, worker: QueueWorker, processor: Processor
) -> None:
    processor.look_s = 0.4
    worker.look(KEY)
    cluster.group("g", "mine")
    cluster.member("a", "g", checked="mine")
    again_s = worker.look(KEY)
    assert again_s is not None
    cluster.clock.now += again_s + 0.01
    worker.look(KEY)
    assert known_of(cluster)["status"]["allocated"]["cpu"] == "1"


def test_a_short_count_needs_no_rest(worker: QueueWorker, processor: Processor) -> None:
    processor.look_s = 0.01
    worker.look(KEY)
    assert worker.look(KEY) is None
    assert processor.counts == 2


def test_a_command_does_not_wait_for_the_rest(
    cluster: Cluster, worker: QueueWorker, processor: Processor
) -> None:
    processor.look_s = 0.4
    worker.look(KEY)
    cluster.command("CloseQueue", known_of(cluster), namespace="default")
    worker.look(KEY)
    assert known_of(cluster)["status"]["state"] == "Closed"


def test_a_queue_that_has_gone_leaves_no_rest_to_one_of_its_name(
    cluster: Cluster, worker: QueueWorker, processor: Processor
) -> None:
    processor.look_s = 0.4
    worker.look(KEY)
    cluster.tell_end(QUEUES, known_of(cluster))
    worker.look(KEY)
    cluster.queue("mine")
    assert worker.look(KEY) is None
    assert processor.counts == 2
