"""One leadership: from the first list to the last write. Start here to see how things hang together.

    watches ─┐
             ├─▶ inbox ─▶ mirror ─▶ steps of plans in force ─▶ operations ─┐
    outcomes ┘                 └──▶ decide ─▶ plan ────────▶ operations ─┤
        ▲                                                                  │
        └──────────────────────────── threads ◀────────────────────────────┘

One thread owns all state. It wakes on events; there is no period but a slow one for rules about time.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Final

from vc_egpu.admission.aftercare import Aftercare
from vc_egpu.admission.carry_out import Conductor
from vc_egpu.admission.deciding import decide_safely, without_admissions
from vc_egpu.admission.execution import steps
from vc_egpu.admission.execution.executor import Done, Executor
from vc_egpu.admission.execution.operations import ByCause, Operation, none_yet
from vc_egpu.admission.garbage_collector import QUIET_S, Collector
from vc_egpu.admission.inqueue import enqueue
from vc_egpu.admission.inqueue.retry_enqueue import Unheard
from vc_egpu.admission.intake.loading import SILENCE_S, NotSyncedError, wait_for
from vc_egpu.admission.intake.sources import Arrival, Sources
from vc_egpu.admission.leader import HealthyClock, Leadership, UntilEnded
from vc_egpu.admission.missing_groups import Missing
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.state.mirror import LOAD_ORDER, Mirror
from vc_egpu.admission.telling import nothing_to_decide
from vc_egpu.admission.telling.reports import Reports, says_it_waits
from vc_egpu.core.model.cluster import PodUid, ShareClass, Snapshot
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.events import EventRecorder
from vc_egpu.kube.watch import Change
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.words.model_table import ModelTable

TICK_S: Final = 1.0
"""How often rules about time are looked at while any is pending."""
REVIEW_S: Final = 5.0
"""How often who waits or is suspended is looked at although nothing happened: holds and back-offs run out."""
ALIVE_S: Final = SILENCE_S + 30.0
MOST_PAUSE_S: Final = 0.2
"""Between two decisions is twice what the last one took, for writes and watches, and at most this: who could
be admitted waits for it."""
MOST_REST_S: Final = 0.02
"""In a storm turns are at most this far apart, for each of them to take in more: a turn has its own price."""
MAX_BATCH: Final = 4000
"""What is taken in before the lease and the rules about time are looked at, however much there is."""
STOP_KEY: Final = "stopAdmitting"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class View:
    """What others may see: a moment of the cluster, the verdicts, and counters. Values only."""

    snapshot: Snapshot
    verdicts: Mapping[str, Verdict]
    counters: Mapping[Operation, int]
    epoch: int
    admitting: bool
    decide_s: float
    evicted: ByCause = field(default_factory=none_yet)
    suspended: ByCause = field(default_factory=none_yet)


@dataclass(slots=True)
class _Question:
    """Somebody on another thread wants a :class:`View`."""

    answered: threading.Event = field(default_factory=threading.Event)
    view: View | None = None


_Item = Arrival | Done | _Question
"""What wakes the loop."""


class Loop:
    """Leads until ``stopping`` is set or the lease is lost; then everything of it is thrown away."""

    def __init__(
        self,
        api: ApiConnection,
        table: ModelTable,
        settings: Settings,
        leadership: Leadership,
        stopping: threading.Event,
        *,
        fresh_s: float = 5.0,
    ) -> None:
        self._settings = settings
        self._leadership = leadership
        self._stopping = stopping
        self._inbox: SimpleQueue[_Item] = SimpleQueue()
        self._mirror = Mirror(table)
        self._until = UntilEnded(leadership)
        fenced = api.fenced(self._until)
        self._executor = Executor(fenced, self._inbox.put, keep_managed_fields=settings.keep_managed_fields)
        self._events = EventRecorder(api.fenced(leadership), "vc-egpu-admission", settings.identity)
        self._sources = Sources(api, self._inbox.put, settings.namespace)
        self._clock = HealthyClock(leadership, fresh_s)
        self._conductor = Conductor(
            mirror=self._mirror,
            executor=self._executor,
            api=fenced,
            reports=Reports(self._executor, self._events),
            authority=steps.Authority(leadership.epoch),
            nominates=settings.nominates,
            suspend_timeout_s=settings.suspend_timeout_s,
            stranded_after_s=settings.stranded_after_s,
        )
        self._aftercare = Aftercare(self._mirror, self._conductor, self._executor, self._events)
        self._pending, self._unheard = enqueue.Pending(), Unheard()
        self._missing = Missing()
        self._collector = Collector()
        self._verdicts: dict[str, Verdict] = {}
        self._let_go: set[str] = set()
        """Gangs of which members' gates fell in this turn."""
        self._decide_s = 0.0
        self._turned_at = time.monotonic()
        self._next_turn = 0.0
        self._next_decide = 0.0
        self._next_review = 0.0
        self._next_tick = 0.0

    def run(self) -> None:
        """Block until the leadership is over. Raises :class:`NotSyncedError`."""
        self._collector.begin()
        try:
            self._sources.start()
            self._load()
            self._collector.loaded(time.monotonic())
            logger.info("epoch %d: %d pods, %d gangs", self._leadership.epoch, *self._sizes())
            while not self._over():
                self._turn()
        finally:
            self._until.ended.set()
            self._sources.stop()
            self._executor.stop()
            self._events.stop()
            self._collector.end()

    def view(self, timeout_s: float = 2.0) -> View | None:
        """A moment of the cluster, for other threads; None if the loop does not answer in time."""
        question = _Question()
        self._inbox.put(question)
        question.answered.wait(timeout_s)
        return question.view

    def alive(self) -> bool:
        """Whether the loop turned lately; taking over counts as turning."""
        return time.monotonic() - self._turned_at < ALIVE_S

    def _heard(self, at: float) -> None:
        self._turned_at = at

    def _over(self) -> bool:
        return self._stopping.is_set() or self._leadership.remaining_s() <= 0

    def _sizes(self) -> tuple[int, int]:
        return len(self._mirror.pods), len(self._mirror.groups)

    # --- taking over -----------------------------------------------------------------------------

    def _load(self) -> None:
        """All first lists, in an order in which each finds what it names; then adopt the plans there are."""
        wait_for(self._sources, self._over, self._heard)
        if self._over():
            return
        arrived: list[Arrival] = []
        while not self._inbox.empty():
            item = self._inbox.get()
            if isinstance(item, tuple):
                arrived.append(item)
        self._mirror.ends.now = time.time()
        for plural, change in sorted(arrived, key=lambda item: LOAD_ORDER.index(item[0])):
            self._changed(plural, change)
            self._heard(time.monotonic())
        self._mirror.settle_all()
        self._mirror.ends.first_lists = False
        adopted = {g.plan.plan_id for g in self._mirror.groups.values() if g.plan is not None}
        newest = max((plans.epoch_of(plan_id) for plan_id in adopted), default=-1)
        if newest > self._leadership.epoch:
            text = f"a plan of epoch {newest} stands, this lease has {self._leadership.epoch}"
            raise NotSyncedError(text, newest)
        self._conductor.take_over(steps.Authority(self._leadership.epoch, adopted, self._conductor.dropped))
        self._mirror.freed = True

    # --- the loop --------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Wait for something to happen, take in all that happened, do what it asks for."""
        self._turned_at = time.monotonic()
        began = self._take_in(self._wait_s())
        if self._over():
            return
        self._conductor.clock = self._clock.now()
        self._conductor.wake_due()
        self._drive()
        self._try_high()
        self._conductor.reports.flag_ill_cards(self._mirror)
        if (self._mirror.freed or self._mirror.tries) and self._conductor.clock >= self._next_decide:
            self._decide()
            self._drive()
        self._tick()
        ended = time.monotonic()
        self._next_turn = ended + min(2 * (ended - began), MOST_REST_S)

    def _wait_s(self) -> float:
        clock = self._conductor.clock
        nexts = [self._next_review, self._conductor.due(), self._conductor.reports.next_at()]
        if (
            self._pending.since
            or self._aftercare
            or self._conductor.evictions.begun
            or self._conductor.suspending
            or self._mirror.shielded
        ):
            nexts.append(self._next_tick)
        if self._mirror.freed or self._mirror.tries:
            nexts.append(self._next_decide)
        return min(max(0.0, min(at for at in nexts if at is not None) - clock), REVIEW_S)

    def _take_in(self, timeout_s: float) -> float:
        """Enter what happened, if something does in time; the (monotonic) instant at which that began."""
        try:
            item = self._inbox.get(timeout=timeout_s) if timeout_s > 0 else self._inbox.get_nowait()
        except Empty:
            if timeout_s >= QUIET_S:
                self._collector.quiet(time.monotonic())
            return time.monotonic()
        rest_s = self._next_turn - time.monotonic()
        if rest_s > 0:
            self._stopping.wait(rest_s)
        began = time.monotonic()
        self._mirror.ends.now = time.time()
        self._enter(item)
        for _ in range(1, MAX_BATCH):
            try:
                self._enter(self._inbox.get_nowait())
            except Empty:
                break
        return began

    def _enter(self, item: _Item) -> None:
        if isinstance(item, tuple):
            self._changed(*item)
        elif isinstance(item, Done):
            self._finished(item)
        else:
            item.view = self._view()
            item.answered.set()

    def _changed(self, plural: str, change: Change) -> None:
        self._mirror.apply(plural, change)
        if plural == "pods":
            self._pod_changed(PodUid(change.object["metadata"]["uid"]))

    def _finished(self, done: Done) -> None:
        self._conductor.done(done)
        self._aftercare.done(done)
        if done.document is not None:
            self._sources.answered("podgroups" if done.uid is None else "pods", done.document)
        if done.uid is not None and done.document is not None:
            self._pod_changed(done.uid)
        if done.kind == "carry" and done.error is None:
            self._let_go.add(done.key)

    def _try_high(self) -> None:
        """Low work on its way was nobody's victim: high work that found no room may have its cards now."""
        let_go, self._let_go = self._let_go, set()
        groups = self._mirror.groups
        all_of_it = (key for key in let_go if key in groups and not groups[key].outstanding)
        if not any(self._is_of(ShareClass.LOW, key) for key in all_of_it):
            return
        for key, verdict in self._verdicts.items():
            if verdict.reason is Reason.WAITING_FOR_CARDS and self._is_of(ShareClass.HIGH, key):
                self._mirror.tries.add(key)

    def _is_of(self, share_class: ShareClass, key: str) -> bool:
        gang = self._mirror.state.gang(key)
        return gang is not None and gang.share_class is share_class

    def _pod_changed(self, uid: PodUid) -> None:
        pod = self._mirror.pods.get(uid)
        if pod is None:
            self._conductor.pod_gone(uid)
        elif says_it_waits(pod) and pod.pod.gang is not None:
            # Written late, after its gate fell: what is known of the gang is told again, or found out.
            if self._conductor.reports.knows(pod.pod.gang):
                self._conductor.reports.look_again((pod.pod.gang,), self._conductor.clock)
            else:
                self._mirror.tries.add(pod.pod.gang)
        self._aftercare.look_at_pod(uid)

    def _drive(self) -> None:
        dirty, self._mirror.dirty = self._mirror.dirty, set()
        for key in dirty:
            self._conductor.drive(key)
            self._pending.look(key, self._mirror, self._conductor.clock)
            self._unheard.look(key, self._mirror, self._conductor.clock)
            self._aftercare.look_at_gang(key)
        if self._pending or self._unheard:
            self._enqueue()

    def _enqueue(self) -> None:
        """Gangs whose pods nobody makes: see :mod:`.inqueue`."""
        clock = self._conductor.clock
        if self._settings.nominates:
            self._pending.plan_from_templates(self._mirror, clock)
            self._pending.give_up(self._mirror, clock)
            keys = self._pending.unplanned(self._mirror, clock)
        else:
            keys = self._pending.admit(self._mirror, clock)
        for key in (*keys, *self._unheard.due(self._mirror, clock)):
            self._conductor.enqueue(key, self._mirror.groups[key])

    def _decide(self) -> None:
        touched = self._mirror.tries
        only = None if self._mirror.freed else touched
        self._mirror.freed, self._mirror.tries = False, set()
        began = time.perf_counter()
        with self._collector.held_off():
            plan, failed = decide_safely(self._mirror.snapshot(), self._settings.policy, time.time(), only)
        self._decide_s = time.perf_counter() - began
        self._conductor.count("decisions")
        # On an idle cluster the next event is decided at once; in a storm there is time for other things.
        self._next_decide = self._conductor.clock + min(2 * self._decide_s, MOST_PAUSE_S)
        if failed:
            self._conductor.count("decisions_failed")
            self._mirror.freed = True
            self._next_decide = self._conductor.clock + 1.0
        # A decision that found nothing but its own fault reviewed what it could: nobody waits for more.
        if not failed or not (plan.admissions or plan.withdrawals or plan.ready):
            self._mirror.inventory.unreviewed.clear()
        if only is None:
            plan = replace(plan, verdicts={**nothing_to_decide.without_group(self._mirror), **plan.verdicts})
        done = nothing_to_decide.verdicts(
            self._mirror, touched - plan.verdicts.keys(), self._conductor.reports
        )
        plan = replace(plan, verdicts={**plan.verdicts, **done}) if done else plan
        if not self._admitting():
            plan = without_admissions(plan)
        if only is None:
            self._verdicts = dict(plan.verdicts)
        else:
            for key in only:
                self._verdicts.pop(key, None)
            self._verdicts.update(plan.verdicts)
        # Not all that is decided can be written.
        self._verdicts.update(self._conductor.carry_out(plan, time.time()))
        self._conductor.reports.look_again(touched, self._conductor.clock)

    def _admitting(self) -> bool:
        return self._mirror.around.switches.get(STOP_KEY) != "true"

    # --- rules about time ------------------------------------------------------------------------

    def _tick(self) -> None:
        clock, now = self._conductor.clock, time.time()
        self._conductor.reports.work(self._mirror, clock, now)
        if clock >= self._next_review:
            self._next_review = clock + REVIEW_S
            waiting = any(v.reason is not Reason.ADMITTED for v in self._verdicts.values())
            # Who is suspended waits as well, though no verdict says so.
            waiting = waiting or self._mirror.state.somebody_is_away
            alone = nothing_to_decide.without_group(self._mirror)
            self._mirror.freed = self._mirror.freed or waiting or bool(alone)
            for key in self._missing.due(alone, clock):
                self._executor.look_for_group(key)
            self._conductor.count("watches_renewed", len(self._sources.list_those_behind(clock)))
        if clock < self._next_tick:
            return
        self._next_tick = clock + TICK_S
        self._mirror.unshield(clock)
        self._mirror.open_nodes(now)
        self._conductor.suspending.tick(clock)
        self._mirror.dirty.update(self._pending.since)
        self._mirror.state.forget_kept(now - self._settings.policy.replacement_hold_s)
        for uid in self._conductor.evictions.overdue(clock, self._conductor.rolling.is_leaving):
            self._conductor.press(uid)
        self._aftercare.tick(self._verdicts, now, admitting=self._admitting())

    # --- asked by others -------------------------------------------------------------------------

    def _view(self) -> View:
        return View(
            snapshot=self._mirror.snapshot(),
            verdicts=dict(self._verdicts),
            counters=dict(self._conductor.counters),
            evicted=dict(self._conductor.evictions.by_cause),
            suspended=dict(self._conductor.suspending.by_cause),
            epoch=self._leadership.epoch,
            admitting=self._admitting(),
            decide_s=self._decide_s,
        )
