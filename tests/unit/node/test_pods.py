"""Pods as the agent keeps them."""

from vc_egpu_node.pods import requested, slim, view


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


def test_requests_of_unfinished_pods_are_summed() -> None:
    documents = [slim(pod()), slim(pod()), slim(pod(phase="Failed"))]
    assert requested(documents) == {"volcano.sh/vgpu-h20": 6, "volcano.sh/vgpu-h20-memory": 18000}
