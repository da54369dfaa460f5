"""What other threads may see of a leadership: values only, made by the loop's thread on request."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from vc_egpu.admission.execution.operations import (
    ByCause,
    ByRefusal,
    ByWay,
    ByWrite,
    Operation,
    none_by_kubelets,
    none_let_go,
    none_refused,
    none_yet,
)
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.core.model.reasons import Verdict


@dataclass(frozen=True, slots=True)
class View:
    """A moment of the cluster, the verdicts, and counters."""

    snapshot: Snapshot
    verdicts: Mapping[str, Verdict]
    counters: Mapping[Operation, int]
    epoch: int
    admitting: bool
    decide_s: float
    evicted: ByCause = field(default_factory=none_yet)
    """Pods that were asked to go, by cause."""
    suspended: ByCause = field(default_factory=none_yet)
    """Pods that were told to leave their cards, by cause."""
    refused: ByWrite = field(default_factory=none_refused)
    """Writes that the API server refuses again and again, by kind."""
    let_go: ByWay = field(default_factory=none_let_go)
    """Pods that were let go, by way."""
    by_kubelets: ByRefusal = field(default_factory=none_by_kubelets)
    """Pods that kubelets refused, by what lacked."""


@dataclass(slots=True)
class ViewRequest:
    """Another thread wants a :class:`View`."""

    answered: threading.Event = field(default_factory=threading.Event)
    view: View | None = None
