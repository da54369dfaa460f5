"""A run: gangs come, are decided, hold their cards and end, on a clock that only these events move.

Every decision is :func:`vc_egpu.core.decide.decide` with the live placement policies. What the executor, the
controllers and the kubelets would do happens at once (:mod:`.world`).
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from vc_egpu.core.books.capacity import need_of, places_up_to
from vc_egpu.core.books.index import Index
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import Gang, NodeName, Pod, PodPhase, PodShape, Queue, plan_key
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import FULLEST, Mix, Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.placing.learning import Experience, ended, kind_of, placed, seen
from vc_egpu.core.placing.place import place
from vc_egpu.core.profiles.table import NO_RULES, Table
from vc_egpu.core.trial.trial import Trial
from vc_egpu.sim.engine import Event
from vc_egpu.sim.load import Load, Work
from vc_egpu.sim.world import World

_SETTLE_ROUNDS: Final = 8
_OLDEST: Final = 4


@dataclass(frozen=True, slots=True)
class Terms:
    """How a run goes."""

    binpack: str = FULLEST
    waits: bool = True
    """False: a gang that finds no place when it comes is dropped for ever."""
    round_s: float = 0.0
    """Gangs that wait are tried again once in so long at most; 0: whenever cards come free."""
    only_with_room: bool = False
    """Gangs that wait are not tried while no node has room for one of their pods. It is for long lines of
    gangs that cannot make room for themselves. The reason why they wait is that of their last try."""
    mix: Mix | None = None
    """What usual work is, known beforehand; None: it is learned from the pods that come."""
    preemption: bool = True
    profiles: Table = NO_RULES
    """The operator's rules of placement. Earlier runs of a Job are not known here."""
    until_s: float | None = None
    """The run ends then; None: with its last event."""


@dataclass(slots=True)
class Totals:
    """Sums since the begin of the run."""

    arrived_milli: int = 0
    arrived: int = 0
    dropped: int = 0
    dropped_milli: int = 0
    held_milli: int = 0
    """Now, by gangs that came in this run."""
    finished: int = 0
    finished_gpu_s: float = 0.0
    """Cards times seconds of gangs that ran to their end."""
    evictions: dict[str, int] = field(default_factory=dict)
    """Pods evicted, by cause."""


class Replay:
    """One policy on one load."""

    def __init__(self, load: Load, terms: Terms, *, base: Policy | None = None) -> None:
        policy = replace(base or Policy(unnamed_model_unlimited=True), binpack=terms.binpack)
        policy = replace(policy, preemption=policy.preemption and terms.preemption, profiles=terms.profiles)
        models = {card.model: card.memory_mib for node in load.nodes for card in node.cards}
        models.update(load.begin.models if load.begin is not None else {})
        self.world = World(replace(policy, mix=terms.mix or Mix()), models)
        self.world.scheduler = self._bind
        self.totals = Totals()
        self.waiting: dict[str, tuple[Work, Reason]] = {}
        """By key, with the reason of the last decision."""
        self.waiting_milli = 0
        """What all that wait ask for, in thousandths of a card."""
        self.waits: list[tuple[float, int, float]] = []
        """(arrival, thousandths of a card, seconds waited) of each gang that was admitted."""
        self.experience = Experience()
        self._load, self._terms = load, terms
        self._alike: dict[tuple[object, ...], dict[str, None]] = {}
        self._works: dict[str, Work] = {}
        self._running: dict[str, tuple[float, Event | None]] = {}
        self._came: dict[str, float] = {}
        self._round: Event | None = None
        self._watch: Callable[[Replay], None] | None = None
        self._enter(load)

    # --- the run ---------------------------------------------------------------------------------

    def run(self, watch: Callable[["Replay"], None] | None = None) -> None:
        """From begin to end; ``watch`` is called after each arrival and each end."""
        engine = self.world.engine

        def come(number: int) -> None:
            works = self._load.works
            if number + 1 < len(works):
                later = works[number + 1]
                engine.at(max(engine.now, later.arrival_s), lambda: come(number + 1))
            self._come(works[number])
            if watch is not None:
                watch(self)

        self._watch = watch
        if self._load.works:
            engine.at(max(0.0, self._load.works[0].arrival_s), lambda: come(0))
        if self.waiting:
            self._retry()
        engine.run(self._terms.until_s)

    @property
    def index(self) -> Index:
        """Sums over the cluster as it stands."""
        return index_of(self.world.snapshot())

    def _enter(self, load: Load) -> None:
        state = self.world.state
        if load.begin is not None:
            for node in load.begin.nodes.values():
                state.put_node(node)
            for queue in load.begin.queues.values():
                state.put_queue(queue)
            for gang in load.begin.gangs.values():
                state.put_gang(gang)
            for pod in load.begin.pods.values():
                state.put_pod(pod)
            self._take_over(load.begin.gangs, load)
        known = self.world.snapshot().queues
        for queue in (*load.queues, *(Queue(work.queue) for work in load.works)):
            if queue.name not in known:
                state.put_queue(queue)
                known = self.world.snapshot().queues
        for node in load.nodes:
            state.put_node(node)

    def _take_over(self, keys: Iterable[str], load: Load) -> None:
        """Gangs of the snapshot. Those of which nobody knows how long they would run never end."""
        index = self.index
        for key in sorted(keys):
            view = index.view(key)
            gang = view.gang
            if view.waiting:
                tasks = tuple((member.key, 1, member.shape) for member in view.waiting)
                milli = sum(_milli(member.shape) for member in view.waiting)
                lifetime_s = load.lifetimes.get(key)
                work = Work(key, tasks, milli, gang.queue, gang.share_class, lifetime_s=lifetime_s)
                self._works[key] = work
                self._came[key] = self.world.now
                self._wait(work)
            elif key in load.ends:
                self._works[key] = Work(key, (), 0, gang.queue, gang.share_class)
                end = self.world.engine.at(max(self.world.now, load.ends[key]), _end_of(self, key))
                self._running[key] = (self.world.now, end)

    def _come(self, work: Work) -> None:
        now = self.world.now
        self._works[work.key], self._came[work.key] = work, now
        self.totals.arrived += 1
        self.totals.arrived_milli += work.gpu_milli
        self._learn(seen(self.experience, work.shapes))
        members = sum(count for _, count, _ in work.tasks)
        least = members if work.least is None else min(work.least, members)
        traits = self._terms.profiles.wants.traits(work.owner, work.labels.items())
        gang = Gang(
            work.key, work.key, work.queue, work.share_class, 0, least, now, traits=traits, single=work.single
        )
        self.world.submit(gang, work.tasks)
        self._wait(work)
        self._decide([work.key])
        if not self._terms.waits and work.key in self.waiting:
            self._drop(work)

    def _drop(self, work: Work) -> None:
        self.totals.dropped += 1
        self.totals.dropped_milli += work.gpu_milli
        self._wait_no_more(work.key)
        self._forget(work.key)

    def _end(self, key: str) -> None:
        began, _ = self._running.pop(key)
        work, now = self._works[key], self.world.now
        self.totals.finished += 1
        self.totals.held_milli -= work.gpu_milli
        self.totals.finished_gpu_s += work.gpu_milli / 1000 * (now - began)
        experience = self.experience
        for shape in work.shapes:
            experience = ended(experience, shape, now - began)
        self._learn(experience)
        self._forget(key)
        self._later()
        if self._watch is not None:
            self._watch(self)

    def _forget(self, key: str) -> None:
        self.world.finish(key)
        self._works.pop(key)
        self._came.pop(key, None)

    # --- decisions -------------------------------------------------------------------------------

    def _later(self) -> None:
        """Cards came free: those that wait are tried, now or in the next round."""
        if not self.waiting:
            return
        if not self._terms.round_s:
            self._retry()
        elif self._round is None:
            self._round = self.world.engine.after(self._terms.round_s, self._in_round)

    def _in_round(self) -> None:
        self._round = None
        self._retry()

    def _retry(self) -> None:
        keys = self._next_in_line()
        while keys and self._decide(keys):
            keys = self._next_in_line()

    def _next_in_line(self) -> list[str]:
        """The oldest gangs of each kind that wait. Where these find no place, younger ones find none."""
        lines = list(self._alike.values())
        if self._terms.only_with_room:
            index = self.index
            lines = [line for line in lines if self._has_room(index, self._works[next(iter(line))])]
        return [key for line in lines for key in islice(line, _OLDEST)]

    def _has_room(self, index: Index, work: Work) -> bool:
        """Whether each kind of its pods fits somewhere."""
        shapes = {id(shape): shape for _, _, shape in work.tasks}
        for shape in shapes.values():
            need = need_of(index.ledger, shape, work.share_class)
            if not places_up_to(index.ledger, need, index.mask(shape), 1):
                return False
        return True

    def _wait(self, work: Work) -> None:
        self.waiting[work.key] = (work, Reason.WAITING_FOR_CARDS)
        self.waiting_milli += work.gpu_milli
        self._alike.setdefault(_kind(work), {})[work.key] = None

    def _wait_no_more(self, key: str) -> Work:
        work, _ = self.waiting.pop(key)
        self.waiting_milli -= work.gpu_milli
        alike = self._alike[_kind(work)]
        del alike[key]
        if not alike:
            del self._alike[_kind(work)]
        return work

    def _decide(self, keys: Collection[str]) -> bool:
        """Decide and carry out, again where others have to leave; whether any was admitted."""
        admitted = False
        for _ in range(_SETTLE_ROUNDS):
            plan = self.world.decide(keys)
            self._count(plan)
            if not (plan.admissions or plan.ready or plan.withdrawals or plan.evictions or plan.resumes):
                break
            admitted = admitted or bool(plan.admissions)
            self.world.apply(plan)
            self._note(admission.gang for admission in plan.admissions)
            self._note(readiness.gang for readiness in plan.ready)
            if not self.world.leave() and not plan.ready:
                break
            keys = self._next_in_line()
        return admitted

    def _count(self, plan: Plan) -> None:
        for key, verdict in plan.verdicts.items():
            if key in self.waiting:
                self.waiting[key] = (self.waiting[key][0], verdict.reason)
        evictions = [*plan.evictions, *(e for admission in plan.admissions for e in admission.evictions)]
        for eviction in evictions:
            cause = eviction.cause.name.lower()
            self.totals.evictions[cause] = self.totals.evictions.get(cause, 0) + len(eviction.pods)
            self._evicted(eviction.gang, whole=eviction.whole)

    def _evicted(self, key: str, *, whole: bool) -> None:
        running = self._running.pop(key, None) if whole else None
        if running is None:
            return
        if running[1] is not None:
            running[1].cancel()  # what it did is lost: it begins from its begin
        self.totals.held_milli -= self._works[key].gpu_milli
        self._wait(self._works[key])
        self._came[key] = self.world.now

    def _note(self, keys: Iterable[str]) -> None:
        """These may run now, all of their members."""
        for key in sorted(keys):
            waiting = self.waiting.get(key)
            if waiting is None or any(pod.phase is not PodPhase.PLACED for pod in self.world.pods_of(key)):
                continue
            work, now = self._wait_no_more(key), self.world.now
            end = None
            if work.lifetime_s is not None:
                end = self.world.engine.after(work.lifetime_s, _end_of(self, key))
            self._running[key] = (now, end)
            self.totals.held_milli += work.gpu_milli
            self.waits.append((work.arrival_s, work.gpu_milli, now - self._came[key]))
            self._learn(placed(self.experience, work.shapes))

    def _learn(self, experience: Experience) -> None:
        self.experience = experience
        mix = experience.mix
        if self._terms.mix is None and mix is not self.world.policy.mix:
            self.world.policy = replace(self.world.policy, mix=mix)

    def _bind(self, index: Index, pod: Pod) -> NodeName | None:
        """Where the policy would put a pod without cards: the scheduler of this cluster has the same."""
        trial = Trial(index, self.world.policy, self.world.now)
        view = index.view(str(pod.gang))
        planned = [entry.member for entry in view.planned if entry.member is not None]
        members = [member for member in (*planned, *view.waiting) if member.key == plan_key(pod)]
        try:
            seated = place(trial, view, members) if members else None
            return trial.ledger.names[seated[0].row] if seated else None
        finally:
            trial.close()


def _kind(work: Work) -> tuple[object, ...]:
    """Equal for gangs that any decision treats alike, their age aside."""
    tasks = ((kind_of(shape), shape.requests.memory_bytes, members) for _, members, shape in work.tasks)
    return work.queue, work.share_class, work.owner, *sorted(work.labels.items()), *tasks


def _milli(shape: PodShape) -> int:
    return 1000 * sum(ask.cards for ask in shape.asks)


def _end_of(replay: Replay, key: str) -> Callable[[], None]:
    return lambda: replay._end(key)
