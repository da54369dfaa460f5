"""What became of one operation: a type for each kind, so that each consumer takes its own. Pure.

An ``error`` says that the operation failed, and ``result`` what that means. ``document`` is what the API
server showed last: the answer to the write, or what stands there after a failure. ``gone``: the object is not
there any more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from vc_egpu.admission.execution.results import Result, result_of
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.kube.wire.errors import KubeError

Json = dict[str, Any]
GroupPurpose = Literal["plan", "strip", "enqueue", "reserve", "choice", "move"]
"""Why a PodGroup is written to."""
OrderPurpose = Literal["suspend", "resume", "resize"]
"""Why annotations of a pod that runs are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    gang: str
    error: KubeError | None = None

    @property
    def result(self) -> Result:
        """What became of the write."""
        return result_of(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfGroup(_Outcome):
    document: Json | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfPod(_Outcome):
    uid: PodUid
    document: Json | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWrite(_OfGroup):
    """A write to a PodGroup that carries a decision out."""

    purpose: GroupPurpose
    plan_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownWrite(_Outcome):
    """The same, where no answer says whether it happened. ``error`` is that of the write."""

    purpose: GroupPurpose = "plan"
    plan_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLookup(_OfGroup):
    """A PodGroup that no watch told of was asked for by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReport(_OfGroup):
    """A condition of a PodGroup."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport(_OfPod):
    """A condition of a pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateWrite(_OfPod):
    """The write that sends a member on its way with its cards: our Binding, or the end of its gate."""

    assumed: Json | None = None
    """The pod as a Binding made it. Its answer shows no pod, and the watch tells of it later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceWrite(_OfPod):
    """The write to a member after which no earlier one can land."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderWrite(_OfPod):
    """An order to leave the cards was written or taken back, or what became of a wish to resize."""

    purpose: OrderPurpose


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRemoval(_OfPod):
    """A pod that was bound without a plan was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRun(_Outcome):
    """An order to evict. ``gang`` is the one that needs the room, or is rolled back."""

    plan_id: str = ""
    stopped_by: str = ""
    """The gang of the pod, or of the PodGroup, at which the error stopped the order."""
    member: PodUid | None = None
    """The pod of ``gang`` itself that takes no cards: its own write was refused when it was tried dry."""
    plainly: tuple[PodUid, ...] = ()
    """Pods that their controller could not be asked about: they were evicted plainly at once."""


Done = (
    GroupWrite
    | UnknownWrite
    | GroupLookup
    | GroupReport
    | PodReport
    | GateWrite
    | FenceWrite
    | OrderWrite
    | OrphanRemoval
    | EvictionRun
)
OfGroup = GroupWrite | GroupLookup | GroupReport
"""What is about a PodGroup and may bring its document."""
OfPod = PodReport | GateWrite | FenceWrite | OrderWrite | OrphanRemoval
"""What is about a pod and may bring its document."""


_WORDS: Final[Mapping[type[Done], str]] = {
    UnknownWrite: "read",
    GroupLookup: "found",
    GroupReport: "condition",
    PodReport: "condition",
    GateWrite: "carry",
    FenceWrite: "fence",
    OrphanRemoval: "orphan",
    EvictionRun: "evict",
}


def word_for(done: Done) -> str:
    """What was tried, in one word, for logs and events."""
    return done.purpose if isinstance(done, GroupWrite | OrderWrite) else _WORDS[type(done)]
