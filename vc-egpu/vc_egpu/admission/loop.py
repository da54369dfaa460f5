"""One leadership: from the first list to the last write. Start here to see how things hang together.

    watches ─┐
             ├─▶ inbox ─▶ mirror ─▶ steps of plans in force ─▶ operations ─┐
    outcomes ┘                 └──▶ decide ─▶ plan ────────▶ operations ─┤
        ▲                                                                  │
        └──────────────────────────── threads ◀────────────────────────────┘

One thread owns all state. It wakes on events; there is no period but a slow one for rules about time. What it
looks at next, and why, is on the agenda (:mod:`.state.agenda`).
"""

import logging
import threading
import time
from dataclasses import replace
from typing import Final, Protocol

from vc_egpu.admission.decision import without_admissions
from vc_egpu.admission.execution import steps
from vc_egpu.admission.execution.outcomes import Done, GateWrite, OfGroup, OfPod, OrphanRemoval
from vc_egpu.admission.garbage_collector import QUIET_S
from vc_egpu.admission.intake.loading import SILENCE_S, NotSyncedError, wait_for
from vc_egpu.admission.intake.sources import Arrival
from vc_egpu.admission.kept import usual_work
from vc_egpu.admission.kept.moves import KEPT_S
from vc_egpu.admission.leader import Leadership
from vc_egpu.admission.parts import Item, Parts
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.state.agenda import Why
from vc_egpu.admission.state.mirror import LOAD_ORDER
from vc_egpu.admission.telling.reports import says_it_waits
from vc_egpu.admission.telling.verdicts import said_now, without_group
from vc_egpu.admission.view import View, ViewRequest
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import PodUid, ShareClass
from vc_egpu.kube.watch import Change
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.tables.file import Look

TICK_S: Final = 1.0
"""How often rules about time are looked at while any is pending."""
REVIEW_S: Final = 5.0
"""How often gangs that wait or are suspended are looked at although nothing happens: holds and back-offs run
out."""
ALIVE_S: Final = SILENCE_S + 30.0
STOP_KEY: Final = "stopAdmitting"

logger = logging.getLogger(__name__)


class Stopping(Protocol):
    """What ends a leadership from outside, as :class:`threading.Event` does."""

    def is_set(self) -> bool:
        """Whether it is to end."""
        ...

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds for that; whether it came."""
        ...


class Loop:
    """Leads until ``stopping`` is set or the lease is lost; then everything of it is thrown away."""

    def __init__(self, parts: Parts, settings: Settings, leadership: Leadership, stopping: Stopping) -> None:
        self._parts = parts
        self._settings = settings
        self._leadership = leadership
        self._stopping = stopping
        self._inbox = parts.inbox
        self._mirror = parts.mirror
        self._agenda = parts.mirror.agenda
        self._work = parts.conductor.work
        self._conductor = parts.conductor
        self._aftercare = parts.aftercare
        self._verdicts = parts.verdicts
        self._let_go: set[str] = set()
        """Gangs of which members' gates fell in this turn."""
        self._figures = parts.conductor.work.figures
        self._asked_at: float | None = None
        """When the first event came that asks for the next decision; monotonic seconds."""
        self._turned_at = time.monotonic()
        self._rests = threading.Event()
        self._next_review = 0.0
        self._next_tick = 0.0

    def run(self) -> None:
        """Block until the leadership is over. Raises :class:`NotSyncedError`."""
        self._parts.collector.begin()
        try:
            self._parts.sources.start()
            self.take_over()
            self._parts.collector.loaded(time.monotonic())
            logger.info("epoch %d: %d pods, %d gangs", self._leadership.epoch, *self._sizes())
            while not self._over():
                self.turn()
        finally:
            self._rests.set()
            self._parts.stop()

    def view(self, timeout_s: float = 2.0) -> View | None:
        """A moment of the cluster, for other threads; None if the loop does not answer in time."""
        request = ViewRequest()
        self._inbox.put(request)
        request.answered.wait(timeout_s)
        return request.view

    def rests(self, timeout_s: float) -> bool:
        """Wait until the loop has nothing to do but to wait itself; whether that came in time.

        For other threads with much to compute: one interpreter runs one thread at a time.
        """
        return self._rests.wait(timeout_s)

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

    def take_over(self) -> None:
        """All first lists, in an order in which each finds what it names; then adopt the plans there are."""
        wait_for(self._parts.sources, self._over, self._heard)
        if self._over():
            return
        arrived: list[Arrival] = []
        while not self._inbox.is_empty():
            item = self._inbox.get()
            if isinstance(item, tuple):
                arrived.append(item)
        self._read_tables(first=True)
        self._mirror.ends.now = time.time()
        kept = self._parts.keeper.read() if self._mirror.usual.learns else None
        moved = self._parts.moves.read() if self._settings.policy.moving.on else None
        for plural, change in sorted(arrived, key=lambda item: LOAD_ORDER.index(item[0])):
            self._changed(plural, change)
            self._heard(time.monotonic())
        if kept is not None:
            self._mirror.usual.begin(kept)
        self._mirror.settle_all()
        if moved:
            self._mirror.state.remember_moves(moved)
        self._mirror.ends.first_lists = False
        adopted = {g.plan.plan_id for g in self._mirror.groups.values() if g.plan is not None}
        newest = max((plans.epoch_of(plan_id) for plan_id in adopted), default=-1)
        if newest > self._leadership.epoch:
            text = f"a plan of epoch {newest} stands, this lease has {self._leadership.epoch}"
            raise NotSyncedError(text, newest)
        dropped = self._conductor.plans.dropped
        self._conductor.take_over(steps.Authority(self._leadership.epoch, adopted, dropped))
        self._agenda.try_all(Why.FIRST_LISTS)

    # --- the loop --------------------------------------------------------------------------------

    def turn(self, wait_s: float | None = None) -> None:
        """Wait for something to happen, take in all that happened, do what it asks for.

        ``wait_s``: wait at most so long. None: until the next rule about time is due.
        """
        self._turned_at = time.monotonic()
        self._rests.set()
        began = self._take_in(self._wait_s() if wait_s is None else wait_s)
        if self._over():
            return
        self._work.clock = self._parts.clock.now()
        self._work.wake_due()
        if self._agenda.wants_decision and self._asked_at is None:
            self._asked_at = began
        self._drive()
        self._try_those_that_take()
        self._work.reports.flag_ill_cards(self._mirror)
        if self._agenda.wants_decision and self._work.clock >= self._parts.decisions.next_at:
            self._decide()
            self._drive()
        self._tick()
        if self._parts.log is not None:
            self._parts.log.turn(self._mirror.snapshot, time.monotonic(), time.time())
        self._inbox.turned(began, time.monotonic())

    def _wait_s(self) -> float:
        nexts = [self._next_review, self._work.due(), self._work.reports.next_at()]
        if (
            self._parts.pending.since
            or self._aftercare
            or self._work.evictions.begun
            or self._conductor.suspending
            or self._conductor.resizes
            or self._mirror.shielded
            or self._mirror.refusals
        ):
            nexts.append(self._next_tick)
        if self._agenda.wants_decision:
            nexts.append(self._parts.decisions.next_at)
        next_at = min(at for at in nexts if at is not None)
        return min(max(0.0, next_at - self._work.clock), REVIEW_S)

    def _take_in(self, timeout_s: float) -> float:
        """Enter what happened, if something does in time; the (monotonic) instant at which that began."""
        began = None
        for item in self._inbox.take(timeout_s, self._stopping.wait):
            if began is None:
                self._rests.clear()
                began = time.monotonic()
                self._mirror.ends.now = time.time()
            self._enter(item)
        self._rests.clear()
        if began is None:
            began = time.monotonic()
            if timeout_s >= QUIET_S:
                self._parts.collector.quiet(began)
                began = time.monotonic()
        return began

    def _enter(self, item: Item) -> None:
        if isinstance(item, tuple):
            self._changed(*item)
        elif isinstance(item, ViewRequest):
            item.view = self._view()
            item.answered.set()
        else:
            self._finished(item)

    def _changed(self, plural: str, change: Change) -> None:
        self._mirror.apply(plural, change)
        if plural == "pods":
            self._pod_changed(PodUid(change.object["metadata"]["uid"]))

    def _finished(self, done: Done) -> None:
        self._conductor.done(done)
        if isinstance(done, OrphanRemoval):
            self._aftercare.done(done)
        if isinstance(done, OfGroup) and done.document is not None:
            self._parts.sources.answered("podgroups", done.document)
        if isinstance(done, OfPod) and done.document is not None:
            self._parts.sources.answered("pods", done.document)
            self._pod_changed(done.uid)
        if isinstance(done, GateWrite) and done.error is None:
            self._let_go.add(done.gang)

    def _try_those_that_take(self) -> None:
        """See :meth:`.state.agenda.Agenda.victims_run`."""
        let_go, self._let_go = self._let_go, set()
        groups = self._mirror.groups
        as_a_whole = [key for key in let_go if key in groups and not groups[key].outstanding]
        for key in as_a_whole:
            self._figures.let_go(key, self._mirror.members.get(key, {}).values(), time.monotonic())
        began = {self._class_of(key) for key in as_a_whole}
        if not began & {ShareClass.LOW, ShareClass.UNSET}:
            return
        verdicts = self._verdicts
        self._agenda.victims_run(
            key
            for key in verdicts.waiting_for_room()
            if (ShareClass.LOW in began and self._class_of(key) is ShareClass.HIGH)
            or verdicts.would_take_back(key)
        )

    def _class_of(self, key: str) -> ShareClass | None:
        gang = self._mirror.state.gang(key)
        return gang.share_class if gang is not None else None

    def _pod_changed(self, uid: PodUid) -> None:
        pod = self._mirror.pods.get(uid)
        if pod is not None and pod.bound and pod.pod.gang is not None:
            self._figures.bound(pod.pod.gang, uid, time.monotonic())
        if pod is None:
            self._conductor.pod_gone(uid)
            self._figures.gone(uid)
        elif says_it_waits(pod) and pod.pod.gang is not None:
            # Written late, after its gate fell: what is known of the gang is told again, or found out.
            if self._work.reports.verdict(pod.pod.gang) is not None:
                self._work.reports.look_again((pod.pod.gang,), self._work.clock)
            else:
                self._agenda.try_again(pod.pod.gang, Why.SAYS_IT_WAITS)
        self._aftercare.look_at_pod(uid)

    def _drive(self) -> None:
        clock, pending, unheard = self._work.clock, self._parts.pending, self._parts.unheard
        for key in self._agenda.take_looks():
            self._conductor.drive(key)
            pending.look(key, self._mirror, clock)
            unheard.look(key, self._mirror, clock)
            self._aftercare.look_at_gang(key)
        if pending or unheard:
            self._enqueue()

    def _enqueue(self) -> None:
        """Gangs whose pods no controller makes yet: see :mod:`.inqueue`."""
        clock, pending = self._work.clock, self._parts.pending
        if self._settings.nominates:
            pending.plan_from_templates(self._mirror, clock)
            pending.give_up(self._mirror, clock)
            keys = pending.unplanned(self._mirror, clock)
        else:
            keys = pending.admit(self._mirror, clock)
        for key in (*keys, *self._parts.unheard.due(self._mirror, clock)):
            self._conductor.plans.enqueue(key, self._mirror.groups[key])

    def _decide(self) -> None:
        self._mirror.inventory.settle_network()
        question, clock = self._agenda.take_question(), self._work.clock
        self._parts.decisions.learned(self._mirror.usual.mix)
        self._parts.decisions.cannot_open(self._parts.taints.stuck(clock))
        plan, failed = self._parts.decisions.make(self._mirror.snapshot, question.only, clock)
        logger.debug("a decision was made about %s", question)
        self._work.count("decisions")
        if failed:
            self._work.count("decisions_failed")
            self._agenda.try_all(Why.FAULT)
        # A decision that found nothing but its own fault reviewed what it could: no plan waits for more.
        if not failed or not (plan.admissions or plan.withdrawals or plan.ready):
            self._agenda.reviewed()
        if not self._admitting():
            plan = without_admissions(plan)
        self._conductor.plans.asked_at, self._asked_at = self._asked_at, None
        verdicts = said_now(plan.verdicts, question, self._mirror, self._work.reports)
        refused = self._conductor.carry_out(replace(plan, verdicts=verdicts), time.time())
        self._parts.taints.carry_out(plan, time.time(), clock)
        # Not all that is decided can be written.
        self._verdicts.enter(question, {**verdicts, **refused})
        self._work.reports.look_again(question.tried, clock)

    def _read_tables(self, *, first: bool = False) -> None:
        """The operator's tables, where they have changed. ``first``: no pod is known yet."""
        needs, profiles = self._parts.needs, self._parts.profiles
        if needs.look() is Look.NEWS:
            self._mirror.around.take_environments(needs.table)
        if profiles.look() is Look.NEWS or first:
            self._parts.decisions.placed_by(profiles.table)
            self._learn(first=first)
            self._mirror.take_profiles(self._parts.decisions.policy.wants)
        self._figures.tables(needs_broken=bool(needs.problem), placement_broken=bool(profiles.problem))

    def _learn(self, *, first: bool) -> None:
        """Begin to learn what a new table of placement looks at, from where an earlier leader was."""
        mirror, policy = self._mirror, self._parts.decisions.policy
        asked = policy.wants
        if (asked.earlier or asked.use) and not mirror.around.runs.wanted:
            mirror.around.runs.begin(self._parts.runs.read() or {})
        learned, mirror.usual.learns = mirror.usual.learns, usual_work.learns(policy)
        if first or learned or not mirror.usual.learns:
            return
        for decoded in mirror.pods.values():
            if decoded.managed:
                mirror.usual.change(None, decoded.pod, mirror.ends.now)
        kept = self._parts.keeper.read()
        if kept is not None:
            mirror.usual.begin(kept)

    def _admitting(self) -> bool:
        return self._mirror.around.switches.get(STOP_KEY) != "true"

    # --- rules about time ------------------------------------------------------------------------

    def _tick(self) -> None:
        clock, now = self._work.clock, time.time()
        self._work.reports.work(self._mirror, clock, now)
        if clock >= self._next_review:
            self._next_review = clock + REVIEW_S
            self._review(clock)
        if clock < self._next_tick:
            return
        self._next_tick = clock + TICK_S
        self._mirror.unshield(clock)
        self._mirror.try_refused_again(clock)
        self._mirror.open_nodes(now)
        self._conductor.suspending.tick(clock)
        self._conductor.resizes.tick()
        self._agenda.look_at(*self._parts.pending.since)
        self._mirror.state.forget_kept(now - self._settings.policy.replacement_hold_s)
        for uid in self._work.evictions.overdue(clock, self._conductor.is_leaving):
            self._conductor.victims.press(uid)
        self._keep(clock, now)
        self._aftercare.tick(self._verdicts.now, now, admitting=self._admitting())

    def _keep(self, clock: float, now: float) -> None:
        """For the next leader."""
        if self._mirror.usual.learns:
            self._parts.keeper.tick(self._mirror.usual.experience, clock)
        if self._mirror.around.runs.wanted:
            self._parts.runs.tick(self._mirror.around.runs.habits, clock)
        if self._settings.policy.moving.on:
            self._parts.moves.tick(self._mirror.state.moves_since(now - KEPT_S), clock)

    def _review(self, clock: float) -> None:
        alone = without_group(self._mirror)
        self._read_tables()
        # A suspended gang waits as well, though no verdict says so.
        moving, state = self._settings.policy.moving, self._mirror.state
        moves = moving.for_fragments or moving.for_empty or state.somebody_moves or state.somebody_is_emptied
        if self._verdicts.is_any_waiting() or state.somebody_is_away or alone or moves:
            self._agenda.try_all(Why.REVIEW)
        for key in self._parts.missing.due(alone, clock):
            self._parts.executor.look_for_group(key)
        self._work.count("watches_renewed", len(self._parts.sources.list_those_behind(clock)))

    # --- asked by others -------------------------------------------------------------------------

    def _view(self) -> View:
        snapshot = self._mirror.snapshot()
        uses = index_of(snapshot).uses.total
        return View(
            snapshot=snapshot,
            used={name: dict(amounts) for name, amounts in uses.items()},
            behind_s=self._parts.sources.behind_s(),
            hypernodes_wrong=len(self._mirror.inventory.network.problems),
            figures=self._figures,
            policy=self._parts.decisions.policy,
            table=self._mirror.table,
            environments=self._mirror.around.environments,
            verdicts=dict(self._verdicts.now),
            counters=dict(self._work.counters),
            refused=dict(self._work.refused),
            let_go=dict(self._work.let_go),
            by_kubelets=dict(self._work.by_kubelets),
            epoch=self._leadership.epoch,
            admitting=self._admitting(),
        )
