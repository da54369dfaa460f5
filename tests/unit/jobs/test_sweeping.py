"""PodGroups without pods: those that were made for other controllers' pods go, all others stay."""

import pytest
from unit.jobs.cluster import Cluster, Json

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "podgroup", "uid": "job-uid"}
REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs-uid"}


@pytest.mark.parametrize(
    ("name", "owner", "goes"),
    [
        ("podgroup-rs-uid", REPLICA_SET, True),
        ("podgroup-of-mine", None, False),
        ("podgroup-of-mine", REPLICA_SET, False),
        ("web", REPLICA_SET, False),
        ("podgroup-job-uid", JOB, False),
    ],
)
def test_which_podgroups_are_swept(name: str, owner: Json | None, *, goes: bool, cluster: Cluster) -> None:
    """A user's own is not ours to delete, whatever it is called."""
    cluster.group(name, "mine", owner=owner)
    again_s = cluster.controller._group_worker.look(("mine", name))
    assert (again_s is not None) is goes
