"""What a pod's phase means for its gang."""

import pytest
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.volcano.codec.pod_codec import pod
from vc_egpu.volcano.words.model_table import ModelTable


@pytest.mark.parametrize(
    ("phase", "deleted", "meaning"),
    [
        ("Succeeded", False, PodPhase.SUCCEEDED),
        ("Succeeded", True, PodPhase.FAILED),  # evicted, and ended with 0 on SIGTERM: its work is not done
        ("Failed", False, PodPhase.FAILED),
        ("Failed", True, PodPhase.FAILED),
        ("Running", True, PodPhase.TERMINATING),
        ("Running", False, PodPhase.PLACED),
    ],
)
def test_phase(phase: str, deleted: bool, meaning: PodPhase) -> None:
    metadata = {"name": "a", "namespace": "ml", "uid": "u", "resourceVersion": "1"}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}
    assert pod(document, ModelTable()).pod.phase is meaning
