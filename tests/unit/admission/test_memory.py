"""What a cluster takes of the leader's memory."""

import gc
import tracemalloc

import orjson
import pytest
from bench.big_cluster import BigCluster
from unit.admission.build import TABLE, added
from vc_egpu.admission.mirror import Mirror
from vc_egpu.volcano import kept


@pytest.mark.parametrize(
    ("cluster", "most_kib"),
    [
        (BigCluster(nodes=60, foreign_per_node=20, managed=0), 4),
        (BigCluster(nodes=30, foreign_per_node=1, managed=960), 10),
    ],
    ids=["of others", "of ours"],
)
def test_a_pod_takes_little_memory(cluster: BigCluster, most_kib: int) -> None:
    """Whole it would be 34 and 40 KiB: a cluster of 60,000 pods did not fit."""
    mirror = Mirror(TABLE)
    counts = cluster.counts()
    for number in range(counts["nodes"]):
        mirror.apply("nodes", added(kept.of("nodes", orjson.loads(cluster.object("nodes", number)))))
    tracemalloc.start()
    try:
        for number in range(counts["pods"]):
            mirror.apply("pods", added(kept.of("pods", orjson.loads(cluster.object("pods", number)))))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(mirror.pods) == counts["pods"]
    assert taken / counts["pods"] / 1024 < most_kib
