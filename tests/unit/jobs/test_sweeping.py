"""PodGroups without pods: those that were made for other controllers' pods go, all others stay."""

import pytest
from unit.jobs.cluster import Cluster, Json
from vc_egpu.jobs.known.pods import trim
from vc_egpu.jobs.work import Look
from vc_egpu.jobs.workers.groupworker import EMPTY_FOR_S
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano.words import names

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
    again_s = cluster.controller.look(Look.GROUP, ("mine", name))
    assert (again_s is not None) is goes


def made_by(cluster: Cluster, name: str, **metadata: object) -> None:
    """A pod of a ReplicaSet's, in its PodGroup."""
    path = f"/api/v1/namespaces/mine/pods/{name}"
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "mine",
            "labels": {names.MANAGED_LABEL: "true"},
            "annotations": {names.GROUP_NAME: "podgroup-rs-uid"},
            "ownerReferences": [{**REPLICA_SET, "controller": True}],
            **metadata,
        },
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }
    cluster.tell(PODS, trim(cluster.server.put(path, document)))


GOING = {"deletionTimestamp": "2025-06-15T15:00:00Z"}


@pytest.mark.parametrize(
    ("pods", "made"), [([GOING, GOING], False), ([GOING, {}], True), ([{}], True), ([], False)]
)
def test_a_podgroup_is_made_anew_for_pods_that_stay(
    pods: list[Json], *, made: bool, cluster: Cluster
) -> None:
    """With a deleted Deployment its PodGroup goes at once, and its pods in half a minute. A new PodGroup for
    those pods was deleted by the garbage collector, and so on."""
    for index, metadata in enumerate(pods):
        made_by(cluster, f"web-{index}", **metadata)
    cluster.controller.look(Look.GROUP, ("mine", "podgroup-rs-uid"))
    assert any(path.endswith("/podgroups/podgroup-rs-uid") for path in cluster.server.objects) is made


def test_a_pod_that_names_no_podgroup_in_words_gets_one(cluster: Cluster) -> None:
    """As Volcano has it; charts write the annotation with an empty value. The pod waited without end."""
    made_by(cluster, "web-0", annotations={names.GROUP_NAME: ""})
    assert ("mine", "web-0") in cluster.asked(Look.POD)
    cluster.controller.look(Look.POD, ("mine", "web-0"))
    pod = cluster.server.objects["/api/v1/namespaces/mine/pods/web-0"]
    assert pod["metadata"]["annotations"][names.GROUP_NAME] == "podgroup-rs-uid"


def test_how_long_a_podgroup_is_empty_counts_from_when_this_process_leads(cluster: Cluster) -> None:
    """What was true before another process led is not true any more. The group had pods meanwhile, and cards
    are kept for the next of them."""
    key, look = ("mine", "podgroup-rs-uid"), cluster.controller.look
    cluster.group(key[1], "mine", owner=REPLICA_SET)
    assert look(Look.GROUP, key) == EMPTY_FOR_S
    cluster.controller.rest()
    cluster.clock.now += 3600.0
    cluster.controller.lead()
    assert look(Look.GROUP, key) == EMPTY_FOR_S
    cluster.clock.now += EMPTY_FOR_S
    look(Look.GROUP, key)
    assert not any(path.endswith(f"/podgroups/{key[1]}") for path in cluster.server.objects)
