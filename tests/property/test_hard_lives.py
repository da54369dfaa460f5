"""Lives of small clusters in which everything goes wrong at once; the invariants are judged after every step.

Beyond :mod:`.test_world`: leaders that die between two members of a plan, decisions about some gangs only,
pods that stay behind failed, agents that hold on to cards of pods that are gone, gates of others, nodes that
take nothing, lose cards or are shut to a gang, budgets that come and go, gangs that are wanted smaller or
larger while they wait, PodGroups deleted under their pods, queues that vanish, other people's pods.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import seeds
from property import generate
from property.test_world import STEPS, Life
from vc_egpu.core.check import invariants
from vc_egpu.core.model.cluster import (
    AskOption,
    Gang,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    QueueName,
    Resources,
    ShareClass,
    Snapshot,
)
from vc_egpu.core.model.reasons import Reason

LIVES = 600 if os.environ.get("VC_EGPU_LONG") == "1" else 30


class HardLife(Life):
    """One cluster's hard life."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.seen: Counter[str] = Counter()
        self.decided = False

    def check(self, before: Snapshot) -> None:
        """Whether a gate fell too soon is judged after decisions only: members may go with their node."""
        after = self.world.snapshot()
        wrong = invariants.check(after, before=before, lowered=frozenset(self.world.lowered))
        if not self.decided:
            wrong = [violation for violation in wrong if violation.rule is not invariants.Rule.GATE]
        assert not wrong, "\n".join(map(str, wrong))

    def step(self) -> None:
        self.decided = False
        super().step()
        self.takes_one_model()

    def decide_and_apply(self) -> None:
        self.decided = True
        super().decide_and_apply()

    def moves(self) -> dict[Callable[[], None], int]:
        return {
            **super().moves(),
            self.decide_some: 6,
            self.die_between_members: 3,
            self.stays_failed: 2,
            self.agent_holds_on: 1,
            self.agent_lets_go: 1,
            self.others_gate: 1,
            self.others_gate_falls: 2,
            self.node_takes_nothing: 1,
            self.node_loses_a_card: 1,
            self.shut_to_a_gang: 1,
            self.budget: 1,
            self.wanted_size: 2,
            self.group_deleted: 1,
            self.no_queue: 1,
            self.somebody_elses: 1,
            self.backs_off: 1,
            self.submit_any: 4,
        }

    def submit_any(self) -> None:
        """A gang that takes any of two models: now and then with a template, replicas, or mixed."""
        self.serial += 1
        key = f"ns/any{self.serial}"
        shape = generate.random_shape(self.rng, self.world.snapshot(), load=self.rng.random() < 0.6)
        if not shape.asks or any(ask.native for ask in shape.asks):
            return
        models = self.rng.sample(sorted(generate.MEMORY), k=2)
        asks = {
            model: tuple(
                replace(
                    ask, model=model, memory_mib=max(1, ask.memory_mib * memory // generate.MEMORY[ask.model])
                )
                for ask in shape.asks
            )
            for model in models
            for memory in [generate.MEMORY[model]]
        }
        options = tuple(AskOption(model, asks[model]) for model in models)
        shape = replace(shape, asks=(), options=options, mixes=self.rng.random() < 0.3)
        single, members = self.rng.random() < 0.3, self.rng.randint(1, 3)
        tasks = tuple((task, members, shape) for task in ("a", "b")[: self.rng.choice([1, 2])])
        gang = Gang(
            key,
            key,
            QueueName(self.rng.choice(["red", "blue"])),
            self.rng.choice([*ShareClass]),
            0,
            1 if single else self.rng.randint(1, members * len(tasks)),
            self.world.now,
            single=single,
            template=tasks if self.rng.random() < 0.2 and not single else (),
        )
        self.world.submit(gang, tasks)
        self.seen["any of several"] += 1

    def takes_one_model(self) -> None:
        """No pod runs that was made before the choice, and a gang that may not mix has one model."""
        taken: dict[str, set[str]] = {}
        for pod in self.world.snapshot().pods.values():
            if pod.phase is PodPhase.PLACED and pod.shape.options and pod.gang:
                assert not pod.shape.is_open, pod.name
                self.seen["placed with a choice"] += 1
                if not pod.shape.mixes:
                    taken.setdefault(pod.gang, set()).add(pod.shape.choice)
        assert not {key: names for key, names in taken.items() if len(names) > 1}

    def decide_some(self) -> None:
        """Only gangs that something happened to are tried, and whoever has a plan is looked at."""
        keys = sorted(self.world.snapshot().gangs)
        some = self.rng.sample(keys, self.rng.randint(0, len(keys)))
        plan = self.world.decide(some)
        self.decided = True
        told = {entry.gang for entry in plan.admissions}
        assert told <= set(some), "nobody is admitted who was not asked about"
        self.world.apply(plan)

    def die_between_members(self) -> None:
        """The plan is written, some gates fall, then another leader has to go on."""
        plan = self.world.decide()
        self.world.write_plans(plan)
        for gang in sorted(self.world.snapshot().gangs.values(), key=lambda gang: gang.key):
            if gang.plan is None or gang.plan.victims or gang.template:
                continue
            keys = sorted(gang.plan.members)
            self.world.carry_on_with(gang.key, self.rng.sample(keys, self.rng.randint(0, len(keys))))
            self.seen["half carried out"] += 1

    def stays_failed(self) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.put_pod(replace(pod, phase=PodPhase.FAILED, finished=self.world.now))

    def agent_holds_on(self) -> None:
        """A pod's object goes by force; the agent of its node still has its cards in use."""
        pod = self._pod()
        if pod is None or pod.node is None or not pod.shares or pod.suspend_ordered:
            return
        self.world.state.set_held(pod.node, tuple((pod.uid, share) for _, share in pod.shares))
        self.world.state.remove_pod(pod.uid)
        self.seen["held"] += 1

    def agent_lets_go(self) -> None:
        for node in self.world.snapshot().nodes:
            self.world.state.set_held(node, ())

    def others_gate(self) -> None:
        pods = sorted(self.world.snapshot().pods.values(), key=lambda pod: pod.uid)
        gated = [pod for pod in pods if pod.phase is PodPhase.GATED and not pod.other_gates]
        if gated:
            pod = self.rng.choice(gated)
            self.world.put_pod(replace(pod, other_gates=("somebody.else/gate",)))

    def others_gate_falls(self) -> None:
        for pod in self.world.snapshot().pods.values():
            if pod.other_gates and self.rng.random() < 0.6:
                self.world.put_pod(replace(pod, other_gates=()))

    def node_takes_nothing(self) -> None:
        node = self.rng.choice(sorted(self.world.snapshot().nodes.values(), key=lambda node: node.name))
        self.world.put_node(
            replace(
                node,
                ready=self.rng.random() < 0.6,
                problem=self.rng.choice(["", "", "its agent is away"]),
                slots=self.rng.choice([{}, {"volcano.sh/vgpu-h20": self.rng.randint(0, 5)}]),
            )
        )

    def node_loses_a_card(self) -> None:
        node = self.rng.choice(sorted(self.world.snapshot().nodes.values(), key=lambda node: node.name))
        if len(node.cards) > 1:
            gone = self.rng.randrange(len(node.cards))
            cards = tuple(card for card in node.cards if card.index != gone)
            self.world.put_node(replace(node, cards=cards))

    def shut_to_a_gang(self) -> None:
        gang = self._gang()
        if gang is not None:
            names = [node.name for node in self.nodes]
            shut = frozenset(self.rng.sample(names, self.rng.randint(0, len(names))))
            self.world.state.put_gang(replace(gang, blocked_nodes=shut))

    def backs_off(self) -> None:
        gang = self._gang()
        if gang is not None:
            until = self.world.now + self.rng.choice([-5, 10, 60])
            self.world.state.put_gang(replace(gang, not_before=until))

    def budget(self) -> None:
        pod = self._pod()
        if pod is not None:
            self.world.put_pod(replace(pod, protected=not pod.protected))

    def wanted_size(self) -> None:
        gang = self._gang()
        if gang is not None and not gang.single and gang.plan is None:
            least = max(1, gang.min_member + self.rng.choice([-1, 1]))
            self.world.state.put_gang(replace(gang, min_member=least))

    def group_deleted(self) -> None:
        gang = self._gang()
        if gang is not None and self.rng.random() < 0.5:
            again = replace(gang, plan=None, uid=f"{gang.uid}'")
            self.world.state.remove_gang(gang.key)
            if self.rng.random() < 0.7:
                self.world.state.put_gang(again)
            else:
                self.world.finish(gang.key)

    def no_queue(self) -> None:
        name = self.rng.choice(sorted(self.queues))
        if name in self.world.snapshot().queues:
            self.world.state.remove_queue(name)
        else:
            self.world.put_queue(self.queues[name])

    def close(self) -> None:
        if len(self.world.snapshot().queues) == len(self.queues):
            super().close()

    def somebody_elses(self) -> None:
        """Pods that are none of ours come to a node and leave it."""
        node = self.rng.choice(self.nodes)
        uid = PodUid(f"other-{node.name}")
        if uid in self.world.snapshot().pods:
            self.world.state.remove_pod(uid)
            return
        shape = PodShape(requests=Resources(self.rng.choice([500, 3000, 8000]), generate.GIB))
        self.world.put_pod(Pod(uid, "x", uid, shape, PodPhase.PLACED, node.name))

    def all_is_well_again(self) -> None:
        """Nobody does anything any more, and what was broken is put right."""
        self.world.broken.clear()
        self.agent_lets_go()
        for node in self.nodes:
            self.world.put_node(node)
        for queue in self.queues.values():
            self.world.put_queue(queue)
        for gang in self.world.snapshot().gangs.values():
            self.world.state.put_gang(replace(gang, blocked_nodes=frozenset(), not_before=0.0))
        for pod in self.world.snapshot().pods.values():
            self.world.put_pod(replace(pod, pause_wished=False, protected=False, other_gates=()))
            if pod.phase is PodPhase.FAILED:
                self.world.state.remove_pod(pod.uid)
        self.world.tick(120)


@pytest.mark.parametrize("seed", seeds.fresh(LIVES // 2, after=LIVES))
def test_it_comes_to_rest_after_a_hard_life(seed: int) -> None:
    life = HardLife(seed)
    for _ in range(STEPS // 2):
        life.step()
    life.all_is_well_again()
    life.world.settle(rounds=60)
    plan = life.world.decide()
    assert not (plan.admissions or plan.withdrawals or plan.ready)
    assert not (plan.suspensions or plan.resumes or plan.evictions or plan.choices)
    life.world.check()
    snapshot = life.world.snapshot()
    assert all(verdict.reason is not Reason.WAITING_FOR_EVICTION for verdict in plan.verdicts.values())
    assert not [gang.key for gang in snapshot.gangs.values() if gang.plan], "plans stand for ever"


@pytest.mark.parametrize("seed", seeds.fresh(LIVES))
def test_nothing_breaks_in_a_hard_life(seed: int) -> None:
    life = HardLife(seed)
    for _ in range(STEPS):
        before = life.world.snapshot()
        life.step()
        life.check(before)
