"""What nodes were measured to use, on random clusters: without figures nothing is decided otherwise, and with
figures no gang is refused that would be placed without."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from property import generate
from vc_egpu.core.decide import decide
from vc_egpu.core.measured.use import OLD_AFTER_S, CardUse, NodeUse, in_steps
from vc_egpu.core.model.cluster import Pod, PodShape, Snapshot
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.profiles.table import Traits

NOW = 2000.0
OFF = Policy(heeds_measured=False)


def points(dice: random.Random) -> int:
    return dice.choice([-1, 0, 0, in_steps(dice.uniform(0, 100)), 100])


def measured(dice: random.Random, snapshot: Snapshot, at: float) -> Snapshot:
    """Some nodes tell, of some of their cards, and of one that they have not."""
    uses = {
        name: NodeUse(
            at,
            points(dice),
            points(dice),
            {
                str(card.uuid): CardUse(points(dice), points(dice))
                for card in node.cards
                if dice.random() < 0.8
            }
            | {"another": CardUse(50, 50)},
        )
        for name, node in snapshot.nodes.items()
        if dice.random() < 0.8
    }
    return replace(snapshot, measured=uses)


def asking(dice: random.Random, case: generate.Case) -> Snapshot:
    """In most cases asks have no cores, or members are spread; some gangs have run before."""
    snapshot = case.snapshot
    pods = dict(snapshot.pods)
    for key in case.asking:
        free, policy = dice.random() < 0.7, dice.choice(["", "spread", "binpack"])

        def changed(pod: Pod, *, free: bool = free, policy: str = policy) -> PodShape:
            asks = tuple(
                ask if ask.whole or ask.native or not free else replace(ask, cores_percent=0)
                for ask in pod.shape.asks
            )
            return replace(pod.shape, asks=asks, node_policy=policy)

        mine = [pod for pod in pods.values() if pod.gang == key]
        pods |= {pod.uid: replace(pod, shape=changed(pod)) for pod in mine}
    gangs = {
        key: replace(gang, traits=Traits(uses_points=dice.choice([None, 0, 50, 100])))
        for key, gang in snapshot.gangs.items()
    }
    return replace(snapshot, pods=pods, gangs=gangs)


@given(st.integers(0, 1 << 32))
def test_without_figures_or_with_old_ones_all_is_decided_as_ever(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = asking(dice, generate.case(seed))
    old = measured(dice, snapshot, dice.choice([NOW - OLD_AFTER_S - 1, NOW + 3600]))
    ever = decide(snapshot, OFF, NOW)
    assert decide(snapshot, Policy(), NOW) == ever
    assert decide(old, Policy(), NOW) == ever
    assert decide(measured(dice, snapshot, NOW), OFF, NOW) == ever


@given(st.integers(0, 1 << 32))
def test_figures_refuse_no_gang_and_take_no_victim_more(seed: int) -> None:
    dice = random.Random(seed)
    case = generate.case(seed)
    snapshot = asking(dice, case)
    told = measured(dice, snapshot, NOW)
    for key in case.asking:
        without, plan = decide(snapshot, OFF, NOW, only=[key]), decide(told, Policy(), NOW, only=[key])
        assert plan.verdicts[key].reason is without.verdicts[key].reason
        if without.admissions and not without.evictions:
            assert plan.admissions
            assert not plan.evictions
        assert len(plan.evictions) == len(without.evictions)
