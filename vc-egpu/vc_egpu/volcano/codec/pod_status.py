"""What a pod's status says: how far it is, and what keeps it from going on."""

from collections.abc import Iterable
from typing import Final

from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.volcano.api.containers import end_of, statuses_of, waiting_of
from vc_egpu.volcano.codec.cluster_codec import Document, instant
from vc_egpu.volcano.podspec.sums import is_over
from vc_egpu.volcano.podspec.way import waits_for_us
from vc_egpu.volcano.words import names


def phase_of(document: Document) -> PodPhase:
    """How far a pod is, as far as its cards are concerned."""
    metadata, status = document["metadata"], document.get("status") or {}
    if status.get("phase") == "Succeeded":
        # Told to go and ended well for it, it has not done its work: it is no member that succeeded.
        return PodPhase.FAILED if metadata.get("deletionTimestamp") else PodPhase.SUCCEEDED
    if status.get("phase") == "Failed":
        return PodPhase.FAILED
    if metadata.get("deletionTimestamp"):
        return PodPhase.TERMINATING
    return PodPhase.GATED if waits_for_us(document.get("spec") or {}) else PodPhase.PLACED


def finished_at(status: Document) -> float | None:
    """When a pod that is over ended: its last container's end, else the moment the kubelet took it."""
    if not is_over(status):
        return None
    ends = [instant(end_of(container).get("finishedAt")) for container in statuses_of(status)]
    changes = [instant(c.get("lastTransitionTime")) for c in status.get("conditions") or ()]
    return max([*ends, *changes, instant(status.get("startTime"))], default=0.0)


def admitted_of(conditions: Iterable[Document]) -> tuple[str, str, str] | None:
    """(status, reason, message) of our condition, or None."""
    for condition in conditions:
        if condition["type"] == names.CONDITION_ADMITTED:
            return condition["status"], condition.get("reason") or "", condition.get("message") or ""
    return None


_REFUSALS: Final = frozenset(
    {
        "NodeAffinity",
        "NodePorts",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
"""With these reasons a kubelet of any version fails a pod that it does not start, and no other."""


def refusal_of(status: Document) -> str:
    """Why the kubelet refused a pod: it fails it without starting a container. Empty where it did not.

    A node that was rebooted refuses pods that ran there, too: these have containers of the former boot.
    """
    if status.get("phase") != "Failed":
        return ""
    reason, message = str(status.get("reason") or ""), str(status.get("message") or "")
    known = reason in _REFUSALS
    # Kubelets of late begin so whatever the reason: a node that shuts down, or has too little disk.
    refused = known or reason.startswith("OutOf") or message.startswith("Pod was rejected")
    return f"{reason}: {message}" if refused else ""


def start_error_of(status: Document) -> str:
    """Why our agent keeps a container from starting, if it does."""
    for container in statuses_of(status):
        message = str(waiting_of(container).get("message") or "")
        if "PreStartContainer" in message or "CDI device" in message:
            return message[:512]
    return ""
