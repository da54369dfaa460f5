"""What the Job controller keeps of a pod."""

import tracemalloc
from fractions import Fraction
from typing import Any

import pytest
from vc_egpu.jobs.known.pods import CachedPod, trim
from vc_egpu.volcano.words import names

REFUSED = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"}
RAN_BEFORE = {
    "containerStatuses": [{"state": {"terminated": {"reason": "ContainerStatusUnknown", "exitCode": 137}}}]
}


def pod(status: dict[str, Any], *, managed: bool = True) -> CachedPod:
    labels = {names.MANAGED_LABEL: "true"} if managed else {}
    metadata = {"name": "a", "namespace": "ml", "uid": "u", "labels": labels}
    return CachedPod.of(trim({"metadata": metadata, "spec": {"nodeName": "n"}, "status": status}))


@pytest.mark.parametrize(
    ("story", "status", "managed", "phase"),
    [
        ("refused by the kubelet: never ran", REFUSED, True, "Pending"),
        ("refused once its node was back: it ran before", {**REFUSED, **RAN_BEFORE}, True, "Pending"),
        ("nobody rolls back what is not ours", REFUSED, False, "Failed"),
        ("its program failed", {"phase": "Failed", "containerStatuses": [{}]}, True, "Failed"),
        ("evicted by the kubelet", {"phase": "Failed", "reason": "Evicted"}, True, "Failed"),
        (
            "refused: the node shuts down",
            {"phase": "Failed", "reason": "NodeShutdown", "message": "Pod was rejected: it shuts down"},
            True,
            "Pending",
        ),
        ("runs", {"phase": "Running"}, True, "Running"),
    ],
)
def test_phase(story: str, status: dict[str, Any], managed: bool, phase: str) -> None:
    assert pod(status, managed=managed).member.phase == phase, story


def test_what_a_large_pod_requests_goes_with_it() -> None:
    """It was remembered: who makes and deletes some hundred of these, each with other names, fills memory."""

    def requests(number: int) -> dict[str, str]:
        return {f"a.example/{number}-{index:0200}": "1" for index in range(2000)}

    def seen(number: int) -> CachedPod:
        spec = {"containers": [{"resources": {"requests": requests(number)}}]}
        metadata = {"name": "a", "namespace": "ml", "uid": "u"}
        return CachedPod.of(trim({"metadata": metadata, "spec": spec, "status": {}}))

    assert seen(0).requested == {**dict.fromkeys(requests(0), Fraction(1)), "pods": Fraction(1)}
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(8):
            seen(number)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 100_000, f"{kept} bytes stay of pods that are gone"


def test_what_users_write_on_a_pod_is_not_kept() -> None:
    """Ten thousand pods of a template with large annotations took its bytes as often."""
    read = {names.GROUP_NAME: "g", names.JOB_VERSION: "3", names.TASK_SPEC: "w", names.PRIORITY: "low"}
    labels = {names.MANAGED_LABEL: "true", names.JOB_QUEUE_NAME: "q"}
    theirs = {f"a.example/{number}": "x" * 1000 for number in range(100)}
    metadata = {"name": "a", "namespace": "ml", "uid": "u"}
    told = {**metadata, "annotations": read | theirs, "labels": labels | theirs}
    kept = trim({"metadata": told, "spec": {}, "status": {}})
    assert kept["metadata"] == {**metadata, "annotations": read, "labels": labels}
    assert trim(kept) == kept
