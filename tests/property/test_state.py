"""The incremental mirror against a fresh count of the same values, after any sequence of changes."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import seeds
from property import generate
from vc_egpu.core.books.index import Index
from vc_egpu.core.books.state import ClusterState, fresh_index, index_of
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import (
    CardId,
    Gang,
    MemberPlacement,
    NodeName,
    PlanInForce,
    Pod,
    PodPhase,
    PodUid,
    Queue,
    QueueName,
    Share,
    ShareClass,
    Snapshot,
    SuspensionState,
    plan_key,
)
from vc_egpu.core.model.policy import Policy

SEQUENCES = 60
CHANGES = 80


def seen(index: Index) -> dict[str, Any]:
    """All that a decision reads of an index, in terms that do not depend on the order of arrival."""
    ledger = index.ledger
    cards: dict[tuple[str, str], tuple[int, ...]] = {}
    nodes: dict[str, tuple[Any, ...]] = {}
    for node, row in ledger.rows.items():
        for uuid, col in ledger.columns[row].items():
            cards[node, uuid] = tuple(
                int(array[row, col])
                for array in (
                    ledger.usable, ledger.memory_cap, ledger.memory_used, ledger.high_cores, ledger.low_cores,
                    ledger.all_cores, ledger.sharers, ledger.alone, ledger.physical_cap, ledger.physical_used,
                    ledger.asleep,
                )
            )  # fmt: skip
        nodes[node] = (
            ledger.cap[row].tolist(),
            ledger.used[row].tolist(),
            (
                int(ledger.ratio[row]),
                int(ledger.high_cap[row]),
                int(ledger.low_cap[row]),
                int(ledger.host_cap[row]),
                int(ledger.host_used[row]),
            ),
            {slot: int(column[row]) for slot, column in ledger.slot_used.items() if column[row]},
            dict(ledger.ports.get(row, {})),
            int(index.ranks()[row]),
        )
    views = {key: index.view(key) for key in index.gangs}
    memory = ("memory_used", "physical_used", "host_used")
    for name in (*memory, "asleep", "sharers", "high_cores", "low_cores", "alone"):
        free_rows = [row for row, owner in enumerate(ledger.names) if owner is None]
        assert not np.any(getattr(ledger, name)[free_rows]), f"{name} of rows without a node"
    return {
        "cards": cards,
        "nodes": nodes,
        "use": {queue: dict(use) for queue, use in index.uses.total.items() if use},
        "waiting": {key: [(m.key, m.task, m.shape) for m in view.waiting] for key, view in views.items()},
        "planned": {key: [p.key for p in view.planned] for key, view in views.items()},
        "placed": {key: view.placed for key, view in views.items()},
        "terminating": sorted(index.notable.terminating),
        "failed": sorted(index.notable.failed),
        "suspended": sorted(index.notable.suspended),
        "low": sorted(index.low_gangs),
    }


class Churn:
    """Random changes to a state: what watches bring, in any order, sensible or not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.case = generate.case(seed).snapshot
        self.state = ClusterState(dict(self.case.models))

    def now(self) -> Snapshot:
        return self.state.snapshot(1)

    def step(self) -> None:
        move = self.rng.choice(
            [self.node, self.no_node, self.pod, self.pod, self.pod, self.no_pod, self.gang, self.gang,
             self.plan, self.plan, self.no_gang, self.queue, self.held, self.renamed, self.reordered]
        )  # fmt: skip
        move()

    def node(self) -> None:
        node = self.rng.choice(list(self.case.nodes.values()))
        if self.rng.random() < 0.3:
            cards = tuple(replace(card, usable=self.rng.random() < 0.5) for card in node.cards)
            keep = self.rng.randint(0, len(cards))
            node = replace(
                node,
                cards=cards[:keep],
                unschedulable=self.rng.random() < 0.5,
                memory_ratio=self.rng.choice([0.5, 1.0, 2.0]),
                host_memory_mib=self.rng.choice([0, 1000]),
            )
        self.state.put_node(node)

    def no_node(self) -> None:
        self.state.remove_node(self.rng.choice(list(self.case.nodes)))

    def pod(self) -> None:
        pod = self.rng.choice(list(self.case.pods.values()))
        phase = self.rng.choice(list(PodPhase))
        gang = self.now().gangs.get(str(pod.gang))
        plan_id = gang.plan.plan_id if gang and gang.plan and self.rng.random() < 0.5 else pod.plan_id
        finished = 100.0 if phase in {PodPhase.FAILED, PodPhase.SUCCEEDED} else None
        odd = self.rng.random() < 0.3
        self.state.put_pod(
            replace(
                pod,
                phase=phase,
                plan_id=plan_id,
                finished=finished,
                queue=self.rng.choice([None, *self.case.queues]),
                runs_as=self.rng.choice([None, *ShareClass]),
                suspend_ordered=odd and self.rng.random() < 0.7,
                suspension=self.rng.choice(list(SuspensionState)) if odd else SuspensionState.RUNNING,
                pause_wished=odd and self.rng.random() < 0.3,
            )
        )

    def no_pod(self) -> None:
        self.state.remove_pod(self.rng.choice(list(self.case.pods)))

    def _gang(self) -> Gang:
        gang = self.rng.choice(list(self.case.gangs.values()))
        return self.now().gangs.get(gang.key, gang)

    def gang(self) -> None:
        queue = QueueName(self.rng.choice(["red", "blue", "org"]))
        share_class = self.rng.choice(list(ShareClass))
        self.state.put_gang(replace(self._gang(), queue=queue, share_class=share_class))

    def renamed(self) -> None:
        """A pod turns out to be somebody else's member, or nobody's, or another member."""
        pods = sorted(self.now().pods.values(), key=lambda pod: pod.uid)
        if pods:
            pod = self.rng.choice(pods)
            gang = self.rng.choice([*sorted(self.case.gangs), None])
            self.state.put_pod(replace(pod, gang=gang, index=self.rng.choice([pod.index, -1, 0, 7])))

    def reordered(self) -> None:
        """A node's cards come in another order, or another has taken one's place."""
        node = self.rng.choice(list(self.case.nodes.values()))
        cards = [
            replace(card, index=index)
            for index, card in enumerate(self.rng.sample(node.cards, len(node.cards)))
        ]
        if self.rng.random() < 0.5:
            cards[0] = replace(cards[0], uuid=CardId(f"{cards[0].uuid}-new"))
        self.state.put_node(replace(node, cards=tuple(cards)))

    def plan(self) -> None:
        gang = self._gang()
        if self.rng.random() < 0.3:
            self.state.put_gang(replace(gang, plan=None))
            return
        members = {}
        for pod in self.case.pods.values():
            if pod.gang == gang.key and self.rng.random() < 0.7:
                node = self.rng.choice(list(self.case.nodes.values()))
                shares = tuple(("main", Share(card.uuid, 1024, 10)) for card in node.cards[:1])
                members[plan_key(pod)] = MemberPlacement(self.rng.choice([node.name, None]), shares)
        victims = (
            frozenset(self.rng.sample(list(self.case.pods), 1)) if self.rng.random() < 0.4 else frozenset()
        )
        self.state.put_gang(replace(gang, plan=PlanInForce(f"1-{self.rng.randint(0, 3)}", members, victims)))

    def no_gang(self) -> None:
        self.state.remove_gang(self._gang().key)

    def queue(self) -> None:
        name = QueueName(self.rng.choice(["red", "blue", "org"]))
        if self.rng.random() < 0.2:
            self.state.remove_queue(name)
        else:
            parent = QueueName(self.rng.choice(["red", "blue", "org"])) if self.rng.random() < 0.7 else None
            self.state.put_queue(Queue(name, parent=parent))

    def held(self) -> None:
        node = self.rng.choice(list(self.case.nodes.values()))
        if node.name not in self.now().nodes:
            return
        uids = [*self.case.pods, PodUid("gone-1"), PodUid("gone-2")]
        shares = tuple(
            (self.rng.choice(uids), Share(card.uuid, 2048, 20))
            for card in node.cards
            if self.rng.random() < 0.6
        )
        self.state.set_held(node.name, shares)


@pytest.mark.parametrize("seed", seeds.fresh(SEQUENCES))
def test_incremental_sums_equal_fresh_ones(seed: int) -> None:
    churn = Churn(seed)
    for _ in range(CHANGES):
        churn.step()
        if churn.rng.random() < 0.15:
            snapshot = churn.now()
            assert seen(index_of(snapshot)) == seen(fresh_index(snapshot))
    snapshot = churn.now()
    assert seen(index_of(snapshot)) == seen(fresh_index(snapshot))


def test_a_snapshot_does_not_change_after_it_was_taken() -> None:
    churn = Churn(7)
    for _ in range(CHANGES):
        churn.step()
    snapshot = churn.now()
    copy = (dict(snapshot.nodes), dict(snapshot.pods), dict(snapshot.gangs), dict(snapshot.queues))
    plan = decide(snapshot, Policy(), 1000.0)
    for _ in range(CHANGES):
        churn.step()
    assert (snapshot.nodes, snapshot.pods, snapshot.gangs, snapshot.queues) == copy
    assert decide(snapshot, Policy(), 1000.0) == plan, (
        "a late decision counts again from the snapshot's values"
    )


def shuffled(snapshot: Snapshot, rng: random.Random) -> Snapshot:
    """The same values, in mappings of another order and without sums."""

    def mix(mapping: Any) -> Any:
        items = list(mapping.items())
        rng.shuffle(items)
        return dict(items)

    return replace(
        snapshot,
        nodes=mix(snapshot.nodes),
        pods=mix(snapshot.pods),
        gangs=mix(snapshot.gangs),
        queues=mix(snapshot.queues),
        held=mix(snapshot.held),
        index=None,
    )


@pytest.mark.parametrize("seed", seeds.fresh(100))
def test_equal_clusters_give_equal_plans(seed: int) -> None:
    snapshot = generate.case(seed).snapshot
    state = ClusterState(dict(snapshot.models))
    for queue in snapshot.queues.values():
        state.put_queue(queue)
    for pod in snapshot.pods.values():
        state.put_pod(pod)
    for gang in snapshot.gangs.values():
        state.put_gang(gang)
    for node in reversed(list(snapshot.nodes.values())):
        state.put_node(node)
    live = state.snapshot(snapshot.revision)
    plan = decide(live, Policy(), 2000.0)
    assert decide(live, Policy(), 2000.0) == plan, "a decision leaves no trace"
    assert decide(shuffled(snapshot, random.Random(seed)), Policy(), 2000.0) == plan


def test_pods_of_a_node_are_counted_whenever_it_arrives() -> None:
    snapshot = generate.case(3).snapshot
    state = ClusterState()
    pods: list[Pod] = list(snapshot.pods.values())
    for gang in snapshot.gangs.values():
        state.put_gang(gang)
    for pod in pods:
        state.put_pod(pod)
    for node in snapshot.nodes.values():
        state.put_node(node)
    name = next(NodeName(str(pod.node)) for pod in pods if pod.node is not None)
    index = index_of(state.snapshot(1))
    assert index.ledger.used[index.ledger.rows[name], 3] == sum(
        1 for pod in pods if pod.node == name and pod.phase is PodPhase.PLACED
    )
