"""Small clusters that live for a while; a question is asked at some moment, and then it is tried."""

import random
from dataclasses import dataclass, field, replace

from property import generate
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    Instant,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    ShareClass,
    Snapshot,
    plan_key,
)
from vc_egpu.core.model.policy import Policy
from vc_egpu.sim.world import World
from vc_egpu.whatif.question import AddNodes, Change, Drain, End, Question, SetCap, Tasks

_CLASSES = [ShareClass.UNSET, ShareClass.UNSET, ShareClass.LOW, ShareClass.LOW, ShareClass.HIGH]
_UNKNOWN = 0.04
_OVER = {PodPhase.SUCCEEDED, PodPhase.FAILED}


@dataclass
class Life:
    """A cluster that this seed made, and what is asked of it."""

    world: World
    question: Question
    evicted: dict[str, set[PodUid]] = field(default_factory=dict)
    """By gang, pods that went for the gang in question when it was tried."""

    def settle(self) -> None:
        """As :meth:`World.settle`, and note what goes for the gang in question."""
        world = self.world
        for _ in range(12):
            plan = world.decide()
            for admission in plan.admissions:
                if admission.gang == self.question.key:
                    for entry in (*admission.evictions, *admission.suspensions):
                        self.evicted.setdefault(entry.gang, set()).update(entry.pods)
            stands = any(gang.plan for gang in world.snapshot().gangs.values())
            told = plan.admissions or plan.withdrawals or plan.ready or plan.evictions or plan.resumes
            if not told and not plan.suspensions and not plan.choices and not stands:
                world.remember(plan)
                return
            world.apply(plan)
            world.leave()

    def runs(self) -> bool:
        """Whether enough members of the gang in question have their places."""
        placed = sum(pod.phase is PodPhase.PLACED for pod in self.world.pods_of(self.question.key))
        return placed >= max(1, self.world.gang(self.question.key).min_member)

    def places(self) -> dict[str, tuple[NodeName | None, object]]:
        """By member, its node and its cards."""
        pods = self.world.pods_of(self.question.key)
        return {
            name_of(plan_key(pod)): (pod.node, pod.shares) for pod in pods if pod.phase is PodPhase.PLACED
        }

    def until_it_runs(self) -> Instant | None:
        """Live on, with nothing new, until the gang has its places; None: it never has."""
        self.settle()
        while not self.runs():
            moment = _next(self.world)
            if moment is None:
                return None
            _go_to(self.world, moment)
            self.settle()
        return self.world.now

    def copies_that_fit(self) -> int:
        """How many more gangs like the one in question run before the first that does not."""
        gang, count = self.question.gang, 0
        assert gang is not None
        self.world.policy = replace(self.world.policy, preemption=False)
        while True:
            key = f"{gang.key}+{count + 1}"
            self.world.submit(replace(gang, key=key, uid=key), self.question.tasks)
            for _ in range(3):
                self.world.apply(self.world.decide([key]))
            here = [pod for pod in self.world.pods_of(key) if pod.phase is PodPhase.PLACED]
            if len(here) < max(1, gang.min_member):
                return count
            count += 1

    def begin(self) -> None:
        """Make true what the question supposes."""
        for change in self.question.changes:
            _happens(self.world, change)
        if self.question.gang is not None:
            self.world.submit(self.question.gang, self.question.tasks)


def name_of(key: str) -> str:
    """A member's key in a plan without the number of its birth, which differs from world to world."""
    return key.partition("#")[0]


def life(seed: int) -> Life:
    """The life of this seed, up to the question."""
    rng = random.Random(f"life {seed}")
    nodes, queues = generate.random_nodes(rng), generate.random_queues(rng)
    seen = Snapshot(1, {node.name: node for node in nodes}, {}, {}, queues, generate.MEMORY)
    world = World(Policy(reserve_after_s=float("inf")), dict(generate.MEMORY))
    for queue in queues.values():
        world.put_queue(queue)
    for node in nodes:
        world.put_node(node)
    lived = Life(world, Question(""))
    for number in range(rng.randint(4, 14)):
        _go_to(world, world.now + rng.choice([0, 5, 200, 700]))
        gang, tasks = _gang(rng, seen, f"ns{number % 3}/g{number}", world.now)
        world.submit(gang, tasks)
        lived.settle()
        if rng.random() < 0.3:
            world.suspendable.add(gang.key)
    gang, tasks = _gang(rng, seen, "ask/new", world.now)
    lived.question = Question(gang.key, gang, tasks, _changes(rng, world))
    return lived


def _gang(rng: random.Random, seen: Snapshot, key: str, now: Instant) -> tuple[Gang, Tasks]:
    runtime_s = None if rng.random() < _UNKNOWN else float(rng.choice([60, 300, 900, 1500, 4000]))
    shape: PodShape = replace(generate.random_shape(rng, seen, load=rng.random() < 0.7), runtime_s=runtime_s)
    members = rng.choice([1, 1, 2, 3, 4])
    least = members if rng.random() < 0.8 else rng.randint(1, members)
    queue, share_class = QueueName(rng.choice(["red", "blue"])), rng.choice(_CLASSES)
    gang = Gang(key, key, queue, share_class, rng.choice([0, 0, 5]), least, now, single=rng.random() < 0.1)
    return gang, (("w", members, shape),)


def _changes(rng: random.Random, world: World) -> tuple[Change, ...]:
    snapshot = world.snapshot()
    some: list[Change] = [
        AddNodes(rng.choice(sorted(snapshot.nodes)), rng.randint(1, 4)),
        Drain(rng.choice(sorted(snapshot.nodes))),
        SetCap(
            QueueName(rng.choice(["red", "blue"])), "volcano.sh/vgpu-h20", rng.choice([None, 0, 1, 3, 9, 40])
        ),
        *(End(key) for key in sorted(snapshot.gangs)[:1]),
    ]
    return tuple(rng.sample(some, rng.choice([0, 0, 0, 1, 1, 2])))


def _happens(world: World, change: Change) -> None:
    snapshot = world.snapshot()
    if isinstance(change, End):
        world.finish(change.gang)
    elif isinstance(change, SetCap):
        queue = snapshot.queues[change.queue]
        caps = {**queue.capability, change.resource: change.amount}
        world.put_queue(replace(queue, capability={k: v for k, v in caps.items() if v is not None}))
    elif isinstance(change, AddNodes):
        like = snapshot.nodes[change.like]
        for number in range(1, change.count + 1):
            name = NodeName(f"{like.name}-new-{number}")
            cards = [replace(c, uuid=CardId(f"{name}/{c.index}"), usable=True) for c in like.cards]
            world.put_node(
                replace(like, name=name, cards=tuple(cards), unschedulable=False, created=world.now)
            )
    else:
        world.put_node(replace(snapshot.nodes[change.node], unschedulable=True))
        hit = [pod for pod in snapshot.pods.values() if pod.node == change.node]
        for key in {str(pod.gang) for pod in hit if pod.phase is PodPhase.PLACED}:
            gang, mine = world.gang(key), [p for p in world.pods_of(key) if p.phase is PodPhase.PLACED]
            left = [pod for pod in mine if pod.node != change.node]
            whole = len(left) < gang.min_member and not gang.single
            for pod in mine:
                if whole or pod.node == change.node:
                    world.terminate(pod)
        world.leave()


def _end(pod: Pod) -> Instant | None:
    if pod.phase is not PodPhase.PLACED or pod.suspend_ordered or pod.started is None:
        return None
    return pod.started + pod.shape.runtime_s if pod.shape.runtime_s is not None else None


def _next(world: World) -> Instant | None:
    ends = [_end(pod) for pod in world.snapshot().pods.values()]
    return min((end for end in ends if end is not None and end > world.now), default=None)


def _go_to(world: World, moment: Instant) -> None:
    """Time passes, and what ends meanwhile ends."""
    while (upcoming := _next(world)) is not None and upcoming <= moment:
        world.tick(upcoming - world.now)
        for key in list(world.snapshot().gangs):
            pods = world.pods_of(key)
            for pod in pods:
                if _end(pod) == upcoming:
                    world.put_pod(replace(pod, phase=PodPhase.SUCCEEDED, finished=world.now))
            if all(pod.phase in _OVER for pod in world.pods_of(key)):
                world.finish(key)
        if upcoming == moment:
            return
    world.tick(moment - world.now)
