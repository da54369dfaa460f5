"""Long random lives of a small cluster; the invariants are judged after every step.

Executor, controllers and kubelets are those of :mod:`vc_egpu.sim.world`. In between, what happens to real
clusters: gangs come and end, pods fail, nodes go and come, cards fall ill, caps are lowered, queues close,
and the controller dies between writing a plan and doing anything for it.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

import pytest
import seeds
from property import generate
from vc_egpu.core.check import invariants
from vc_egpu.core.model.cluster import (
    Gang,
    PlanInForce,
    Pod,
    PodPhase,
    PodUid,
    QueueName,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.reasons import Reason
from vc_egpu.sim.world import World

LONG = os.environ.get("VC_EGPU_LONG") == "1"
LIVES = 1000 if LONG else 40
CROWDED = 200 if LONG else 12
SMALL = 6
"""So many of no priority are there at once."""
STEPS = 60


class Life:
    """One cluster's random life."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(models=generate.MEMORY)
        self.nodes = [
            replace(node, ready=True, host_memory_mib=self.rng.choice([0, 100_000, 800_000, 800_000]))
            for node in generate.random_nodes(self.rng)
        ]
        for node in self.nodes:
            self.world.put_node(node)
        self.queues = generate.random_queues(self.rng)
        for queue in self.queues.values():
            self.world.put_queue(queue)
        self.serial = 0
        self.beside_kept = 0
        """Newcomers on cards on which room is kept."""

    def moves(self) -> dict[Callable[[], None], int]:
        """What happens, and how often."""
        return {
            self.submit: 8,
            self.decide_and_apply: 12,
            self.decide_and_die: 1,
            self.leave: 6,
            self.finish: 2,
            self.fail: 1,
            self.delete: 1,
            self.grow: 1,
            self.node: 1,
            self.card: 1,
            self.cap: 1,
            self.close: 1,
            self.agents: 2,
            self.able: 1,
            self.pause: 1,
        }

    def step(self) -> None:
        moves = self.moves()
        move = self.rng.choices(list(moves), list(moves.values()))[0]
        self.world.tick(self.rng.choice([1, 5, 30]))
        move()

    def _gang(self) -> Gang | None:
        gangs = sorted(self.world.snapshot().gangs.values(), key=lambda gang: gang.key)
        return self.rng.choice(gangs) if gangs else None

    def submit(self) -> None:
        self.serial += 1
        single = self.rng.random() < 0.2
        snapshot = self.world.snapshot()
        tasks = tuple(
            (
                task,
                self.rng.randint(1, 3),
                generate.random_shape(
                    self.rng, snapshot, cards=self.rng.random() < 0.85, load=self.rng.random() < 0.6
                ),
            )
            for task in ("a", "b")[: self.rng.choice([1, 1, 2])]
        )
        if self.rng.random() < 0.7:
            self.world.suspendable.add(f"ns/g{self.serial}")
            if self.rng.random() < 0.1:
                self.world.broken.add(f"ns/g{self.serial}")
        members = sum(count for _, count, _ in tasks)
        least = 1 if single else self.rng.randint(max(1, members - 2), members)
        self.world.submit(
            Gang(
                f"ns/g{self.serial}", f"uid{self.serial}", QueueName(self.rng.choice(["red", "blue"])),
                self.rng.choice([ShareClass.LOW, ShareClass.HIGH, *ShareClass]), 0, least, self.world.now,
                single=single, min_task_member={"b": 1} if tasks[1:] and not single else {},
                template=tasks if self.rng.random() < 0.1 and not single else (),
            ),
            tasks,
        )  # fmt: skip

    def decide_and_apply(self) -> None:
        plan = self.world.decide()
        again = self.world.decide()
        assert plan == replace(again, revision=plan.revision)
        self.look_at(plan)
        self.world.apply(plan)

    def look_at(self, plan: Plan) -> None:
        """What must be true of every decision."""
        self.every_waiting_gang_knows_why(plan.verdicts.keys())
        self.nobody_sleeps_in_vain(plan)
        self.nobody_overtakes_who_waited_long(plan)
        self.nobody_comes_back_before_who_waits_longer(plan)

    def every_waiting_gang_knows_why(self, told: Collection[str]) -> None:
        snapshot = self.world.snapshot()
        waiting = {pod.gang for pod in snapshot.pods.values() if pod.phase is PodPhase.GATED}
        assert waiting <= set(told), "a gang waits without a reason"

    def nobody_sleeps_in_vain(self, plan: Plan) -> None:
        """Of the suspended gangs (or replicas) that nobody wishes away and no plan waits for, the oldest
        comes back if its cards are free: judged by the invariants of the world in which it has come back."""
        snapshot = self.world.snapshot()
        kept = snapshot.kept or any(pod.phase is PodPhase.FAILED for pod in snapshot.pods.values())
        if plan.admissions or plan.withdrawals or plan.ready or plan.evictions or kept:
            return
        away = self.wants_back(snapshot)
        if away:
            since, key, ordered = away[0]
            known = {card.uuid for node in snapshot.nodes.values() for card in node.cards}
            cards = {share.card for pod in ordered for _, share in pod.shares}
            if not cards <= known:
                return  # its node reports no such card any more
            older = [pods for at, _, pods in self.wants_back(snapshot, planned=True) if at < since]
            if any(share.card in cards for pods in older for pod in pods for _, share in pod.shares):
                return  # one that waits longer is not overtaken there, although a plan waits for it now
            back = {pod.uid: replace(pod, suspend_ordered=False) for pod in ordered}
            # What is planned is booked from the first on, and its victims until they are gone. So a card that
            # holds either of them, and not both, is not free yet: nothing is promised twice.
            gangs = {other: self.without_victims(gang) for other, gang in snapshot.gangs.items()}
            there = replace(snapshot, gangs=gangs, pods={**snapshot.pods, **back})
            wrong = invariants.check(there, lowered=self.queues)
            full = [violation for violation in wrong if violation.rule is invariants.Rule.CARD]
            come = {uid for entry in plan.resumes for uid in entry.pods}
            assert full or back.keys() <= come, f"{key} could have come back"

    @staticmethod
    def without_victims(gang: Gang) -> Gang:
        """As if its plan waited for none: the invariants count what is planned as taken, next to all pods."""
        plan = gang.plan
        still = replace(plan, victims=frozenset(), suspends=frozenset()) if plan is not None else None
        return replace(gang, plan=still)

    def nobody_overtakes_who_waited_long(self, plan: Plan) -> None:
        """On the cards of the gang that was suspended first, long ago, newcomers of low or no priority leave
        room for it beside themselves and all of their kind. That a plan waits for some of it changes nothing.
        """
        snapshot = self.world.snapshot()
        away = self.wants_back(snapshot, planned=True)
        if not away or plan.resumes or plan.evictions:
            return
        _, key, ordered = away[0]
        going = self.evicted(snapshot, plan)
        asleep = [pod for pod in ordered if pod.asleep and pod.uid not in going]
        long_ago = self.world.now - self.world.policy.suspended_hold_s
        if not asleep or min(pod.suspended_since for pod in asleep) > long_ago:
            return
        need: Counter[str] = Counter()
        for _, share in (entry for pod in asleep for entry in pod.shares):
            need[share.card] += share.on_card_mib
        used: Counter[str] = Counter()
        for pod in snapshot.pods.values():
            holds = pod.phase in {PodPhase.PLACED, PodPhase.TERMINATING} and not pod.asleep
            gang = snapshot.gangs.get(str(pod.gang))
            if holds and gang is not None and gang.share_class is not ShareClass.HIGH:
                for _, share in pod.shares:
                    used[share.card] += share.on_card_mib
        size = {card.uuid: card.memory_mib for node in snapshot.nodes.values() for card in node.cards}
        for admission in plan.admissions:
            gang = snapshot.gangs[admission.gang]
            running = sum(pod.phase is PodPhase.PLACED for pod in self.world.pods_of(gang.key))
            replaces = running and (not gang.single or running < gang.min_member)
            if gang.share_class is ShareClass.HIGH or replaces:
                continue  # members that are replaced go before everybody
            for placement in admission.members.values():
                for _, share in placement.shares:
                    used[share.card] += share.on_card_mib
                    if share.card in need:
                        self.beside_kept += 1
                        room = size[share.card] - need[share.card]
                        assert used[share.card] <= room, f"{gang.key} takes what is kept for {key}"

    def nobody_comes_back_before_who_waits_longer(self, plan: Plan) -> None:
        """On a card that both were on, whatever the reason why the older one cannot come back now."""
        snapshot = self.world.snapshot()
        come = {uid for entry in plan.resumes for uid in entry.pods}
        going = self.evicted(snapshot, plan)
        waited: dict[str, str] = {}
        for _, key, ordered in self.wants_back(snapshot, planned=True):
            for pod in ordered:
                for card in sorted({share.card for _, share in pod.shares}):
                    if pod.uid in come:
                        before = waited.get(card, key)
                        assert before == key, f"{key} comes back to {card} before {before}"
                    elif pod.uid not in going:
                        waited.setdefault(card, key)

    @staticmethod
    def evicted(snapshot: Snapshot, plan: Plan) -> set[PodUid]:
        """All that are told to go, and not to be suspended: now, or for a plan in force."""
        told = [*plan.evictions, *(entry for one in plan.admissions for entry in one.evictions)]
        plans = [gang.plan for gang in snapshot.gangs.values() if gang.plan]
        victims = {uid for entry in plans for uid in entry.victims - entry.suspends}
        return victims | {uid for eviction in told for uid in eviction.pods}

    def wants_back(
        self, snapshot: Snapshot, *, planned: bool = False
    ) -> list[tuple[tuple[int, int], str, list[Pod]]]:
        """Suspended gangs that nobody wishes away and no plan waits for, replicas each by itself, the oldest
        first: number of the order, key, pods. ``planned``: also those that a plan waits for."""
        plans = [gang.plan for gang in snapshot.gangs.values() if gang.plan and not planned]
        victims = {uid for plan in plans for uid in plan.suspends}
        away: list[tuple[tuple[int, int], str, list[Pod]]] = []
        for key, gang in snapshot.gangs.items():
            placed = [pod for pod in self.world.pods_of(key) if pod.phase is PodPhase.PLACED]
            placed.sort(key=lambda pod: (pod.task, pod.index, pod.uid))
            if any(pod.pause_wished for pod in placed):
                continue
            awake = sum(not pod.suspend_ordered for pod in placed)
            singly = gang.single and (gang.min_member <= 1 or awake >= gang.min_member)
            for part in [[pod] for pod in placed] if singly else [placed]:
                ordered = [pod for pod in part if pod.suspend_ordered]
                if ordered and not any(pod.uid in victims for pod in part):
                    away.append((min(pod.suspend_order for pod in ordered), key, ordered))
        return sorted(away, key=lambda entry: entry[:2])

    def decide_and_die(self) -> None:
        """The plan is written, nothing else is done; the next leader sees it."""
        self.world.write_plans(self.world.decide())

    def leave(self) -> None:
        self.world.leave()

    def agents(self) -> None:
        self.world.agents()

    def able(self) -> None:
        """Whether a gang can be suspended changes at any time."""
        gang = self._gang()
        if gang is not None:
            self.world.suspendable ^= {gang.key}
            self.world.agents()

    def pause(self) -> None:
        gang = self._gang()
        for pod in self.world.pods_of(gang.key) if gang is not None else ():
            self.world.put_pod(replace(pod, pause_wished=not pod.pause_wished))

    def finish(self) -> None:
        gang = self._gang()
        if gang is not None:
            self.world.finish(gang.key)

    def _pod(self) -> Pod | None:
        placed = [p for p in self.world.snapshot().pods.values() if p.phase is PodPhase.PLACED]
        return self.rng.choice(sorted(placed, key=lambda pod: pod.uid)) if placed else None

    def fail(self) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.fail(pod, recreate=self.rng.random() < 0.8)

    def delete(self) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.terminate(pod)

    def grow(self) -> None:
        gang = self._gang()
        if gang is not None and self.world.pods_of(gang.key):
            self.world.grow(gang.key, 1)

    def node(self) -> None:
        node = self.rng.choice(self.nodes)
        if node.name in self.world.snapshot().nodes and len(self.world.snapshot().nodes) > 1:
            self.world.remove_node(node.name)
        else:
            self.world.put_node(node)

    def card(self) -> None:
        present = sorted(self.world.snapshot().nodes.values(), key=lambda node: node.name)
        node = self.rng.choice(present)
        cards = tuple(replace(card, usable=self.rng.random() < 0.8) for card in node.cards)
        self.world.put_node(replace(node, cards=cards, unschedulable=self.rng.random() < 0.1))

    def cap(self) -> None:
        queue = self.queues[QueueName(self.rng.choice(["red", "blue"]))]
        factor = self.rng.choice([0.3, 1.0, 1.0])
        caps = {key: int(cap * factor) for key, cap in queue.capability.items()}
        self.world.put_queue(replace(queue, capability=caps))

    def close(self) -> None:
        queue = self.queues[QueueName(self.rng.choice(["red", "blue"]))]
        current = self.world.snapshot().queues[queue.name]
        self.world.put_queue(replace(current, open=not current.open))


class CrowdedLife(Life):
    """Cards full of low-priority work that could be suspended; high-priority gangs come and go."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        for node in self.nodes:
            self.world.put_node(replace(node, unschedulable=False, max_sharers=100, taints=()))
        for queue in self.queues.values():
            self.world.put_queue(replace(queue, capability=dict.fromkeys(queue.capability, 10**6)))
        for _ in range(12):
            self.enter(ShareClass.LOW)
        self.world.settle()
        self.seen: Counter[str] = Counter()

    def enter(self, share_class: ShareClass, *, load: bool = True) -> None:
        """A gang of large shares, or of any."""
        self.serial += 1
        key = f"ns/{share_class.name.lower()}{self.serial}"
        shape = generate.random_shape(self.rng, self.world.snapshot(), load=load)
        members = self.rng.randint(1, 3)
        least = self.rng.randint(1, members)
        if share_class is ShareClass.LOW and self.rng.random() < 0.8:
            self.world.suspendable.add(key)
        queue = QueueName(self.rng.choice(["red", "blue"]))
        gang = Gang(key, key, queue, share_class, 0, least, self.world.now, single=self.rng.random() < 0.2)
        self.world.submit(gang, (("w", members, shape),))

    def high(self) -> None:
        self.enter(ShareClass.HIGH)

    def newcomer(self) -> None:
        """A small one, of low or no priority; now and then one of them ends."""
        self.enter(self.rng.choice([ShareClass.LOW, ShareClass.UNSET]), load=False)
        gangs = self.world.snapshot().gangs.values()
        small = [gang.key for gang in gangs if gang.share_class is ShareClass.UNSET]
        if len(small) > SMALL:
            self.world.finish(self.rng.choice(sorted(small)))

    def high_ends(self) -> None:
        high = [g.key for g in self.world.snapshot().gangs.values() if g.share_class is ShareClass.HIGH]
        if high:
            self.world.finish(self.rng.choice(sorted(high)))

    def cannot_come_back(self) -> None:
        gang = self._gang()
        if gang is not None:
            self.world.broken ^= {gang.key}

    def moves(self) -> dict[Callable[[], None], int]:
        return {
            self.high: 5,
            self.high_ends: 4,
            self.newcomer: 4,
            self.decide_and_apply: 14,
            self.decide_and_die: 1,
            self.leave: 5,
            self.agents: 4,
            self.able: 1,
            self.pause: 2,
            self.fail: 1,
            self.card: 1,
            self.cannot_come_back: 1,
        }

    def look_at(self, plan: Plan) -> None:
        super().look_at(plan)
        self.seen["by suspension"] += sum(bool(entry.suspensions) for entry in plan.admissions)
        self.seen["by both"] += sum(bool(e.suspensions and e.evictions) for e in plan.admissions)
        self.seen["wishes"] += len(plan.suspensions)
        self.seen["resumes"] += len(plan.resumes)
        self.seen["not brought back"] += len(plan.evictions)


def crowded(seed: int) -> Counter[str]:
    """What was seen in a whole life in which nothing broke."""
    life = CrowdedLife(seed)
    for _ in range(STEPS):
        before = life.world.snapshot()
        life.step()
        life.world.check(before)
    life.seen["beside what is kept"] += life.beside_kept
    return life.seen


@pytest.mark.timeout(1200)  # 90 s where the machine has nothing else to do, in `make test-long`
def test_suspended_gangs_come_and_go() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CROWDED):
        seen += crowded(seed)
    # Lives in which nothing of it happens would prove nothing, and these are the same ones at each run.
    assert min(seen["by suspension"], seen["wishes"], seen["resumes"]) * 4 >= CROWDED, seen
    assert seen["by both"], seen
    assert seen["beside what is kept"], seen
    assert seen["not brought back"] or not LONG, seen


@pytest.mark.parametrize("seed", seeds.fresh(CROWDED))
def test_nothing_breaks_in_a_crowd(seed: int) -> None:
    crowded(seed)


@pytest.mark.parametrize("seed", seeds.fresh(LIVES))
def test_nothing_breaks_in_a_long_life(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        before = life.world.snapshot()
        life.step()
        life.world.check(before)


GIVEN_UP = 69992080
"""In its last look but one a claim is given up. What it kept room from is admitted after that."""


@pytest.mark.parametrize("seed", [GIVEN_UP, *seeds.fresh(LIVES // 2, after=LIVES)])
def test_it_comes_to_rest_and_stays_there(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS // 2):
        life.step()
    for queue in life.queues.values():
        life.world.put_queue(queue)
    for pod in life.world.snapshot().pods.values():
        life.world.put_pod(replace(pod, pause_wished=False))
    life.world.broken.clear()
    life.world.tick(120)
    life.world.settle(rounds=60)
    plan = life.world.decide()
    assert not plan.admissions, "after settling nobody else is admitted"
    assert not plan.withdrawals
    assert not plan.ready
    assert not (plan.suspensions or plan.resumes or plan.evictions)
    life.world.check()
    assert all(verdict.reason is not Reason.WAITING_FOR_EVICTION for verdict in plan.verdicts.values())
    plans: list[PlanInForce] = [gang.plan for gang in life.world.snapshot().gangs.values() if gang.plan]
    assert not plans, "every plan was carried out or withdrawn"
