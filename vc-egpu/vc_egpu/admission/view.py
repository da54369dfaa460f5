"""What other threads may see of a leadership: values only, made by the loop's thread on request."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from vc_egpu.admission.execution.operations import (
    ByRefusal,
    ByWay,
    ByWrite,
    Operation,
    none_by_kubelets,
    none_let_go,
    none_refused,
)
from vc_egpu.admission.figures import Figures
from vc_egpu.core.check.recount import Use
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Verdict
from vc_egpu.volcano.needs.table import EnvironmentTable, shipped
from vc_egpu.volcano.words.model_table import ModelTable


@dataclass(frozen=True, slots=True)
class View:
    """A moment of the cluster, the verdicts, and counters."""

    snapshot: Snapshot
    verdicts: Mapping[str, Verdict]
    counters: Mapping[Operation, int]
    epoch: int
    admitting: bool
    refused: ByWrite = field(default_factory=none_refused)
    """Writes that the API server refuses again and again, by kind."""
    let_go: ByWay = field(default_factory=none_let_go)
    """Pods that were let go, by way."""
    by_kubelets: ByRefusal = field(default_factory=none_by_kubelets)
    """Pods that kubelets refused, by what lacked."""
    used: Use | None = None
    """What queues use, as the books have it; None: count it from the snapshot."""
    behind_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds since each watch was last heard, by kind."""
    hypernodes_wrong: int = 0
    """HyperNodes of which something is left out."""
    figures: Figures = field(default_factory=Figures)
    policy: Policy = field(default_factory=Policy)
    """What decisions go by, with what usual work was learned by then."""
    table: ModelTable = field(default_factory=ModelTable)
    environments: EnvironmentTable = field(default_factory=shipped)
    """What software needs."""


@dataclass(slots=True)
class ViewRequest:
    """Another thread wants a :class:`View`."""

    answered: threading.Event = field(default_factory=threading.Event)
    view: View | None = None
