"""A long life of a busy cluster on a virtual clock: prints one JSON object as its last line.

    python e2e/soak_sim.py [--decisions 1000000] [--nodes 64] [--seed 1] [--seconds 1800] [--lives 2]
                           [--usage-half-life-s 0] [--moves-per-hour 0] [--any-of 0] [--emptying]

The real ``decide`` decides for 64 nodes of eight cards. Ten tenants below two parents submit gangs of 1 to 64
from a heavy tail, of three classes; half of the tenants always have work. They have weights 1 to 4, deserved
amounts, guarantees and caps. Cards and nodes fail and come back. A decision is one call after an event that
changed the snapshot. As in the controller it is about the gang that came, or about all gangs where room may
have become free. Every five seconds all gangs are tried once more, since time passes. They are also tried
once a move was claimed or given up. These are ``reviews`` and no decisions. Cheap invariants are checked at
each call, all of them at every hundredth decision.

``--lives`` clusters with seeds of their own live at the same time, each in a process; figures are over all.

``jain_dominant_share`` is Jain's index over tenants that always have work: their parts of cards over time,
divided by what they deserve. ``longest_wait_ratio`` is the wait divided by the own run time, 99th percentile.
``--seconds`` ends the run early, and ``decisions`` says how far it came.

With ``--moves-per-hour`` above 0 gangs are moved: for those that wait longer than a minute, and so that less
is left over. ``moves`` has the gangs that left their cards for it, and those that have arrived since. It also
has how many moves were ``claimed``, and how many of them ``given up`` before the gang had left. A gang
that is moved once more within an hour is a violation. So is one that comes back to its old cards, unless a
gang of a higher class took the new ones meanwhile; ``moves`` has these as ``overtaken``. So are more moves in
an hour than were allowed.

With ``--any-of`` above 0 every third node has cards of a second model. So large a part of the gangs takes
either one, and some of the others ask for the second one alone. ``choices`` has how many started with each.
A gang that runs on two models is a violation. So is a queue above a cap of its own, where pods that are told
to go do not count any more.

With ``--emptying`` and moves most tenants send nothing in every second hour, so that nodes can be emptied. An
autoscaler removes a node ten minutes after it is empty, and brings it back once gangs have waited for a
minute. A gang that is placed on a node which is being emptied is a violation. ``nodes`` counts what happened.
"""

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from bench.long_life import Tally, figures, jain
from vc_egpu.core.books.state import index_of
from vc_egpu.core.check import invariants
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import (
    AskOption,
    Card,
    CardAsk,
    CardId,
    Gang,
    Move,
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
from vc_egpu.core.model.plan import Eviction, Plan
from vc_egpu.core.model.policy import OURS, Mix, Moving, PodClass, Policy, RecentUse
from vc_egpu.core.queues.recent import averaged
from vc_egpu.sim.world import World

GIB: Final = 1 << 30
H20_MIB: Final = 98304
H20: Final = "volcano.sh/vgpu-h20"
L20_MIB: Final = 46068
L20: Final = "volcano.sh/vgpu-l20"
MIB: Final = {"h20": H20_MIB, "l20": L20_MIB}
CARDS_PER_NODE: Final = 8
TENANTS: Final = 10
ALL_INVARIANTS_EVERY: Final = 100
TOLD_EVERY: Final = 500
"""After so many decisions a line on stderr says how far it is."""
REVIEW_S: Final = 5.0
WRITTEN_S: Final = 0.1
"""So long a write takes to come back."""
UNNEEDED_S: Final = 600.0
"""An autoscaler removes a node that has been empty for so long."""
GROWS_S: Final = 60.0
"""It brings one back for gangs that have waited for so long."""
WINDOW_S: Final = 3600.0
"""The budget of moves is one for each such time."""


def whole(model: str) -> CardAsk:
    """One card of this model."""
    return CardAsk("main", model, 1, MIB[model], 100, whole=True)


@dataclass(slots=True)
class Tenant:
    """One leaf queue and its work."""

    queue: Queue
    always: bool
    """It always has work: another gang comes whenever few wait."""
    had_microcard_s: float = 0.0
    """Parts of cards that it had, over time."""


@dataclass(slots=True)
class Life:
    """One gang's life."""

    tenant: Tenant
    runtime_s: float
    submitted: float
    started: float | None = None
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class Departure:
    """A gang that left its cards for others."""

    at: float
    cards: frozenset[CardId]
    claimed: frozenset[CardId]


class Soak:
    """The cluster, its tenants, and what happens to them."""

    def __init__(
        self,
        nodes: int,
        seed: int,
        half_life_s: float = 0.0,
        moves_per_hour: int = 0,
        any_of: float = 0.0,
        *,
        emptying: bool = False,
    ) -> None:
        self.rng = random.Random(seed)
        self.emptying = emptying
        self._scaled_down: list[Node] = []
        self._empty_since: dict[NodeName, float] = {}
        self.any_of = any_of
        self.per_hour = moves_per_hour
        policy = Policy(recent=RecentUse(half_life_s))
        if moves_per_hour:
            moving = Moving(True, True, moves_per_hour, after_s=60.0, for_empty=emptying)
            policy = replace(policy, binpack=OURS, mix=_mix(), moving=moving)
        self.world = World(policy, MIB)
        self._claimed_at: list[float] = []
        """When moves were claimed that were not given up."""
        self._moved: dict[str, Departure] = {}
        self._arrived: set[str] = set()
        self.tally = Tally()
        self.lives: dict[str, Life] = {}
        self.born = 0
        self.nodes = [self._node(number) for number in range(nodes)]
        for node in self.nodes:
            self.world.put_node(node)
        of_model = Counter(card.model for node in self.nodes for card in node.cards)
        self.tenants = self._tenants(of_model["h20"], of_model["l20"])

    # --- what there is ---------------------------------------------------------------------------

    def _node(self, number: int) -> Node:
        model = "l20" if self.any_of and number % 3 == 2 else "h20"
        cards = (Card(CardId(f"GPU-{number}-{at}"), at, model, MIB[model]) for at in range(CARDS_PER_NODE))
        return Node(
            NodeName(f"n{number:03}"),
            Resources(cpu_milli=128_000, memory_bytes=1024 * GIB, pods=250),
            cards=tuple(cards),
            host_memory_mib=(number % 2) * 4 * MIB[model],
        )

    def _tenants(self, h20: int, l20: int) -> list[Tenant]:
        """Weights 1 to 4. What they deserve adds up to the cards; some have guarantees, all have caps.

        Of the second model, where there is one, the caps are narrower: so a gang may have to take the first.
        """
        weights = [1 + number % 4 for number in range(TENANTS)]
        second = {L20: 100 * l20} if l20 else {}
        for name in ("org-a", "org-b"):
            self.world.put_queue(Queue(QueueName(name), capability={H20: 100 * h20, **second}))
        found = []
        for number, weight in enumerate(weights):
            deserved, also = h20 * weight // sum(weights), l20 * weight // sum(weights)
            narrow = {f"{L20}-cores": 100 * min(l20, 2 * also)} if l20 else {}
            queue = Queue(
                QueueName(f"tenant-{number}"),
                parent=QueueName("org-a" if number % 2 else "org-b"),
                capability={H20: 100 * h20, f"{H20}-cores": 100 * min(h20, 3 * deserved), **second, **narrow},
                deserved={H20: deserved, **({L20: also} if l20 else {})},
                guarantee={H20: deserved // 4} if number % 3 == 0 else {},
                weight=weight,
            )
            self.world.put_queue(queue)
            found.append(Tenant(queue, always=number < TENANTS // 2))
        return found

    # --- what happens ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Put the first events on the clock."""
        for tenant in self.tenants:
            self._later(self.rng.uniform(0, 60), partial(self._arrive, tenant))
        self.world.engine.after(REVIEW_S, self._review)
        self._later(self.rng.expovariate(1 / 900), self._node_fails)
        self._later(self.rng.expovariate(1 / 600), self._card_fails)

    def _later(self, after_s: float, action: Callable[[], str | None]) -> None:
        self.world.engine.after(after_s, lambda: self._happen(action))

    def _happen(self, action: Callable[[], str | None]) -> None:
        before, stood = self.world.now, self._generation()
        gang = action()
        if self._generation() != stood:
            self.tally.decisions += 1
            self._decide(None if gang is None else [gang])
        assert self.world.now == before

    def _generation(self) -> int:
        """Changes with every change of the snapshot."""
        return index_of(self.world.snapshot()).generation

    def _arrive(self, tenant: Tenant) -> str | None:
        """Another gang, unless three wait. The larger a tenant's share, the more gangs are always work."""
        if self.emptying and int(self.world.now / WINDOW_S) % 2 and tenant.queue.weight > 1:
            self._later(WINDOW_S - self.world.now % WINDOW_S, partial(self._arrive, tenant))
            return None  # a quiet hour
        waits = sum(life.tenant is tenant and life.started is None for life in self.lives.values())
        every_s = 20 / tenant.queue.weight if tenant.always else 400
        self._later(self.rng.expovariate(1 / every_s), partial(self._arrive, tenant))
        if waits >= 3:
            return None
        key, self.born = f"ns/g{self.born}", self.born + 1
        count = min(64, int(self.rng.paretovariate(1.1)))
        share_class = self.rng.choice([ShareClass.LOW, ShareClass.UNSET, ShareClass.UNSET, ShareClass.HIGH])
        count = min(count, *tenant.queue.deserved.values())
        runtime_s = min(7200.0, max(60.0, self.rng.lognormvariate(6.5, 0.8)))
        gang = Gang(key, key, tenant.queue.name, share_class, 0, count, self.world.now)
        self.lives[key] = Life(tenant, runtime_s, self.world.now)
        self.world.submit(gang, (("w", count, self._shape(runtime_s)),))
        if self.rng.random() < 0.3:
            self.world.suspendable.add(key)
        return key

    def _shape(self, runtime_s: float) -> PodShape:
        div = self.rng.choice([4, 2])
        cores = self.rng.choice([0, 25, 50])
        says = runtime_s * 1.2 if self.rng.random() < 0.3 else None
        is_whole = self.rng.random() < 0.5
        asks = {
            model: whole(model) if is_whole else CardAsk("main", model, 1, mib // div, cores)
            for model, mib in MIB.items()
        }
        shape = PodShape((asks["h20"],), Resources(cpu_milli=1000, memory_bytes=GIB), runtime_s=says)
        if not self.any_of:
            return shape
        models = list(MIB)
        self.rng.shuffle(models)
        if self.rng.random() < self.any_of:
            options = tuple(AskOption(model, (asks[model],)) for model in models)
            return replace(shape, asks=(), options=options)
        return replace(shape, asks=(asks[self.rng.choice(["h20", "h20", "l20"])],))

    def _end(self, key: str) -> None:
        life = self.lives.get(key)
        if life is None or life.started is None or self.world.now < life.started + life.runtime_s - 0.5:
            return  # it was evicted since, and began once more
        self.world.finish(key)
        self.tally.most_evictions = max(self.tally.most_evictions, life.evicted)
        del self.lives[key]

    def _node_fails(self) -> None:
        self._later(self.rng.expovariate(1 / 900), self._node_fails)
        node = self.rng.choice(self.nodes)
        if node.name not in self.world.snapshot().nodes:
            return
        lost = {pod.gang for pod in self.world.snapshot().pods.values() if pod.node == node.name}
        self.world.remove_node(node.name)
        for key in lost:
            if key is not None and key in self.lives:
                self.lives[key].started = None  # it runs on only once its replacements do
        self._later(self.rng.uniform(60, 900), partial(self.world.put_node, node))

    def _card_fails(self) -> None:
        self._later(self.rng.expovariate(1 / 600), self._card_fails)
        node = self.world.snapshot().nodes.get(self.rng.choice(self.nodes).name)
        if node is None:
            return
        cards = tuple(replace(card, usable=card.index != 0) for card in node.cards)
        self.world.put_node(replace(node, cards=cards))
        self._later(self.rng.uniform(60, 900), partial(self._card_is_well, node.name))

    def _card_is_well(self, name: NodeName) -> None:
        node = self.world.snapshot().nodes.get(name)
        if node is not None:
            cards = tuple(replace(card, usable=True) for card in node.cards)
            self.world.put_node(replace(node, cards=cards))

    def _review(self) -> None:
        """Time passes: holds run out, and claims are due."""
        self.world.engine.after(REVIEW_S, self._review)
        for tenant in self.tenants:
            use = self.world.parts_of(tenant.queue.name)
            tenant.had_microcard_s += REVIEW_S * use
        self._judge_caps()
        if self.emptying:
            self._scale()
        if any(life.started is None for life in self.lives.values()):
            self.tally.reviews += 1
            self._decide(None)

    def _scale(self) -> None:
        """What an autoscaler does."""
        snapshot, now = self.world.snapshot(), self.world.now
        holding = {pod.node for pod in snapshot.pods.values() if pod.node is not None}
        empty = {name for name in snapshot.nodes if name not in holding}
        self._empty_since = {name: self._empty_since.get(name, now) for name in sorted(empty)}
        for name, since in self._empty_since.items():
            node = snapshot.nodes[name]
            if node.emptied is not None and now - since >= UNNEEDED_S:
                self.world.remove_node(name)
                self._scaled_down.append(replace(node, emptied=None))
                self.tally.nodes["removed"] += 1
        lacks = any(life.started is None and now - life.submitted > GROWS_S for life in self.lives.values())
        if lacks and self._scaled_down:
            self.world.put_node(self._scaled_down.pop())
            self.tally.nodes["came back"] += 1

    # --- decisions -------------------------------------------------------------------------------

    def _decide(self, only: list[str] | None) -> None:
        before, policy = self.world.snapshot(), self.world.policy
        if policy.recent.half_life_s > 0:
            recent = averaged(policy.recent, index_of(before).uses.total, self.world.now)
            self.world.policy = replace(policy, recent=recent)
        plan = self.world.decide(only)
        self._judge(plan)
        going = (*plan.evictions, *(e for admission in plan.admissions for e in admission.evictions))
        for eviction in going:
            if eviction.cause is Cause.DEFRAGMENTATION:
                self._leaves(eviction)
        self.world.apply(plan)
        self._note(plan)
        if self.tally.decisions % ALL_INVARIANTS_EVERY == 0:
            found = invariants.check(self.world.snapshot(), before=before, lowered=frozenset())
            self.tally.violations += [str(violation) for violation in found]
        if plan.admissions or plan.withdrawals or plan.ready or plan.resumes or plan.evictions or plan.moves:
            # Victims take a moment to leave. What is written is one more event.
            self._later(self.rng.uniform(1.0, 10.0), self._leave)

        self.tally.nodes.update({"tainted": len(plan.empties), "opened": len(plan.opens)})
        for move in plan.moves.values():
            self._count(move)
        if (
            plan.moves or plan.choices or plan.empties or plan.opens
        ):  # the controller hears of what it wrote, and decides about all
            self.world.engine.after(WRITTEN_S, self._decide_after_write)

    def _leave(self) -> None:
        self.world.leave()

    def _decide_after_write(self) -> None:
        self.tally.reviews += 1
        self._decide(None)

    def _count(self, move: Move) -> None:
        """Moves that are claimed count in the budget, unless they are given up."""
        now, claimed = self.world.now, self._claimed_at
        if move.stays:
            self.tally.moves["given up"] += 1
            claimed.pop()  # one set of moves is under way at a time
        elif move.places:
            self.tally.moves["claimed"] += 1
            claimed.append(now)
            lately = sum(now - at < WINDOW_S for at in claimed)
            if lately > self.per_hour:
                self.tally.violations.append(f"{lately} moves within an hour, {self.per_hour} are allowed")

    def _judge_caps(self) -> None:
        """No queue is above a cap. Victims count until they are told to go: a plan may begin before they are
        gone."""
        snapshot = self.world.snapshot()
        if any(gang.plan is not None and gang.plan.victims for gang in snapshot.gangs.values()):
            return
        index = index_of(snapshot)
        going: Counter[tuple[str, str]] = Counter()
        for uid in index.notable.terminating:
            name, amounts = index.charge_of(uid) or (None, {})
            for above in index.chain(name) if name is not None else ():
                going.update({(above, resource): amount for resource, amount in amounts.items()})
        for name, queue in snapshot.queues.items():
            for resource, cap in queue.capability.items():
                used = index.uses.total.get(name, {}).get(resource, 0) - going[name, resource]
                if used > cap:
                    self.tally.violations.append(f"{name} uses {used} {resource}, its cap is {cap}")

    def _judge_models(self, pods: list[Pod]) -> None:
        """Gangs that take any of both models run on one."""
        models = {pod.shape.choice for pod in pods if pod.shape.options}
        if not models:
            return
        self.tally.choices.update(models)
        cards = {card.uuid: card.model for node in self.nodes for card in node.cards}
        there = {cards[share.card] for pod in pods for _, share in pod.shares}
        if len(models) > 1 or there != models:
            self.tally.violations.append(f"{pods[0].gang} chose {models} and runs on {there}")

    def _judge(self, plan: Plan) -> None:
        """Cheap invariants: gangs come whole, and no high pod goes."""
        snapshot = self.world.snapshot()
        for admission in plan.admissions:
            gang = snapshot.gangs[admission.gang]
            there = sum(pod.phase is PodPhase.PLACED for pod in self.world.pods_of(gang.key))
            if len(admission.members) + there < gang.min_member:
                self.tally.violations.append(f"{gang.key} is admitted in part")
            nodes = {place.node for place in admission.members.values()} & snapshot.nodes.keys()
            if any(snapshot.nodes[name].emptied is not None for name in nodes if name is not None):
                self.tally.violations.append(f"{gang.key} is placed on a node that is being emptied")
            for eviction in admission.evictions:
                if any(snapshot.pods[uid].runs_as is ShareClass.HIGH for uid in eviction.pods):
                    self.tally.violations.append(f"{eviction.gang} is of high priority and goes")
                self.tally.evictions[str(eviction.cause)] += 1

    def _leaves(self, eviction: Eviction) -> None:
        """A gang leaves its cards for others. One that is told twice is the same move."""
        snapshot, now = self.world.snapshot(), self.world.now
        pods, move = snapshot.pods, snapshot.gangs[eviction.gang].move
        there = [pods[uid] for uid in eviction.pods if pods[uid].phase is PodPhase.PLACED]
        if not there:
            return
        before = self._moved.get(eviction.gang)
        if before is not None and now - before.at < 3600:
            self.tally.violations.append(f"{eviction.gang} is moved once more within an hour")
        cards = frozenset(share.card for pod in there for _, share in pod.shares)
        places = move.places.values() if move is not None else ()
        claimed = frozenset(share.card for place in places for _, share in place.shares)
        self._moved[eviction.gang] = Departure(now, cards, claimed)
        self.tally.moves["left"] += 1
        if eviction.gang in self.lives and eviction.whole:
            self.lives[eviction.gang].started = None

    def _arrives(self, key: str, pods: list[Pod]) -> None:
        """A gang that was moved has its next place: not one of those that it left."""
        known = self._moved.get(key)
        if known is None or key in self._arrived:
            return
        self._arrived.add(key)
        self.tally.moves["arrived"] += 1
        if not known.cards <= {share.card for pod in pods for _, share in pod.shares}:
            return
        if self._are_taken(known, self.world.gang(key).share_class):
            self.tally.moves["overtaken"] += 1
        else:
            self.tally.violations.append(f"{key} is back on the cards that it left")

    def _are_taken(self, left: Departure, share_class: ShareClass) -> bool:
        """Whether a gang of a higher class has come to the claimed cards since, or is on its way there."""
        for gang in self.world.snapshot().gangs.values():
            if gang.share_class <= share_class:
                continue
            life = self.lives.get(gang.key)
            places = gang.plan.members.values() if gang.plan and gang.plan.created >= left.at else ()
            cards = {share.card for place in places for _, share in place.shares}
            if life is not None and life.started is not None and life.started >= left.at:
                cards |= {share.card for pod in self.world.pods_of(gang.key) for _, share in pod.shares}
            if cards & left.claimed:
                return True
        return False

    def _note(self, plan: Plan) -> None:
        going = (*plan.evictions, *(e for admission in plan.admissions for e in admission.evictions))
        for eviction in (e for e in going if e.whole):
            life = self.lives.get(eviction.gang)
            if life is not None:
                life.evicted += 1
                life.started = None
        for key in [*(a.gang for a in plan.admissions), *(ready.gang for ready in plan.ready)]:
            life = self.lives.get(key)
            pods = self.world.pods_of(key)
            if life is not None and life.started is None and _all_run(pods):
                self._arrives(key, pods)
                self._judge_models(pods)
                if not life.evicted:
                    self.tally.wait_ratios.append((self.world.now - life.submitted) / life.runtime_s)
                life.started = self.world.now
                self._later(life.runtime_s, partial(self._end, key))


def _all_run(pods: list[Pod]) -> bool:
    return bool(pods) and all(pod.phase is PodPhase.PLACED for pod in pods)


def _mix() -> Mix:
    """What the tenants ask for: see :meth:`Soak._shape`."""
    parts = [(H20_MIB, 100, 0.5)]
    parts += [(H20_MIB // div, cores, 0.5 / 6) for div in (4, 2) for cores in (0, 25, 50)]
    return Mix(
        tuple(PodClass(1000, 1, mib, cores, "h20", cores == 100, False, PodShape(), frequency)
              for mib, cores, frequency in parts)
    )  # fmt: skip


def live(
    seed: int,
    nodes: int,
    decisions: int,
    seconds: float,
    *,
    half_life_s: float,
    moves_per_hour: int,
    any_of: float,
    emptying: bool = False,
) -> dict[str, Any]:
    """One life, as the numbers that can be put together with those of other lives."""
    soak = Soak(nodes, seed, half_life_s, moves_per_hour, any_of, emptying=emptying)
    began = time.perf_counter()
    soak.begin()
    told = shown = 0
    while soak.tally.decisions < decisions and time.perf_counter() - began < seconds:
        soak.world.engine.step()
        if soak.tally.decisions >= told + TOLD_EVERY:
            told = soak.tally.decisions
            text = f"seed {seed}: {told} decisions in {time.perf_counter() - began:.0f} s"
            print(f"{text}, {len(soak.tally.violations)} violations", file=sys.stderr, flush=True)
        for violation in soak.tally.violations[shown:]:
            print(f"seed {seed}, {soak.world.now:.0f} s: {violation}", file=sys.stderr, flush=True)
        shown = len(soak.tally.violations)
    always = [tenant for tenant in soak.tenants if tenant.always]
    shares = [tenant.had_microcard_s / sum(tenant.queue.deserved.values()) for tenant in always]
    return {
        "tally": soak.tally,
        "jain": jain(shares),
        "gangs": soak.born,
        "virtual_hours": soak.world.now / 3600,
        "cpu_s": time.process_time(),
    }


def main() -> int:
    """Run it; the exit status says whether an invariant was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--decisions", type=int, default=1_000_000, help="of all lives together")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1, help="of the first life; the next ones follow")
    parser.add_argument("--seconds", type=float, default=1800.0, help="end after so long in any case")
    parser.add_argument("--lives", type=int, default=2, help="clusters that live at the same time")
    parser.add_argument("--usage-half-life-s", type=float, default=0.0, help="as of the controller")
    parser.add_argument("--moves-per-hour", type=int, default=0, help="gangs moved; 0: none ever is")
    parser.add_argument("--any-of", type=float, default=0.0, help="part of gangs that take any of two models")
    parser.add_argument("--emptying", action="store_true", help="moves also empty nodes")
    flags = parser.parse_args()
    began = time.perf_counter()
    each = -(-flags.decisions // flags.lives)
    one = partial(
        live,
        nodes=flags.nodes,
        decisions=each,
        seconds=flags.seconds,
        half_life_s=flags.usage_half_life_s,
        moves_per_hour=flags.moves_per_hour,
        any_of=flags.any_of,
        emptying=flags.emptying,
    )
    with ProcessPoolExecutor(flags.lives) as pool:
        lives = list(pool.map(one, range(flags.seed, flags.seed + flags.lives)))
    found = figures(lives, time.perf_counter() - began)
    print(json.dumps(found))
    return 1 if found["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
