"""What one leadership is made of, put together. The loop turns it; tests hand in parts of their own."""

from dataclasses import dataclass, field
from typing import Protocol

from vc_egpu.admission.aftercare import Aftercare
from vc_egpu.admission.carry_out.conductor import Conductor
from vc_egpu.admission.carry_out.work import Work
from vc_egpu.admission.decision import Decisions
from vc_egpu.admission.execution import steps
from vc_egpu.admission.execution.executor import Executor, Pool
from vc_egpu.admission.execution.outcomes import Done
from vc_egpu.admission.garbage_collector import Collector
from vc_egpu.admission.inqueue.enqueue import Pending
from vc_egpu.admission.inqueue.retry_enqueue import Unheard
from vc_egpu.admission.intake.inbox import Inbox
from vc_egpu.admission.intake.sources import Arrival, Sources
from vc_egpu.admission.intake.watch_gaps import MissingGroups
from vc_egpu.admission.kept import earlier_runs, moves, usual_work
from vc_egpu.admission.kept.keeper import Keeper
from vc_egpu.admission.leader import HealthyClock, Leadership, UntilEnded
from vc_egpu.admission.recording.log import Log
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.taints import Taints
from vc_egpu.admission.telling.reports import Reports
from vc_egpu.admission.telling.verdicts import Verdicts
from vc_egpu.admission.view import ViewRequest
from vc_egpu.core.placing.learning import Experience
from vc_egpu.core.profiles.table import Table
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.events import EventRecorder
from vc_egpu.volcano.needs import file as needs_file
from vc_egpu.volcano.needs.file import ENVIRONMENTS
from vc_egpu.volcano.needs.table import EnvironmentTable
from vc_egpu.volcano.profiles import file as profiles_file
from vc_egpu.volcano.profiles.file import PLACEMENT
from vc_egpu.volcano.tables.file import TableFile
from vc_egpu.volcano.words.model_table import ModelTable

Item = Arrival | Done | ViewRequest
"""What wakes the loop."""


class Clock(Protocol):
    """Monotonic seconds that stand still while the API server is away."""

    def now(self) -> float:
        """The time on it."""
        ...


@dataclass(frozen=True, slots=True)
class Others:
    """Parts to use in place of the usual ones; None: the usual one."""

    inbox: Inbox[Item] | None = None
    clock: Clock | None = None
    pool: Pool | None = None
    """Where all writes run."""
    decisions: Decisions | None = None
    sources: type[Sources] | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """Made for each leadership, and thrown away with it."""

    inbox: Inbox[Item]
    mirror: Mirror
    executor: Executor
    sources: Sources
    events: EventRecorder
    conductor: Conductor
    aftercare: Aftercare
    decisions: Decisions
    collector: Collector
    clock: Clock
    keeper: Keeper[Experience]
    moves: Keeper[moves.Moves]
    runs: Keeper[earlier_runs.Runs]
    taints: Taints
    log: Log | None
    """What comes and ends is written there; None: nowhere."""
    until: UntilEnded
    """No write begins once this has ended."""
    verdicts: Verdicts = field(default_factory=Verdicts)
    pending: Pending = field(default_factory=Pending)
    needs: TableFile[EnvironmentTable] = field(default_factory=lambda: needs_file.followed(ENVIRONMENTS))
    profiles: TableFile[Table] = field(default_factory=lambda: profiles_file.followed(PLACEMENT))
    unheard: Unheard = field(default_factory=Unheard)
    missing: MissingGroups = field(default_factory=MissingGroups)

    @classmethod
    def of(
        cls,
        api: ApiConnection,
        table: ModelTable,
        settings: Settings,
        leadership: Leadership,
        *,
        fresh_s: float = 5.0,
        others: Others | None = None,
    ) -> "Parts":
        """All parts. ``fresh_s``: see :class:`.leader.HealthyClock`."""
        others, until = others or Others(), UntilEnded(leadership)
        fenced = api.fenced(until)
        inbox: Inbox[Item] = others.inbox or Inbox()
        executor = Executor(
            fenced,
            inbox.put,
            keep_managed_fields=settings.keep_managed_fields,
            writers=others.pool,
            helpers=others.pool,
        )
        events = EventRecorder(api.fenced(leadership), "vc-egpu-admission", settings.identity)
        work = Work(Mirror(table, settings.network_levels), executor, fenced, Reports(executor, events))
        conductor = Conductor.on(
            work,
            steps.Authority(leadership.epoch),
            suspend_timeout_s=settings.suspend_timeout_s,
            stranded_after_s=settings.stranded_after_s,
        )
        collector = Collector()
        return cls(
            inbox=inbox,
            mirror=work.mirror,
            executor=executor,
            sources=(others.sources or Sources)(api, inbox.put, settings.namespace),
            events=events,
            conductor=conductor,
            aftercare=Aftercare(conductor),
            decisions=others.decisions or Decisions(settings.policy, collector, figures=work.figures),
            collector=collector,
            keeper=Keeper(fenced, settings.namespace, usual_work.FORM),
            moves=Keeper(fenced, settings.namespace, moves.FORM),
            runs=Keeper(fenced, settings.namespace, earlier_runs.FORM),
            taints=Taints(fenced, work.figures.emptied),
            log=Log(settings.record, settings.record_mib) if settings.record is not None else None,
            clock=others.clock or HealthyClock(leadership, fresh_s),
            until=until,
            needs=needs_file.followed(settings.environments),
            profiles=profiles_file.followed(settings.placement),
        )

    def stop(self) -> None:
        """The leadership is over: no write begins any more, and no thread is left."""
        self.until.ended.set()
        self.sources.stop()
        self.executor.stop()
        self.keeper.stop()
        self.moves.stop()
        self.runs.stop()
        self.taints.stop()
        if self.log is not None:
            self.log.stop()
        self.events.stop()
        self.collector.end()
