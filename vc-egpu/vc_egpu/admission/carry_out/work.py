"""Work under way for gangs: which PodGroup is written to, what failed, and when it is tried again.

A gang is *free* when nothing is under way for its PodGroup and nothing failed for it a moment ago.
"""

import logging
from dataclasses import dataclass, field

from vc_egpu.admission.execution import outcomes, writes
from vc_egpu.admission.execution.evictions import Evictions
from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.execution.operations import (
    ByRefusal,
    ByWay,
    ByWrite,
    Operation,
    Totals,
    from_zero,
    none_by_kubelets,
    none_let_go,
    none_refused,
)
from vc_egpu.admission.execution.outcomes import Done, GroupPurpose, GroupWrite, UnknownWrite
from vc_egpu.admission.execution.results import Denied
from vc_egpu.admission.execution.retries import Retries
from vc_egpu.admission.figures import Figures
from vc_egpu.admission.state.agenda import Agenda, Why
from vc_egpu.admission.state.gangs import Group
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.reports import Reports, group_reference, pod_reference
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.watch import Change, ChangeKind
from vc_egpu.volcano.codec import trim
from vc_egpu.volcano.codec.pod_codec import DecodedPod

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Work:
    """Owned by the loop's thread. Until an operation's outcome comes back its gang is marked here."""

    mirror: Mirror
    executor: Executor
    api: ApiConnection
    reports: Reports
    clock: float = 0.0
    """Monotonic seconds that stand still while the API server is away. The loop sets it in each turn."""
    counters: Totals = field(default_factory=from_zero)
    """Totals since this process leads, by name, for the metrics."""
    refused: ByWrite = field(default_factory=none_refused)
    """Writes that the API server refuses again and again, by kind, for the metrics."""
    let_go: ByWay = field(default_factory=none_let_go)
    """Pods that were let go, by way, for the metrics."""
    by_kubelets: ByRefusal = field(default_factory=none_by_kubelets)
    """Pods that kubelets refused, by what lacked, for the metrics."""
    figures: Figures = field(init=False)
    evictions: Evictions = field(init=False)
    retries: Retries = field(default_factory=Retries)
    _busy: set[str] = field(default_factory=set)
    _unknown: dict[str, UnknownWrite] = field(default_factory=dict)
    """Writes of which no answer says whether they happened; their gangs stay busy."""
    _passed_over: set[str] = field(default_factory=set)
    """Gangs for which a decision came while they were written to: decided again once that is over."""

    def __post_init__(self) -> None:
        self.figures = Figures(self.mirror.state.gang)
        self.evictions = Evictions(figures=self.figures)

    @property
    def agenda(self) -> Agenda:
        """What is looked at next."""
        return self.mirror.agenda

    # --- what may begin --------------------------------------------------------------------------

    def is_busy(self, key: str) -> bool:
        """Whether a write to the gang's PodGroup is under way."""
        return key in self._busy

    def is_free(self, key: str) -> bool:
        """Whether nothing is under way for a gang, and nothing failed a moment ago."""
        return key not in self._busy and self.may_follow(key)

    def may_follow(self, key: str) -> bool:
        """The same, where writes to the PodGroup do not matter."""
        return key not in self.evictions.stripped and self.may_try(key)

    def may_try(self, key: str) -> bool:
        """Whether nothing failed for a gang a moment ago."""
        return self.retries.may_try(key, self.clock)

    def pass_over(self, key: str) -> None:
        """A decision came for a gang that is not free: it is decided again after the write under way."""
        self._passed_over |= self._busy & {key}

    def write(
        self, purpose: GroupPurpose, key: str, group: Group, body: writes.Json, plan_id: str = ""
    ) -> None:
        """Begin a write to a PodGroup."""
        self._busy.add(key)
        self.executor.write_group(purpose, key, group.decoded, body, plan_id)

    # --- what came of it -------------------------------------------------------------------------

    def ended(self, done: GroupWrite) -> None:
        """The write to a PodGroup ended; what stands there is entered."""
        self._busy.discard(done.gang)
        if not done.gone:
            self.enter(done)

    def go_on(self, done: GroupWrite) -> None:
        """After such a write: note a failure, and have the gang looked at."""
        if done.error is None:
            self.retries.succeeded(done.gang)
        else:
            self.failed(done)
        self.agenda.look_at(done.gang)
        if done.error is not None or done.purpose == "strip" or done.gang in self._passed_over:
            self._passed_over.discard(done.gang)
            self.agenda.try_again(done.gang, Why.PASSED_OVER)

    def is_unknown(self, done: UnknownWrite) -> None:
        """No answer says whether a write happened: what was booked stays booked until one does."""
        self.failed(done)
        self._unknown[done.gang] = done

    def enter(self, done: outcomes.OfGroup | outcomes.OfPod) -> None:
        """What the API server showed counts at once; the watch may tell of it later."""
        if done.document is not None:
            plural = "podgroups" if isinstance(done, outcomes.OfGroup) else "pods"
            self.mirror.apply(plural, Change(ChangeKind.MODIFIED, trim.of(plural, done.document)))
        elif isinstance(done, outcomes.GateWrite) and done.assumed is not None:
            self.mirror.assume_bound(done.assumed)

    def failed(self, done: Done) -> None:
        """Something failed for a gang: tried again later, and said where trying will not help."""
        what = outcomes.word_for(done)
        unknown = isinstance(done, UnknownWrite)
        delay_s = self.retries.failed(done.gang, done.error, self.clock, is_read=unknown)
        logger.info("gang %s: %s failed, again in %.2f s: %s", done.gang, what, delay_s, done.error)
        self.count("write_failures")
        if isinstance(done.result, Denied):
            self.is_refused(done, done.result)

    def is_refused(self, done: Done, denied: Denied) -> None:
        """The API server will refuse this again: counted, and told about the gang."""
        what = outcomes.word_for(done)
        if what in self.refused:
            self.refused[what] += 1
        group = self.mirror.groups.get(done.gang)
        if group is not None:
            about = group_reference(done.gang, group.decoded)
            self.reports.events.event(about, "Warning", "WriteRefused", f"{what}: {denied.reason}")

    def due(self) -> float | None:
        """When a gang for which something failed is to be tried again (on ``clock``)."""
        return self.retries.next_at()

    def wake_due(self) -> None:
        """Try those again whose time has come."""
        for key in self.retries.due(self.clock):
            unknown = self._unknown.pop(key, None)
            group = self.mirror.groups.get(key)
            if unknown is not None and group is not None:
                self.executor.read_group(unknown, group.decoded)
            elif unknown is not None:
                self._busy.discard(key)
            self.agenda.look_at(key)
            self.agenda.try_again(key, Why.RETRY)

    # --- what is said and counted ----------------------------------------------------------------

    def event(self, pod: DecodedPod, reason: str, note: str) -> None:
        """Warn about a pod."""
        self.reports.events.event(pod_reference(pod), "Warning", reason, note)

    def count(self, name: Operation, by: int = 1) -> None:
        """Add to a total of the metrics."""
        self.counters[name] += by
