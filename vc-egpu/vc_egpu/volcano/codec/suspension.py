"""What the admission layer and the node agents say to each other about suspending pods.

The order stands on the pod and is the wish: while it is there the pod shall be suspended, without it the pod
shall run. The answer stands on the node and is what its agent has done. An answer names the order that it
answers: one to an earlier order says nothing about the present one. Both are hostile input, decoded with
bounds; see :mod:`vc_egpu.volcano.words.annotations`.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import Field

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.words.annotations import MAX_MEMORY_MIB, AnnotationError, CauseWord, Wire

SUSPEND_SIGNALS: Final = ("SIGUSR1", "SIGUSR2", "SIGTSTP")
"""What ``egpu.volcano.sh/suspend-signal`` may name."""
MAX_WHY: Final = 512
MAX_SINCE: Final = 1 << 40
MAX_REASON: Final = 256
MAX_PODS_PER_NODE: Final = 1024
MAX_ANSWER_BYTES: Final = 160 * 1024
"""The API server allows 256 KiB for all annotations of a node; the inventory stands there too."""

_OrderId = Annotated[str, Field(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$")]
_Uid = Annotated[str, Field(min_length=1, max_length=64)]


class SuspendOrder(Wire):
    """``egpu.volcano.sh/suspend`` on a pod: written and removed by the admission controller alone."""

    version: Literal[1] = 1
    pod_uid: _Uid
    plan_id: _OrderId
    """``<lease epoch>-<counter>``, no two orders have the same."""
    why: Annotated[str, Field(max_length=MAX_WHY)] = ""
    cause: CauseWord = Cause.PRIORITY
    """Absent on orders of versions that did not say."""
    since: Annotated[int, Field(strict=True, ge=0, le=MAX_SINCE)] = 0
    """When it was given, in seconds of Unix time; 0: by a version that did not say."""
    off_quota: bool = False
    """It makes room in a cap of the pod's own queue, or of one above it: while it stands the pod counts in no
    queue."""

    @property
    def number(self) -> tuple[int, int]:
        """(lease epoch, counter): of two orders the lower one is the older."""
        epoch, _, counter = self.plan_id.partition("-")
        return int(epoch), int(counter)


class PodSuspension(Wire):
    """How far one pod is, as its node's agent says."""

    state: SuspensionState = SuspensionState.RUNNING
    plan_id: Annotated[str, Field(max_length=128)] = ""
    """The last order that the agent has acted on. ``running`` with the present order's id: it was tried and
    could not be done, the pod runs on, ``reason`` says why."""
    suspendable: bool = False
    """The computed verdict for the pod as it is now."""
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    """Why it cannot be suspended, or what went wrong; for people."""
    host_mib: Annotated[int, Field(strict=True, ge=0, le=MAX_MEMORY_MIB)] = 0
    """GPU memory of it that lies on the host now, or would if it were suspended."""


class NodeSuspension(Wire):
    """``egpu.volcano.sh/node-suspension`` on a node: its low pods by UID, written by its agent on change."""

    version: Literal[1] = 1
    pods: Annotated[dict[_Uid, PodSuspension], Field(default_factory=dict, max_length=MAX_PODS_PER_NODE)]

    @classmethod
    def decode(cls, text: str) -> Self:
        """As for every annotation; a text that is too long is not parsed."""
        if len(text) > MAX_ANSWER_BYTES:
            raise AnnotationError(f"the document: {len(text)} bytes, the limit is {MAX_ANSWER_BYTES}")
        return super().decode(text)


def answer_to(order: SuspendOrder | None, report: PodSuspension | None) -> PodSuspension:
    """What a report says about the present order.

    Without a report the pod runs and cannot be suspended. A ``suspended`` that answers another order is old:
    that order was taken back. The agent is on its way from there, so the pod counts as ``resuming``.
    """
    if report is None:
        return PodSuspension(reason="its node's agent does not report about it")
    if order is not None and report.state is SuspensionState.SUSPENDED and report.plan_id != order.plan_id:
        return report.model_copy(update={"state": SuspensionState.RESUMING})
    return report


def is_refused(order: SuspendOrder, report: PodSuspension) -> bool:
    """Whether the agent tried this very order and could not carry it out."""
    return report.state is SuspensionState.RUNNING and report.plan_id == order.plan_id
