"""What the leader does, counted for the metrics.

Each total stands at zero from the beginning of a leadership. A total that first appears as one has not grown,
as Prometheus sees it, and no alert would tell of the first failure.
"""

from typing import Final, Literal, get_args

Operation = Literal[
    "decisions",
    "enqueued",
    "enqueued_again",
    "chosen",
    "made_again",
    "ungated",
    "rolled_back",
    "orphans",
    "evicted",
    "evicted_broken",
    "suspend_orders",
    "suspensions_failed",
    "resumed",
    "resized",
    "resizes_refused",
    "found_unwatched",
    "watches_renewed",
    "lever_failed",
    "write_failures",
    "decisions_failed",
]
OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)

Totals = dict[Operation, int]


def from_zero() -> Totals:
    """All of them."""
    return dict.fromkeys(OPERATIONS, 0)


Way = Literal["direct", "scheduler"]
"""How a pod was let go: bound by us, or by a lifted gate."""
ByWay = dict[Way, int]


def none_let_go() -> ByWay:
    """Both ways."""
    return dict.fromkeys(get_args(Way), 0)


_REFUSALS: Final = {
    "OutOfcpu": "cpu",
    "OutOfmemory": "memory",
    "OutOfpods": "pods",
    "UnexpectedAdmissionError": "device",
    "TopologyAffinityError": "topology",
    "NodeAffinity": "affinity",
    "TaintToleration": "taint",
    "NodePorts": "port",
    "NodeShutdown": "shutdown",
    "Evicted": "pressure",
}
"""What lacked, by the reason that a kubelet writes onto the pod that it refuses."""
_OTHER_RESOURCE: Final = "resource"
_OTHER: Final = "other"

ByRefusal = dict[str, int]
"""Pods that kubelets refused, by what lacked."""


def none_by_kubelets() -> ByRefusal:
    """All that may lack."""
    return dict.fromkeys((*_REFUSALS.values(), _OTHER_RESOURCE, _OTHER), 0)


def lacked(refusal: str) -> str:
    """What lacked, from ``Reason: message`` of a pod that a kubelet refused."""
    reason = refusal.partition(":")[0]
    return _REFUSALS.get(reason, _OTHER_RESOURCE if reason.startswith("OutOf") else _OTHER)


WRITES: Final = (
    "plan",
    "strip",
    "enqueue",
    "reserve",
    "choice",
    "move",
    "condition",
    "carry",
    "fence",
    "suspend",
    "resume",
    "resize",
    "evict",
    "lever",
    "orphan",
)
"""The kinds of writes, as logs and metrics call them."""

ByWrite = dict[str, int]
"""Writes that the API server refuses again and again, by kind."""


def none_refused() -> ByWrite:
    """All kinds."""
    return dict.fromkeys(WRITES, 0)
