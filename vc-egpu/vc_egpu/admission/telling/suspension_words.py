"""What is said about suspensions, on pods and PodGroups alike: one condition, reasons, sentences. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from vc_egpu.admission.execution.writes import timestamp
from vc_egpu.admission.state.answers import is_paused
from vc_egpu.core.model.cluster import Instant, Pod, PodPhase, SuspensionState
from vc_egpu.volcano.codec.cluster_codec import Document, instant
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.codec.suspension import PodSuspension
from vc_egpu.volcano.words import names

SUSPENDING: Final = "Suspending"
SUSPENDED: Final = "Suspended"
RESUMING: Final = "Resuming"
RESUMED: Final = "Resumed"
NOT_SUSPENDABLE: Final = "NotSuspendable"
SUSPEND_FAILED: Final = "SuspendFailed"
RESTORE_FAILED: Final = "RestoreFailed"
GONE: Final = "Gone"
"""Said of a gang: none of its pods has cards any more, suspended or not."""

MAX_MESSAGE: Final = 1024
_OPEN: Final = frozenset({SUSPENDING, SUSPENDED, RESUMING, NOT_SUSPENDABLE})
"""What is not the last word."""
_WARNINGS: Final = frozenset({NOT_SUSPENDABLE, SUSPEND_FAILED, RESTORE_FAILED})
_WEIGHT: Final = (RESTORE_FAILED, SUSPENDED, RESUMING, SUSPENDING, SUSPEND_FAILED, NOT_SUSPENDABLE, RESUMED)


@dataclass(frozen=True, slots=True)
class Said:
    """A condition without its time."""

    status: str
    reason: str
    message: str

    def cut(self) -> "Said":
        """As it is written: what is read again is equal to it."""
        return replace(self, message=self.message[:MAX_MESSAGE])

    @property
    def is_open(self) -> bool:
        """Whether something has to follow."""
        return self.reason in _OPEN

    @property
    def event_type(self) -> Literal["Normal", "Warning"]:
        """As events have it."""
        return "Warning" if self.reason in _WARNINGS else "Normal"


def condition(said: Said, now: Instant) -> dict[str, Any]:
    """As it is written."""
    return {
        "type": names.CONDITION_SUSPENDED,
        "status": said.status,
        "reason": said.reason,
        "message": said.message,
        "lastTransitionTime": timestamp(now),
    }


def standing(conditions: Iterable[Document]) -> Said | None:
    """What was said last."""
    for found in conditions:
        if found.get("type") == names.CONDITION_SUSPENDED:
            return Said(
                str(found.get("status")), str(found.get("reason") or ""), str(found.get("message") or "")
            )
    return None


def stands(pod: DecodedPod) -> Said | None:
    """What was said last about a pod."""
    return standing((pod.source.get("status") or {}).get("conditions") or ())


def failed_at(pod: DecodedPod) -> Instant | None:
    """When its suspension was given up, if that is what was said last about it."""
    for found in (pod.source.get("status") or {}).get("conditions") or ():
        if (found.get("type"), found.get("reason")) == (names.CONDITION_SUSPENDED, SUSPEND_FAILED):
            try:
                return instant(found.get("lastTransitionTime"))
            except (TypeError, ValueError):
                return None
    return None


def of_pod(pod: DecodedPod, answer: PodSuspension, why: str, why_not: str) -> Said | None:
    """What is to be said now; None: what stands is still true.

    ``why`` it has an order, ``why_not`` it has none although it should.
    """
    if pod.pod.phase is not PodPhase.PLACED:
        return None
    if pod.pod.suspension is SuspensionState.FAILED:
        bare = "no controller would replace it, so it is left as it is"
        then = bare if pod.pod.bare else "it will be replaced"
        text = f"it could not be brought back, and {then}: {answer.reason or 'no reason given'}"
        return Said("False", RESTORE_FAILED, text)
    if pod.pod.suspend_ordered and pod.pod.suspension is SuspensionState.SUSPENDED:
        return Said("True", SUSPENDED, f"{_on_host(pod.pod, answer)}: {why}")
    if pod.pod.suspend_ordered:
        return Said("False", SUSPENDING, f"it leaves its cards: {why}")
    if pod.pod.suspension is not SuspensionState.RUNNING:
        text = f"it comes back to its cards; {_on_host(pod.pod, answer)}"
        return Said("True", RESUMING, f"{text}; {answer.reason}" if answer.reason else text)
    return _of_running(pod, why_not)


def _of_running(pod: DecodedPod, why_not: str) -> Said | None:
    if is_paused(pod) and why_not:
        return Said("False", NOT_SUSPENDABLE, f"it is asked to pause and runs on: {why_not}")
    last = stands(pod)
    if last is None or not last.is_open:
        return None
    if last.reason == SUSPENDING and why_not:
        return Said("False", SUSPEND_FAILED, why_not)
    return Said("False", RESUMED, "it runs where it was")


def of_gang(pods: Sequence[tuple[DecodedPod, Said]], members: int, host_mib: int) -> Said:
    """The same about a gang, from what is said about its pods; without any of that those that it has run."""
    if not members:
        return Said("False", GONE, "the pods that were to leave their cards are gone, or on their way")
    if not pods:
        return Said("False", RESUMED, "all its pods run")
    reasons = {said.reason for _, said in pods}
    reason = next(reason for reason in _WEIGHT if reason in reasons)
    first = next((pod, said) for pod, said in pods if said.reason == reason)
    count = sum(1 for _, said in pods if said.reason == reason)
    where = len({pod.pod.node for pod, said in pods if said.reason == reason})
    nodes = f"{where} node" if where == 1 else f"{where} nodes"
    text = f"{reason}: {count} of {members} pods on {nodes}, {host_mib} MiB of GPU memory on the host"
    return Said(first[1].status, reason, f"{text}; pod {first[0].pod.name}: {first[1].message}")


def _on_host(pod: Pod, answer: PodSuspension) -> str:
    booked_mib = sum(share.memory_mib for _, share in pod.shares)
    return f"{answer.host_mib or booked_mib} MiB of GPU memory are on the host of {pod.node}"
