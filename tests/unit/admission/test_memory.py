"""What a cluster takes of the leader's memory."""

import gc
import tracemalloc

import orjson
import pytest
from bench.big_cluster import BigCluster
from unit.admission.build import TABLE, added, deleted, group, node, pod, queue
from unit.admission.test_kept import changed
from unit.admission.test_kept import pod as full_pod
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.policy import Policy
from vc_egpu.volcano.codec import cluster_codec, pod_codec, trim
from vc_egpu.volcano.podspec.node_wishes import MOST_TOLERATIONS


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
        mirror.apply("nodes", added(trim.of("nodes", orjson.loads(cluster.object("nodes", number)))))
    tracemalloc.start()
    try:
        for number in range(counts["pods"]):
            mirror.apply("pods", added(trim.of("pods", orjson.loads(cluster.object("pods", number)))))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(mirror.pods) == counts["pods"]
    assert taken / counts["pods"] / 1024 < most_kib


def test_large_pods_that_are_gone_leave_nothing() -> None:
    """Whoever makes and deletes one after the other never has more than one of them."""
    mirror = Mirror(TABLE)
    mirror.apply("nodes", added(node()))
    mirror.apply("queues", added(queue()))
    tracemalloc.start()
    try:
        for number in range(1200):
            come_and_go(mirror, number)
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left < 40 << 20, f"{left} bytes"


def come_and_go(mirror: Mirror, number: int) -> None:
    tolerations = [{"key": f"{number}-{i}", "operator": "Exists"} for i in range(MOST_TOLERATIONS)]
    large = trim.of("pods", pod(f"large-{number}", spec={"tolerations": tolerations}))
    its_group = group(members=1)
    for plural, document in (("podgroups", its_group), ("pods", large)):
        mirror.apply(plural, added(document))
    assert decide(mirror.snapshot(), Policy(), 2e9).admissions
    for plural, document in (("pods", large), ("podgroups", its_group)):
        mirror.apply(plural, deleted(document))


@pytest.mark.parametrize("shown", [{}, {"volcano.sh/vgpu-h20": "2"}], ids=["of others", "of ours"])
def test_of_what_a_gang_needs_little_is_kept(shown: dict[str, str]) -> None:
    """A Job without cards, which nobody looks at, may name as much as fits, and its PodGroup sums it up."""
    needs = {f"a.example/{number}": "1" for number in range(30_000)}
    whole = group(least=needs | shown)
    slim = trim.of("podgroups", whole)
    assert len(orjson.dumps(slim)) < 1000
    assert trim.of("podgroups", slim) == slim
    assert cluster_codec.group(slim) == cluster_codec.group(whole)
    container = {"name": "c", "resources": {"requests": needs}}
    spec = {"queue": "a", "tasks": [{"name": "w", "template": {"spec": {"containers": [container]}}}]}
    job = {"metadata": {"name": "j", "namespace": "ml", "uid": "u", "resourceVersion": "1"}, "spec": spec}
    assert len(orjson.dumps(trim.of("jobs", job))) < 1000


@pytest.mark.parametrize("state", ["waits", "is over"])
def test_of_somebody_elses_pod_that_takes_nothing_no_containers_are_kept(state: str) -> None:
    """Without a node it may wait for ever, beside thousands of others, each as large as objects may be."""
    document = full_pod(managed=False, phase="Failed" if state == "is over" else "Pending")
    document["spec"].pop("nodeName" if state == "waits" else "x", None)
    requests = {f"a.example/{number}": "1" for number in range(10_000)}
    document["spec"]["containers"][0]["resources"] = {"requests": requests}
    assert len(orjson.dumps(trim.pod(document))) < 2000


def test_what_a_pod_takes_is_read_once_it_has_a_node() -> None:
    whole = full_pod(managed=False)
    waiting = changed(whole, ("spec", "nodeName"), removed=True)
    over = {**whole, "status": {"phase": "Failed"}}
    before = pod_codec.pod(trim.pod(waiting), TABLE)
    bound = pod_codec.pod(trim.pod(whole), TABLE, None, before)
    assert bound == pod_codec.pod(whole, TABLE)
    assert bound.pod.shape.requests.cpu_milli > 0
    assert pod_codec.pod(trim.pod(over), TABLE, None, bound) == pod_codec.pod(over, TABLE)
