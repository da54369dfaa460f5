"""A cluster on paper that carries plans out: what the executor, controllers and kubelets would do, at once.

Used by the scenario and property tests and by trace replay. It decides nothing: :meth:`World.decide` asks
the same core as the admission controller does, and every step is judged by the same invariants.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from vc_egpu.core.books.capacity import first_node
from vc_egpu.core.books.index import Index
from vc_egpu.core.books.state import ClusterState, index_of
from vc_egpu.core.check import invariants
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    Gang,
    Instant,
    Node,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Snapshot,
    SuspensionState,
    plan_key,
)
from vc_egpu.core.model.gangs import is_made_otherwise, option_of, partition_of
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.resources import PARTS_PREFIX
from vc_egpu.core.room.lateness import once_more
from vc_egpu.core.trial.silent_nodes import is_on_a_silent_node
from vc_egpu.sim.engine import Engine

Tasks = tuple[tuple[str, int, PodShape], ...]
Scheduler = Callable[[Index, Pod], NodeName | None]


class ImpossibleWorldError(AssertionError):
    """A step left the cluster in a state that the invariants forbid; the text lists what is wrong."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """What a gang's controller does when its pods are gone."""

    tasks: Tasks
    recreate: bool


class World:
    """Cluster state, a clock that only :meth:`tick` moves, and controllers that answer at once."""

    def __init__(self, policy: Policy | None = None, models: dict[str, int] | None = None) -> None:
        self.policy = policy or Policy()
        self.engine = Engine()
        self.state = ClusterState(models)
        self.lowered: set[str] = set()
        """Queues whose cap was lowered: they may stand above it."""
        self.suspendable: set[str] = set()
        """Gangs whose pods the node agents could suspend."""
        self.broken: set[str] = set()
        """Gangs whose pods cannot be brought back once they are suspended."""
        self.scheduler: Scheduler | None = None
        """Binds pods without cards; None: the first node by name that takes it gets it."""
        self._suspends = False
        """Whether the agents could ever suspend anything."""
        self._orders = 0
        self._owners: dict[str, _Owner] = {}
        self._slots: dict[PodUid, tuple[str, int]] = {}
        """(task, index) that a pod stands for, also where its gang's members have no names of their own."""
        self._revision = 0
        self._plans = 0
        self._births = 0

    @property
    def now(self) -> Instant:
        """Seconds since the world began."""
        return self.engine.now

    # --- what people and machines do -------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """Add or change a node."""
        self.state.put_node(node)

    def remove_node(self, name: NodeName) -> None:
        """The node is deleted, and the pods on it with it; controllers make new ones."""
        for pod in list(self.snapshot().pods.values()):
            if pod.node == name:
                self._remove(pod)
        self.state.remove_node(name)

    def put_queue(self, queue: Queue) -> None:
        """Add or change a queue."""
        before = self.snapshot().queues.get(queue.name)
        if before is not None and before.capability != queue.capability:
            self.lowered.add(queue.name)
        self.state.put_queue(queue)

    def submit(
        self, gang: Gang, tasks: Tasks, *, recreate: bool = True, other_gates: tuple[str, ...] = ()
    ) -> None:
        """A gang and its gated pods. ``recreate``: members that were evicted come back, gated."""
        self._owners[gang.key] = _Owner(tasks, recreate)
        self.state.put_gang(gang)
        if gang.template:
            return
        for task, replicas, shape in tasks:
            for index in range(replicas):
                self._bear(gang, task, index, shape, other_gates)

    def grow(self, key: str, members: int) -> None:
        """The controller makes more members like the first."""
        gang, pods = self.gang(key), self.pods_of(key)
        slots = [self._slots[pod.uid] for pod in pods]
        task = slots[0][0]
        first = max(index for _, index in slots) + 1  # no two members under one name
        for index in range(first, first + members):
            self._bear(gang, task, index, pods[0].shape)

    def put_pod(self, pod: Pod) -> None:
        """Add or change a pod directly."""
        self.state.put_pod(pod)

    def finish(self, key: str) -> None:
        """All of the gang's pods succeed, and its controller removes the gang."""
        for pod in self.pods_of(key):
            self.state.remove_pod(pod.uid)
        self.state.remove_gang(key)
        self._owners.pop(key, None)

    def fail(self, pod: Pod, *, recreate: bool = True) -> None:
        """The pod fails; its controller removes it and makes a replacement."""
        self.state.put_pod(replace(pod, phase=PodPhase.FAILED, finished=self.now))
        if recreate:
            self.state.remove_pod(pod.uid)
            self._reborn(pod)

    def tick(self, seconds: float) -> None:
        """Time passes."""
        self.engine.advance(seconds)

    def terminate(self, pod: Pod) -> None:
        """Somebody deletes the pod; it is still there until :meth:`leave`."""
        self.state.put_pod(replace(pod, phase=PodPhase.TERMINATING))

    def agents(self) -> None:
        """The node agents carry out what stands on pods: orders, and orders that were taken back."""
        self._suspends = self._suspends or bool(self.suspendable)
        if not self._suspends and not self.state.somebody_is_away:
            return
        snapshot = self.snapshot()
        for pod in list(snapshot.pods.values()):
            state = pod.suspension
            calm = state is SuspensionState.RUNNING and not pod.suspend_ordered
            if calm and pod.suspendable == (pod.gang in self.suspendable):
                continue  # most of them: no agent has anything to do
            if pod.phase is not PodPhase.PLACED or is_on_a_silent_node(pod, snapshot.nodes):
                continue
            if pod.suspend_ordered and state is not SuspensionState.FAILED:
                state = SuspensionState.SUSPENDED
            elif not pod.suspend_ordered and state in {SuspensionState.SUSPENDED, SuspensionState.RESUMING}:
                state = SuspensionState.FAILED if pod.gang in self.broken else SuspensionState.RUNNING
            able = pod.gang in self.suspendable
            if (state, able) != (pod.suspension, pod.suspendable):
                self.state.put_pod(replace(pod, suspension=state, suspendable=able))

    def leave(self) -> list[Pod]:
        """All pods that terminate are gone now, all orders are carried out; the controllers make new pods,
        gated. On silent nodes nothing of this happens."""
        self.agents()
        snapshot = self.snapshot()
        leaving = [snapshot.pods[uid] for uid in index_of(snapshot).notable.terminating]
        gone = [pod for pod in leaving if not is_on_a_silent_node(pod, snapshot.nodes)]
        for pod in gone:
            self._remove(pod)
        return gone

    # --- what the admission controller does ------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """This moment."""
        self._revision += 1
        return self.state.snapshot(self._revision)

    def decide(self, only: Collection[str] | None = None) -> Plan:
        """What the core says now; changes nothing."""
        return decide(self.snapshot(), self.policy, self.now, only)

    def apply(self, plan: Plan) -> None:
        """Carry a plan out: write it, lift the gates of what is ready, delete victims."""
        for withdrawal in plan.withdrawals:
            gang = self.gang(withdrawal.gang)
            if gang.plan is not None and gang.plan.plan_id == withdrawal.plan_id:
                self.state.put_gang(replace(gang, plan=None))
        for readiness in plan.ready:
            gang = self.gang(readiness.gang)
            if gang.plan is not None:
                ready = replace(gang.plan, victims=frozenset(), suspends=frozenset())
                self.state.put_gang(replace(gang, plan=ready))
        for resume in plan.resumes:
            for uid in sorted(resume.pods):
                self._order(uid, ordered=False)
        for eviction in plan.evictions:
            for uid in sorted(eviction.pods):
                self.terminate(self.snapshot().pods[uid])
        for key, choice in plan.choices.items():
            self.state.put_gang(replace(self.gang(key), choice=choice))
            self._remake(key)
        self.write_plans(plan)
        self.remember(plan)
        for wish in plan.suspensions:
            self._orders += 1
            for uid in sorted(wish.pods):
                self._order(uid, ordered=True)
        self.carry_on()

    def _remake(self, key: str) -> None:
        """Pods that wait and were made before the choice of their gang are made again."""
        choice = self.gang(key).choice
        for pod in self.pods_of(key):
            task = self._slots[pod.uid][0]
            if pod.phase is PodPhase.GATED and is_made_otherwise(pod.shape, choice, task):
                self.state.remove_pod(pod.uid)
                self._reborn(pod)

    def remember(self, plan: Plan) -> None:
        """Gangs with claims know of them from now on, and nodes whether they take work."""
        for names, emptied in ((plan.empties, self.now), (plan.opens, None)):
            for node in [node for name in names if (node := self.snapshot().nodes.get(name))]:
                self.put_node(replace(node, emptied=emptied))
        for key, move in plan.moves.items():
            self.state.put_gang(replace(self.gang(key), move=move))
        for key, reservation in plan.reservations.items():
            self.state.put_gang(replace(self.gang(key), reservation=reservation))

    def carry_on(self) -> None:
        """What stands on gangs is done: gates of ready plans fall, victims of waiting ones are deleted."""
        snapshot = self.snapshot()
        for key in sorted(index_of(snapshot).planned.bookings):
            gang = snapshot.gangs[key]
            if gang.plan is None:
                continue
            if not gang.plan.victims:
                self._ungate(gang.key)
            self._orders += bool(gang.plan.suspends)
            self._note_victims(gang.plan)
            for uid in sorted(gang.plan.victims):
                victim = snapshot.pods.get(uid)
                if victim is None or victim.phase is not PodPhase.PLACED:
                    continue
                if uid in gang.plan.suspends:
                    relieves = gang.plan.relieves
                    owner = snapshot.gangs.get(str(victim.gang))
                    frees = owner is not None and self.state.is_below(owner.queue, relieves)
                    self._order(uid, ordered=True, off_quota=frees)
                else:
                    self.terminate(victim)

    def _note_victims(self, plan: PlanInForce) -> None:
        """Gangs that go whole remember when."""
        pods = self.snapshot().pods
        going = [pods[uid] for uid in plan.victims - plan.suspends if uid in pods]
        for key in sorted({str(pod.gang) for pod in going if pod.phase is PodPhase.PLACED}):
            gang, there = self.gang(key), [pod for pod in self.pods_of(key) if pod.phase is PodPhase.PLACED]
            if all(pod.uid in plan.victims for pod in there):
                self.state.put_gang(replace(gang, victim_at=once_more(gang.victim_at, self.now)))

    def carry_on_with(self, key: str, members: Collection[str]) -> None:
        """The gates of some members of a ready plan fall; then the executor is killed. The next one takes
        those for carried out, whatever becomes of them."""
        gang = self.gang(key)
        plan = gang.plan
        if plan is None:
            return
        for pod in self.pods_of(key):
            if plan_key(pod) in members:
                self._let_go(pod, plan)
        left = {name: place for name, place in plan.members.items() if name not in members}
        self.state.put_gang(replace(gang, plan=replace(plan, members=left) if left else None))

    def write_plans(self, plan: Plan) -> None:
        """The first write of every admission: its plan on the gang. An executor may be killed after it."""
        for admission in plan.admissions:
            self._plans += 1
            evicted = frozenset(uid for eviction in admission.evictions for uid in eviction.pods)
            suspends = frozenset(uid for entry in admission.suspensions for uid in entry.pods)
            written = PlanInForce(
                plan_id=f"1-{self._plans}",
                members=dict(admission.members),
                victims=evicted | suspends,
                created=self.now,
                suspends=suspends,
                cause=admission.cause,
                accounts=admission.accounts,
                relieves=admission.relieves,
                rule=admission.rule,
            )
            gang = self.gang(admission.gang)
            self.state.put_gang(replace(gang, plan=written, choice=admission.choice or gang.choice))

    def settle(self, rounds: int = 10) -> Plan:
        """Decide, apply and let victims leave until nothing changes any more; the last plan."""
        plan = self.decide()
        for _ in range(rounds):
            standing = any(gang.plan is not None for gang in self.snapshot().gangs.values())
            suspension = plan.suspensions or plan.resumes or plan.evictions or plan.moves
            nodes = plan.empties or plan.opens
            given_up = any(reservation is None for reservation in plan.reservations.values())
            if not (
                plan.admissions
                or plan.withdrawals
                or plan.ready
                or plan.choices
                or suspension
                or nodes
                or given_up
                or standing
            ):
                self.remember(plan)
                break
            self.apply(plan)
            self.leave()
            plan = self.decide()
        return plan

    def check(self, before: Snapshot | None = None) -> None:
        """Judge the state by the invariants."""
        violations = invariants.check(
            self.snapshot(),
            before=before,
            lowered=frozenset(self.lowered),
            unnamed_unlimited=self.policy.unnamed_model_unlimited,
        )
        if violations:
            raise ImpossibleWorldError("\n".join(str(violation) for violation in violations))

    # --- look-ups --------------------------------------------------------------------------------

    def gang(self, key: str) -> Gang:
        """The gang as it stands."""
        gang = self.state.gang(key)
        if gang is None:
            raise KeyError(key)
        return gang

    def pods_of(self, key: str) -> list[Pod]:
        """The gang's pods, in order."""
        index = index_of(self.snapshot())
        pods = [index.pods[uid] for uid in index.pods_of.get(key, ())]
        return sorted(pods, key=lambda pod: (pod.task, pod.index, pod.uid))

    def parts_of(self, queue: QueueName) -> int:
        """Millionths of cards that the queue and all below it use, of all models."""
        use = index_of(self.snapshot()).uses.total.get(queue, {})
        return sum(amount for resource, amount in use.items() if resource.startswith(PARTS_PREFIX))

    # --- inside ----------------------------------------------------------------------------------

    def _bear(self, gang: Gang, task: str, index: int, shape: PodShape, gates: tuple[str, ...] = ()) -> None:
        self._births += 1
        shape = shape.as_option(option_of(gang.choice, task)) or shape
        namespace, _, name = gang.key.rpartition("/")
        uid = PodUid(f"{gang.key}/{task}/{index}#{self._births}")
        self._slots[uid] = (task, index)
        self.state.put_pod(
            Pod(
                uid=uid,
                namespace=namespace or "default",
                name=f"{name}-{task}-{index}",
                shape=shape,
                phase=PodPhase.GATED,
                gang=gang.key,
                task="" if gang.single else task,
                index=-1 if gang.single else index,
                created=self.now,
                other_gates=gates,
                subgroup=partition_of(gang, task, index),
            )
        )

    def _order(self, uid: PodUid, *, ordered: bool, off_quota: bool = False) -> None:
        """The order to leave its cards, on the pod or off it."""
        pod = self.snapshot().pods.get(uid)
        if pod is None or pod.phase is not PodPhase.PLACED or pod.suspend_ordered is ordered:
            return
        state = pod.suspension
        if not ordered and state is SuspensionState.SUSPENDED:
            state = SuspensionState.RESUMING
        number = (1, self._orders) if ordered else (0, 0)
        since = self.now if ordered else 0.0
        self.state.put_pod(
            replace(
                pod,
                suspend_ordered=ordered,
                suspend_order=number,
                suspended_since=since,
                suspension=state,
                off_quota=off_quota,
            )
        )

    def _remove(self, pod: Pod) -> None:
        self.state.remove_pod(pod.uid)
        self._reborn(pod)

    def _reborn(self, pod: Pod) -> None:
        owner = self._owners.get(pod.gang) if pod.gang is not None else None
        gang = self.state.gang(pod.gang) if pod.gang is not None else None
        slot = self._slots.pop(pod.uid, None)
        if owner is not None and owner.recreate and slot is not None and gang is not None:
            self._bear(gang, *slot, pod.shape)

    def _ungate(self, key: str) -> None:
        gang = self.gang(key)
        plan = gang.plan
        if plan is None:
            return
        if gang.template and not self.pods_of(key):
            gang = replace(gang, template=())
            self.state.put_gang(gang)
            for task, replicas, shape in self._owners[key].tasks:
                for index in range(replicas):
                    self._bear(gang, task, index, shape)
        for pod in self.pods_of(key):
            self._let_go(pod, plan)
        self.state.put_gang(replace(gang, plan=None))

    def _let_go(self, pod: Pod, plan: PlanInForce) -> None:
        member = plan.members.get(plan_key(pod))
        if member is None or pod.phase is not PodPhase.GATED:
            return
        node = member.node if member.node is not None else self._bind(pod)
        self.state.put_pod(
            replace(
                pod,
                phase=PodPhase.PLACED,
                node=node,
                shares=member.shares,
                runs_as=self.gang(str(pod.gang)).share_class if member.shares else None,
                plan_id=plan.plan_id,
                started=self.now,
                suspendable=pod.gang in self.suspendable,
            )
        )

    def _bind(self, pod: Pod) -> NodeName | None:
        """Where a scheduler would put a pod without cards."""
        index = index_of(self.snapshot())
        if self.scheduler is not None:
            return self.scheduler(index, pod)
        return first_node(index.ledger, pod.shape, index.mask(pod.shape))
