"""A day on a cluster, under one way to hand out cards. The live ``decide`` places, evicts and lets wait.

A replica works for :data:`REPLICA_CORES` percent of a card's time at most, as it was sized. On a whole card
it may fill the card instead, and then does the work of several: ``Way.replica_cores``.
An autoscaler looks each minute. A new replica serves after :data:`START_S`. Training in the gaps of inference
gets the time that inference leaves on its card, less :data:`LOSS`. The slowest member sets a Job's pace.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Gang,
    Node,
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    Queue,
    QueueName,
    Resources,
    ShareClass,
)
from vc_egpu.core.model.policy import Policy
from vc_egpu.sim.day.traffic import DAY_S, Day, Service, Training
from vc_egpu.sim.world import Tasks, World

MODEL: Final = "h20"
CARD_MIB: Final = 98304
REPLICA_CORES: Final = 40
REPLICA_MIB: Final = CARD_MIB // 4
TRAINING_MIB: Final = CARD_MIB // 2
STEP_S: Final = 10.0
SCALED_EACH_S: Final = 60.0
ASKED_EACH_S: Final = 600.0
"""The decision is asked when something changed, and so often where nothing did."""
START_S: Final = 60.0
"""From a place to the first answer: the model is loaded."""
DOWN_AFTER_S: Final = 600.0
"""Replicas go when fewer would have done for so long."""
BUSY: Final = 0.7
"""The autoscaler aims at this part of the replicas' time."""
LOSS: Final = 0.05
"""The part of a card's time that is lost while training shares it with inference: assumed, not measured."""
CHECKPOINT_S: Final = 600.0
"""An evicted Job begins again at its last checkpoint."""
_EVERYTHING: Final = QueueName("all")


@dataclass(frozen=True, slots=True)
class Way:
    """How cards are handed out."""

    name: str
    shares: bool
    """Inference gets shares and training what they leave, instead of whole cards for all."""
    priority: bool
    """Inference is high and training low, instead of neither."""
    replica_cores: int = REPLICA_CORES
    """What one replica may take of its card's time, in percent. More means fewer replicas."""
    loss: float = LOSS

    @property
    def power(self) -> float:
        """Requests that a replica serves, by those that one of :data:`REPLICA_CORES` does."""
        return self.replica_cores / REPLICA_CORES


WAYS: Final = (
    Way("whole cards", shares=False, priority=False),
    Way("whole cards, with priority", shares=False, priority=True),
    Way("shares, with priority", shares=True, priority=True),
    Way("whole cards, with priority, filled", shares=False, priority=True, replica_cores=100),
)
"""The last one is the best that whole cards can do: replicas that would do with a part fill their card."""


@dataclass(frozen=True, slots=True)
class Point:
    """One minute."""

    at_s: float
    held: int
    """Cards with anything on them."""
    used: float
    """Cards' worth of work that is done."""
    inference: float
    """That of inference."""
    wait_s: float
    """Longest wait of a request that comes now."""


@dataclass(slots=True)
class Outcome:
    """What came of the day."""

    way: Way
    cards: int
    points: list[Point] = field(default_factory=list)
    held_card_hours: float = 0.0
    inference_card_hours: float = 0.0
    training_card_hours: float = 0.0
    """Work that counts: what was lost by evictions is not in it."""
    finished: int = 0
    jobs: int = 0
    evictions: int = 0
    """How often training Jobs were evicted."""
    waits: dict[int, float] = field(default_factory=dict)
    """Requests by whole seconds that they waited."""

    def wait_s(self, part: float) -> int:
        """The wait that this part of all requests did not exceed, in whole seconds, rounded up."""
        left = part * sum(self.waits.values())
        for seconds in sorted(self.waits):
            left -= self.waits[seconds]
            if left <= 0:
                return seconds
        return max(self.waits, default=0)

    def figures(self) -> dict[str, float]:
        """As one line of a table."""
        card_hours = self.cards * len(self.points) * SCALED_EACH_S / 3600
        work = self.inference_card_hours + self.training_card_hours
        return {
            "held_card_hours": round(self.held_card_hours, 1),
            "inference_card_hours": round(self.inference_card_hours, 1),
            "training_card_hours": round(self.training_card_hours, 1),
            "used_percent": round(100 * work / max(1e-9, card_hours), 1),
            "finished": self.finished,
            "jobs": self.jobs,
            "evictions": self.evictions,
            "wait_p50_s": self.wait_s(0.5),
            "wait_p99_s": self.wait_s(0.99),
            "wait_p999_s": self.wait_s(0.999),
        }


@dataclass(slots=True)
class _Replicas:
    """A service's replicas, its queue of requests, and what it needed lately."""

    service: Service
    power: float
    """See :attr:`Way.power`."""
    keys: list[str] = field(default_factory=list)
    ready_at: dict[str, float] = field(default_factory=dict)
    backlog_s: float = 0.0
    """Work that waits, in seconds of one replica."""
    wanted: deque[tuple[float, int]] = field(default_factory=deque)
    made: int = 0
    busy: float = 0.0
    """Part of the time that its replicas worked in the last step."""

    def needed(self, now: float) -> int:
        """Replicas for what comes now, and for what waits within a minute."""
        load = self.service.load(now) / BUSY + self.backlog_s / SCALED_EACH_S
        need = max(1, math.ceil(load / self.power - 1e-9))
        self.wanted.append((now, need))
        while self.wanted[0][0] < now - DOWN_AFTER_S:
            self.wanted.popleft()
        return max(count for _, count in self.wanted)


@dataclass(slots=True)
class _Run:
    """A training Job, and how far it is."""

    job: Training
    done_s: float = 0.0
    saved_s: float = 0.0
    runs: bool = False


class Cluster(Protocol):
    """What a day is played on: the simulator's :class:`World`, or a real one in fast motion."""

    @property
    def now(self) -> float:
        """Seconds of the day."""

    def tick(self, seconds: float) -> None:
        """Let time pass."""

    def submit(self, gang: Gang, tasks: Tasks) -> None:
        """A gang whose members come back when they were evicted."""

    def finish(self, key: str) -> None:
        """The gang is done, and goes."""

    def settle(self) -> object:
        """Have everything decided and carried out."""

    def pods_of(self, key: str) -> Sequence[Pod]:
        """The gang's pods."""


class Played:
    """One day under one way."""

    def __init__(
        self, today: Day, way: Way, nodes: int, cards_per_node: int = 8, cluster: Cluster | None = None
    ) -> None:
        self._way = way
        self.outcome = Outcome(way, nodes * cards_per_node, jobs=len(today.training))
        self._world = cluster or _on_paper(nodes, cards_per_node)
        self._services = [_Replicas(service, way.power) for service in today.services]
        self._to_come = deque(today.training)
        self._runs: dict[str, _Run] = {}
        self._changed = True

    def run(self, until_s: float = DAY_S) -> Outcome:
        """Play it, from midnight on."""
        for step in range(round(until_s / STEP_S)):
            now = step * STEP_S
            is_minute = step % round(SCALED_EACH_S / STEP_S) == 0
            if is_minute:
                self._scale(now)
            self._arrive(now)
            if self._changed or step % round(ASKED_EACH_S / STEP_S) == 0:
                self._world.settle()
                self._changed = False
                self._look(now)
            self._work(now, tell=is_minute)
            self._world.tick(STEP_S)
        return self.outcome

    # --- what changes ------------------------------------------------------------------------------

    def _scale(self, now: float) -> None:
        for replicas in self._services:
            need = replicas.needed(now)
            while len(replicas.keys) < need:
                key = f"serve/{replicas.service.name}-{replicas.made}"
                replicas.made += 1
                replicas.keys.append(key)
                self._submit(key, 1, self._inference())
            while len(replicas.keys) > need:
                # Those that wait go first, then the youngest.
                waiting = [key for key in replicas.keys if key not in replicas.ready_at]
                key = (waiting or replicas.keys)[-1]
                replicas.keys.remove(key)
                replicas.ready_at.pop(key, None)
                self._world.finish(key)
                self._changed = True

    def _arrive(self, now: float) -> None:
        while self._to_come and self._to_come[0].arrival_s <= now:
            job = self._to_come.popleft()
            self._runs[f"train/{job.name}"] = _Run(job)
            self._submit(f"train/{job.name}", job.members, self._training())

    def _submit(self, key: str, members: int, ask: CardAsk) -> None:
        is_training = key.startswith("train/")
        share_class = ShareClass.UNSET
        if self._way.priority:
            share_class = ShareClass.LOW if is_training else ShareClass.HIGH
        gang = Gang(key, key, _EVERYTHING, share_class, 0, members, self._world.now)
        self._world.submit(gang, (("t", members, PodShape(asks=(ask,), requests=Resources(1000))),))
        self._changed = True

    def _inference(self) -> CardAsk:
        if self._way.shares:
            return CardAsk("main", MODEL, 1, REPLICA_MIB, self._way.replica_cores)
        return CardAsk("main", MODEL, 1, CARD_MIB, 100, whole=True)

    def _training(self) -> CardAsk:
        if self._way.shares:
            return CardAsk("main", MODEL, 1, TRAINING_MIB, 100)
        return CardAsk("main", MODEL, 1, CARD_MIB, 100, whole=True)

    def _look(self, now: float) -> None:
        """What began since the last decision, and what was evicted."""
        for replicas in self._services:
            for key in replicas.keys:
                if key not in replicas.ready_at and self._cards(key):
                    replicas.ready_at[key] = now + START_S
        for key, run in self._runs.items():
            runs = len(self._cards(key)) == run.job.members
            if run.runs and not runs:
                self.outcome.evictions += 1
                run.done_s = run.saved_s
            run.runs = runs

    def _cards(self, key: str) -> list[CardId]:
        pods = self._world.pods_of(key)
        return [share.card for pod in pods if pod.phase is PodPhase.PLACED for _, share in pod.shares]

    # --- what is done in a step ----------------------------------------------------------------------

    def _work(self, now: float, *, tell: bool) -> None:
        used: dict[CardId, float] = {}
        longest = 0.0
        for replicas in self._services:
            longest = max(longest, self._serve(replicas, now, used))
        inference = sum(used.values())
        held = set(used)
        training = 0.0
        for key in [key for key, run in self._runs.items() if run.runs]:
            cards = self._cards(key)
            held |= set(cards)
            training += self._train(key, cards, used)
        hours = STEP_S / 3600
        self.outcome.held_card_hours += len(held) * hours
        self.outcome.inference_card_hours += inference * hours
        if tell:
            self.outcome.points.append(Point(now, len(held), inference + training, inference, longest))

    def _serve(self, replicas: _Replicas, now: float, used: dict[CardId, float]) -> float:
        """Requests of one step; how long the last one waits. ``used``: by card, its part of the time."""
        serving = [key for key in replicas.keys if replicas.ready_at.get(key, math.inf) <= now]
        load = replicas.service.load(now)
        room_s, asked_s = len(serving) * STEP_S * self._way.power, replicas.backlog_s + load * STEP_S
        served_s = min(room_s, asked_s)
        replicas.busy = served_s / room_s if room_s else 0.0
        replicas.backlog_s = asked_s - served_s
        wait_s = replicas.backlog_s / (max(1, len(serving)) * self._way.power)
        whole_s = math.ceil(wait_s - 1e-9)
        self.outcome.waits[whole_s] = self.outcome.waits.get(whole_s, 0.0) + load * STEP_S
        for key in replicas.keys:
            part = self._way.replica_cores / 100 * replicas.busy if key in serving else 0.0
            for card in self._cards(key):
                used[card] = used.get(card, 0.0) + part
        return wait_s

    def _train(self, key: str, cards: list[CardId], used: Mapping[CardId, float]) -> float:
        """One step of a Job; cards' worth of work that it did in it."""
        run = self._runs[key]
        pace = min(_left(used, card, self._way.loss) for card in cards)
        before_s = run.done_s
        run.done_s = min(run.job.work_s, run.done_s + pace * STEP_S)
        if run.done_s - run.saved_s >= CHECKPOINT_S:
            self._save(run, run.done_s)
        if run.done_s >= run.job.work_s:
            self._save(run, run.job.work_s)
            self._world.finish(key)
            del self._runs[key]
            self.outcome.finished += 1
            self._changed = True
        return (run.done_s - before_s) / STEP_S * run.job.members

    def _save(self, run: _Run, done_s: float) -> None:
        self.outcome.training_card_hours += (done_s - run.saved_s) * run.job.members / 3600
        run.saved_s = done_s


def _left(used: Mapping[CardId, float], card: CardId, loss: float) -> float:
    """The part of a card's time that inference leaves; all of it where none is there."""
    return 1.0 if card not in used else max(0.0, 1 - used[card] - loss)


def _on_paper(nodes: int, cards: int) -> World:
    world = World(Policy(unnamed_model_unlimited=True), {MODEL: CARD_MIB})
    for number in range(nodes):
        world.put_node(_node(number, cards))
    world.put_queue(Queue(_EVERYTHING))
    return world


def _node(number: int, cards: int) -> Node:
    name = NodeName(f"node-{number:02d}")
    return Node(
        name,
        Resources(256_000, 1 << 41, pods=110),
        cards=tuple(Card(CardId(f"{name}/{at}"), at, MODEL, CARD_MIB) for at in range(cards)),
    )
