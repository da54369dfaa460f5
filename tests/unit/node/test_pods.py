"""Pods as the agent keeps them."""

from typing import Any

from vc_egpu.kube import Change, ChangeKind
from vc_egpu_node.api.pods import REMADE_S, NamesInUse, requested, slim, view


def pod(**status: object) -> dict[str, object]:
    limits = {"volcano.sh/vgpu-h20": "2", "volcano.sh/vgpu-h20-memory": "4k", "cpu": "1"}
    return {
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "1",
            "annotations": {"egpu.volcano.sh/cards": "{}", "big": "x" * 1000},
            "managedFields": [{}],
        },
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "a", "resources": {"requests": limits}, "image": "i"}],
            "initContainers": [
                {"name": "side", "restartPolicy": "Always",
                 "resources": {"requests": {"volcano.sh/vgpu-h20": "1"}}},
                {"name": "once", "resources": {"requests": {"volcano.sh/vgpu-h20-memory": "9000"}}},
            ],
        },
        "status": {"phase": "Running", **status},
    }  # fmt: skip


def test_only_what_is_needed_is_kept() -> None:
    kept = slim(pod())
    assert kept["metadata"]["annotations"] == {"egpu.volcano.sh/cards": "{}"}
    assert "managedFields" not in kept["metadata"]
    assert slim(kept)["metadata"] == kept["metadata"]


def test_view() -> None:
    statuses = [
        {"name": "a", "containerID": "containerd://" + "f" * 64, "state": {"running": {}}},
        {"name": "b", "containerID": "", "state": {"waiting": {}}},
    ]
    seen = view(slim(pod(containerStatuses=statuses)))
    assert (seen.uid, seen.namespace, seen.name, seen.node, seen.cards) == ("u", "ns", "p", "n", "{}")
    assert seen.containers == {"f" * 64: "a"}
    assert seen.running == {"a"}
    assert not seen.ended
    assert view(slim(pod(phase="Succeeded"))).ended


def test_a_debug_containers_processes_are_known_by_its_name() -> None:
    """It may be privileged, and then it has every card of the node."""
    debugger = {"name": "debugger-x", "containerID": "containerd://" + "d" * 64, "state": {"running": {}}}
    assert view(slim(pod(ephemeralContainerStatuses=[debugger]))).containers == {"d" * 64: "debugger-x"}


def test_requests_of_unfinished_pods_are_summed() -> None:
    documents = [slim(pod()), slim(pod()), slim(pod(phase="Failed"))]
    assert requested(documents) == {"volcano.sh/vgpu-h20": 6, "volcano.sh/vgpu-h20-memory": 18000}


class Feed:
    """Changes as the watch tells them, and a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.names = NamesInUse(clock=lambda: self.now)

    def say(self, kind: ChangeKind, uid: str, old: str | None = None) -> None:
        def document(uid: str) -> dict[str, Any]:
            full = pod()
            full["metadata"] = {"name": "p", "namespace": "ns", "uid": uid, "resourceVersion": "1"}
            return slim(full)

        change = Change(kind, document(uid), document(old) if old else None)
        self.names.take(change)

    def remade(self, name: str = "p") -> bool:
        return self.names.may_be_remade("ns", name)


def test_a_young_watch_cannot_tell_whether_a_pod_was_remade() -> None:
    feed = Feed()
    assert feed.remade()
    feed.now += 2 * REMADE_S
    assert feed.remade()
    feed.say(ChangeKind.ADDED, "u")
    assert feed.remade()
    feed.now += REMADE_S
    assert not feed.remade()


def test_a_pod_that_went_is_remembered_for_a_while() -> None:
    feed = Feed()
    feed.say(ChangeKind.ADDED, "u")
    feed.now += REMADE_S
    feed.say(ChangeKind.DELETED, "u")
    assert feed.remade()
    assert not feed.remade("other")
    feed.now += REMADE_S
    assert not feed.remade()
    feed.say(ChangeKind.MODIFIED, "w", old="v")
    assert feed.remade()


def test_a_pod_that_is_being_deleted_says_so() -> None:
    document = pod()
    assert not view(slim(document)).terminating
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"  # type: ignore[index]
    assert view(slim(document)).terminating
