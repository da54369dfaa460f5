"""What the Job controller keeps of a pod."""

from typing import Any

import pytest
from vc_egpu.jobs.podcache import CachedPod, trim
from vc_egpu.volcano import names

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
