"""`kubectl egpu why DEPLOYMENT` in a roll-out: what its ReplicaSets say, which are gangs of their own."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.views import owners, why

QUOTA = docs.verdict("WaitingForQuota", "asks for 1 share of h20; the queue serving has 0 of 2 left")
PLACED = docs.verdict("Admitted", "2 members placed")
OLD, NEW = "chat-6bd9", "chat-77f4"


def replica_set(name: str, revision: int, *, wants: int, has: int) -> docs.Json:
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "labels": {"pod-template-hash": name.rpartition("-")[2]},
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
        },
        "spec": {"replicas": wants},
        "status": {"replicas": has},
    }


def gang(name: str, said: docs.Json, *pods: docs.Json, members: int = 1) -> dict[str, list[docs.Json]]:
    """The PodGroup of a ReplicaSet and its pods."""
    group = docs.group(f"podgroup-{name}", "serving", job=name, said=said, members=members)
    group["metadata"]["ownerReferences"][0] |= {"kind": "ReplicaSet", "uid": f"uid-{name}"}
    return {"groups": [group], "pods": list(pods)}


def replica(name: str, number: int, *, gated: bool = False) -> docs.Json:
    labels = {"pod-template-hash": name.rpartition("-")[2]}
    pod = docs.pod(
        f"{name}-{number}",
        group=f"podgroup-{name}",
        labels=labels,
        owner=("ReplicaSet", name),
        gated=gated,
        phase="Pending" if gated else "Running",
    )
    pod["metadata"]["ownerReferences"][0]["uid"] = f"uid-{name}"
    return pod


def refused(name: str, message: str = "exceeded quota: team", uid: str = "") -> docs.Json:
    about = {"kind": "ReplicaSet", "name": name, "namespace": "ml", "uid": uid or f"uid-{name}"}
    return {"involvedObject": about, "reason": "FailedCreate", "message": message}


RUNS = gang(OLD, PLACED, replica(OLD, 0), replica(OLD, 1))


def notes(
    *gangs: dict[str, list[docs.Json]], makers: Sequence[docs.Json], events: Sequence[docs.Json] = ()
) -> list[str]:
    groups = [group for found in gangs for group in found["groups"]]
    pods = [pod for found in gangs for pod in found["pods"]]
    queues = {"serving": docs.queue("serving", h20=2)}
    told = why.stories("chat", "ml", groups=groups, pods=pods, queues=queues, makers=makers, events=events)
    return [note for story in told for note in story.notes]


def test_a_new_revision_whose_pods_are_refused_has_no_gang_and_is_told_of() -> None:
    """What was said was "Admitted", of the revision before, and nothing of why the roll-out stands still."""
    makers = [replica_set(OLD, 1, wants=2, has=2), replica_set(NEW, 2, wants=1, has=0)]
    told = notes(RUNS, makers=makers, events=[refused(NEW)])
    assert told == [f"ReplicaSet {NEW} cannot make a pod: exceeded quota: team"]


@pytest.mark.parametrize(
    ("makers", "events"),
    [
        ([replica_set(NEW, 2, wants=0, has=0)], [refused(NEW)]),
        ([replica_set(NEW, 2, wants=1, has=0)], [refused(NEW, uid="an-earlier-one")]),
        ([replica_set("chat-bot-77f4", 2, wants=1, has=0)], [refused("chat-bot-77f4")]),
        ([], [refused(NEW)]),
    ],
    ids=["undone since", "another of that name", "another Deployment's", "not to be seen"],
)
def test_what_is_no_revision_that_lacks_pods_is_not(makers: list[docs.Json], events: list[docs.Json]) -> None:
    assert notes(RUNS, makers=[replica_set(OLD, 1, wants=2, has=2), *makers], events=events) == []


def test_replicas_beyond_those_that_run_are_told_of_where_they_are_refused() -> None:
    """Scaled beyond a ResourceQuota: those that are there are admitted, and nothing waits."""
    makers = [replica_set(OLD, 1, wants=5, has=2)]
    told = notes(RUNS, makers=makers, events=[refused(OLD)])
    assert told == [f"ReplicaSet {OLD} cannot make a pod: exceeded quota: team"]


def test_a_new_revision_that_waits_for_the_room_of_the_one_before() -> None:
    waits = gang(NEW, QUOTA, replica(NEW, 0, gated=True))
    makers = [replica_set(OLD, 1, wants=2, has=2), replica_set(NEW, 2, wants=1, has=1)]
    (told,) = notes(RUNS, waits, makers=makers)
    assert told.startswith(f"{OLD}-0, {OLD}-1 of the revision before may stay until this one runs")
    assert "maxSurge 0" in told


@pytest.mark.parametrize("revision", ["9" * 5000, "two", ""])
def test_a_revision_that_is_no_number_is_no_stack_trace(revision: str) -> None:
    makers = [replica_set(OLD, 1, wants=2, has=2), replica_set(NEW, 2, wants=1, has=1)]
    makers[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = revision
    assert notes(RUNS, gang(NEW, QUOTA, replica(NEW, 0, gated=True)), makers=makers)


def test_a_gang_that_a_roll_out_never_makes_whole() -> None:
    said = docs.verdict("WaitingForMembers", "1 of 2 members are there")
    waits = gang(NEW, said, replica(NEW, 0, gated=True), members=2)
    makers = [replica_set(OLD, 1, wants=2, has=2), replica_set(NEW, 2, wants=1, has=1)]
    (told,) = notes(RUNS, waits, makers=makers)
    assert "strategy Recreate" in told


@pytest.mark.parametrize("reason", ["QueueClosed", "ExceedsCap", "WaitingForEviction", "Admitted"])
def test_what_their_room_would_not_help_is_not_put_down_to_it(reason: str) -> None:
    waits = gang(NEW, docs.verdict(reason, "so it is"), replica(NEW, 0, gated=True))
    makers = [replica_set(OLD, 1, wants=2, has=2), replica_set(NEW, 2, wants=1, has=1)]
    assert notes(RUNS, waits, makers=makers) == []


def test_nor_is_a_revision_held_up_by_one_that_came_later_or_leaves() -> None:
    leaving = replica(OLD, 0)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    waits = gang(NEW, QUOTA, replica(NEW, 0, gated=True))
    new = replica_set(NEW, 2, wants=1, has=1)
    assert notes(gang(OLD, PLACED, leaving), waits, makers=[replica_set(OLD, 1, wants=0, has=1), new]) == []
    assert notes(RUNS, waits, makers=[replica_set(OLD, 3, wants=2, has=2), new]) == []


def test_why_asks_the_replica_sets_of_a_deployment_that_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tiny_api() as server:
        for group in RUNS["groups"]:
            where = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups"
            server.put(f"{where}/{group['metadata']['name']}", group)
        for pod in RUNS["pods"]:
            server.put(f"/api/v1/namespaces/ml/pods/{pod['metadata']['name']}", pod)
        for maker in (replica_set(OLD, 1, wants=2, has=2), replica_set(NEW, 2, wants=1, has=0)):
            server.put(f"/apis/apps/v1/namespaces/ml/replicasets/{maker['metadata']['name']}", maker)
        event = refused(NEW) | {"metadata": {"name": "e", "namespace": "ml"}}
        server.put("/api/v1/namespaces/ml/events/e", event)
        kubeconfig = str(server.kubeconfig(tmp_path))
        assert kubectl.main(["why", "chat", "-n", "ml", "--kubeconfig", kubeconfig]) == exit_status.EXIT_OK
    assert f"note: ReplicaSet {NEW} cannot make a pod: exceeded quota: team" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "name", "is_its"),
    [
        ("ReplicaSet", "web-6bd9", True),
        ("Job", "web-29123", True),
        ("Job", "web-db", False),
        ("StatefulSet", "web-0", False),
    ],
)
def test_whose_name_only_begins_alike_is_somebody_else(kind: str, name: str, *, is_its: bool) -> None:
    """``why web`` told of another Job that was refused, instead of what is near."""
    event = {"reason": "FailedCreate", "involvedObject": {"kind": kind, "name": name}, "message": "quota"}
    assert bool(owners.refusal("web", [event])) is is_its
