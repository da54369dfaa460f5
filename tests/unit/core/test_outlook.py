"""Fragments, weights and scores: right by plain loops, and no matter what was worked out before."""

import math
import random

import numpy as np
import pytest
from unit.core import make
from vc_egpu.core.books.state import ClusterState, fresh_index, index_of
from vc_egpu.core.model.cluster import (
    NodeName,
    Pod,
    PodPhase,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    Share,
    ShareClass,
)
from vc_egpu.core.model.policy import BINPACK_RULES, FGD, FULLEST, OURS, Mix, PodClass, Policy
from vc_egpu.core.placing.fragments import Fragments, Sizes, card_key, moved, with_cpu
from vc_egpu.core.placing.measure import Free
from vc_egpu.core.placing.outlook import PodSize, Rule, outlook_of
from vc_egpu.core.placing.place import place
from vc_egpu.core.placing.scores import FGD_RULE, OURS_RULE
from vc_egpu.core.placing.weights import Facts, Regrets, weigh
from vc_egpu.core.trial.trial import Trial

ANYWHERE = PodShape()


def pod_class(cpu: int, cards: int, part: float, frequency: float, **more: object) -> PodClass:
    memory = int(make.H20_MIB * part)
    model = "h20" if cards else ""
    return PodClass(cpu, cards, memory, 0, model, part == 1, False, ANYWHERE, frequency, **more)  # type: ignore[arg-type]


MIX = Mix((
    pod_class(1000, 0, 0, 0.1), pod_class(2000, 1, 0.5, 0.4), pod_class(8000, 1, 0.8, 0.2),
    pod_class(4000, 1, 1, 0.2), pod_class(16000, 4, 1, 0.1),
))  # fmt: skip


POLICY = Policy(mix=MIX)


def cluster(dice: random.Random, nodes: int = 8) -> ClusterState:
    state = ClusterState({"h20": make.H20_MIB})
    state.put_queue(Queue(QueueName("all")))
    for number in range(nodes):
        name = f"n{number}"
        state.put_node(make.node(name, dice.choice([1, 2, 4, 8])))
    for number, node in enumerate(list(state.snapshot(0).nodes.values()) * 3):
        memory = int(make.H20_MIB * dice.choice([0.2, 0.3, 0.5]))
        share = Share(dice.choice(node.cards).uuid, memory, 0)
        held = sum(
            part.memory_mib
            for pod in state.snapshot(0).pods.values()
            for _, part in pod.shares
            if part.card == share.card
        )
        if held + memory <= make.H20_MIB:
            shape = make.shape(memory, cpu_milli=dice.choice([1000, 9000]))
            uid = PodUid(f"held-{number}")
            state.put_pod(Pod(uid, "x", uid, shape, PodPhase.PLACED, node.name, shares=(("main", share),)))
    return state


def trial_of(state: ClusterState, binpack: str = OURS, mix: Mix = MIX) -> Trial:
    return Trial(index_of(state.snapshot(0)), Policy(binpack=binpack, mix=mix), 0)


def fragment(kind: tuple[int, int, int], cpu: int, cards: list[int], beta: float = 0.0) -> float:
    """As the paper has it, and with the look ahead at cores."""
    asks_cpu, milli, count = kind
    good = [card for card in cards if card >= milli]
    if not count or cpu < asks_cpu or len(good) < count:
        return sum(cards)
    copies = sum(card // milli for card in good) // count
    lack = max(0.0, 1 - cpu / asks_cpu / copies) if asks_cpu else 0.0
    return sum(cards) - sum(good) + beta * round(sum(good) * lack)


@pytest.mark.parametrize("beta", [0.0, 0.15])
def test_fragments_are_those_of_the_formula(beta: float) -> None:
    dice = random.Random(3)
    kinds = [(1000, 0, 0), (2000, 470, 1), (0, 810, 1), (9000, 1000, 1), (4000, 1000, 4), (500, 300, 2)]
    columns = [np.array(column, np.int64) for column in zip(*kinds, strict=True)]
    table = Fragments(Sizes(columns[0], columns[1], columns[2]), look_ahead=True)
    weights = np.array([dice.random() for _ in kinds])
    weights /= weights.sum()
    table.weigh(weights, beta)
    for number in range(300):
        cards = [dice.choice([0, 190, 470, 530, 810, 1000]) for _ in range(4)]
        cpu = dice.randrange(20000)
        takes = np.ones((1, len(kinds)), np.bool_)
        numbers = table.enter([number], np.array([cards]), np.array([cpu]), takes)
        parts = [fragment(kind, cpu, cards, beta) for kind in kinds]
        expected = sum(weight * part for weight, part in zip(weights, parts, strict=True))
        assert table.values(np.array(numbers))[0] == pytest.approx(expected, abs=1e-3)


def test_keys_are_equal_for_equal_nodes() -> None:
    key = (card_key(300) + card_key(1000) + card_key(0)) & ((1 << 64) - 1)
    assert moved(moved(key, 300, 810), 810, 300) == key
    assert moved(key, 1000, 530) == (card_key(300) + card_key(530)) & ((1 << 64) - 1)
    assert with_cpu(with_cpu(key, 4000), -4000) == key
    assert with_cpu(key, 1) != key


@pytest.mark.parametrize("rule", [FGD_RULE, OURS_RULE], ids=lambda rule: rule.name)
def test_scores_do_not_depend_on_what_was_worked_out_before(rule: Rule) -> None:
    dice = random.Random(4)
    known = cluster(dice)
    sizes = [PodSize(2000, 500, 1, whole=False), PodSize(4000, 1000, 2, whole=True)]
    sizes.append(PodSize(500, 0, 0, whole=False))
    for turn in range(30):
        name = NodeName(f"n{dice.randrange(8)}")
        node = known.snapshot(0).nodes[name]
        uid = PodUid(f"more-{dice.randrange(6)}")
        known.remove_pod(uid)
        cpu = dice.choice([100, 2000, 30000])
        known.put_pod(Pod(uid, "x", uid, make.shape(0, cpu_milli=cpu), PodPhase.PLACED, node.name))
        snapshot = known.snapshot(turn)
        fresh, again = (Trial(index, POLICY, 0) for index in (index_of(snapshot), fresh_index(snapshot)))
        for size in sizes:
            rows = np.array(sorted(fresh.ledger.rows.values()))
            names = [fresh.ledger.names[row] for row in rows]
            other = np.array([again.ledger.rows[name] for name in names])
            left = outlook_of(fresh, rule).node_scores(fresh, rows, size)
            assert left.tolist() == outlook_of(again, rule).node_scores(again, other, size).tolist()
        fresh.close()


@pytest.mark.parametrize("binpack", BINPACK_RULES)
def test_no_rule_refuses_what_fits(binpack: str) -> None:
    """Members of one kind, one ask each: the count of places is exact, whatever the order."""
    seen = set()
    for seed in range(40):
        dice = random.Random(seed)
        state = cluster(dice)
        part, cards, members = dice.choice([0.3, 0.5, 1.0]), dice.choice([1, 1, 2]), dice.randrange(1, 24)
        shape = make.shape(int(make.H20_MIB * part), cards=cards)
        gang = make.gang("g", share_class=dice.choice(list(ShareClass)), least=members)
        state.put_gang(gang)
        for pod in make.pods("g", members, shape):
            state.put_pod(pod)
        found = [fits(trial_of(state, rule)) for rule in (FULLEST, binpack)]
        assert found[0] == found[1], seed
        seen.add(found[0])
    assert seen == {True, False}


def fits(trial: Trial) -> bool:
    view = trial.index.view("g")
    seated = place(trial, view, view.waiting)
    rows = np.array(sorted(trial.ledger.rows.values()))
    assert trial.ledger.within_limits(rows).all()
    trial.close()
    return seated is not None


def test_without_a_mix_the_fragment_aware_rules_fill_up() -> None:
    for binpack in (FGD, OURS):
        state = cluster(random.Random(9))
        state.put_gang(make.gang("g"))
        for pod in make.pods("g", 1, make.shape(make.H20_MIB // 2)):
            state.put_pod(pod)
        nodes = []
        for rule in (FULLEST, binpack):
            trial = trial_of(state, rule, Mix())
            view = trial.index.view("g")
            seated = place(trial, view, view.waiting)
            assert seated is not None
            nodes.append((trial.ledger.names[seated[0].row], seated[0].assignment))
            trial.close()
        assert nodes[0] == nodes[1]


def test_a_share_goes_where_it_spoils_no_card() -> None:
    """Halves and fifths come: three fifths are of use to nobody's half, but a half and a half fill a card."""
    classes = (pod_class(0, 1, 0.5, 0.5), pod_class(0, 1, 0.3, 0.5))
    table = Regrets(classes, np.array([500, 300]), np.array([0.5, 0.5]))
    assert table.of(500)[500] == 0, "it fills the card"
    assert table.of(500)[800] == 0, "three tenths are left: another share's size"
    assert table.of(500)[600] == 10, "600 could have been two of 300; a hundred are left"
    assert table.of(300)[500] == 20


def free_of(cards: list[list[int]]) -> Free:
    free = Free()
    free.total = np.array([sum(node) for node in cards], np.int64)
    free.intact = np.array([node.count(1000) for node in cards], np.int64)
    return free


def test_scarce_pools_and_sets_weigh_more() -> None:
    facts = Facts(
        np.array([1, 1, 8]), np.array([0.4, 0.3, 0.3]), np.array([0, 1, 0]), np.array([0.5, 0.3, 0.2])
    )
    pools = np.array([[True, True], [False, True]])
    free = free_of([[1000] * 8, [1000] + [0] * 7])
    found = weigh(facts, pools, free, 0.0)
    assert found.beta == 0.15 and found.strictness == 1000
    scarcity = 9.0  # one card of nine, up to the steps
    pressure = min(2.0, 0.3 * scarcity)
    assert found.classes[1] / found.classes[0] == pytest.approx(
        0.6 * (1 + pressure * (scarcity - 1)), rel=0.05
    )
    assert weigh(facts, pools, free, 1.0).strictness == 1
    assert weigh(facts, pools, free, 1.0).beta == 0
    full = weigh(facts, pools, free_of([[1000] * 8, [0] * 8]), 0.5)
    assert full.classes[1] / full.classes[0] == pytest.approx(0.6), "a full pool cannot be kept free"
    assert weigh(facts, pools, free_of([[0] * 8] * 2), 0.5).classes.tolist() == [0.5, 0.3, 0.2]
    assert math.isclose(found.classes.sum(), 1)


@pytest.mark.parametrize("sets", [40, 8, 3, 1, 0])
def test_rare_pods_of_several_cards_count_by_what_they_will_ask_of_sets_that_are_left(sets: int) -> None:
    """One card in a hundred that is asked for is one of eight; ``sets`` are left, and many single cards."""
    facts = Facts(np.array([1, 8]), np.array([0.99, 0.01]), np.array([0, 0]), np.array([0.9, 0.1]))
    cards = [[1000] * 8] * sets + [[1000, 0, 0, 0, 0, 0, 0, 0]] * 2000
    idle, left = sum(map(sum, cards)), 8000 * sets
    found = weigh(facts, np.ones((1, len(cards)), np.bool_), free_of(cards), 0.0).classes
    scarcity = idle / left if left else math.inf
    factor = 1 + min(0.01 * scarcity, 2.0) * (min(scarcity, 50.0) - 1)
    expected = 0.1 * factor / (0.9 + 0.1 * factor)
    assert found[1] == pytest.approx(expected, rel=0.05)


def test_regrets_are_those_of_all_ways_to_fill_a_card() -> None:
    dice = random.Random(8)
    for _ in range(5):
        sizes = sorted({dice.randrange(40, 999) for _ in range(dice.randrange(1, 6))})
        classes = tuple(pod_class(0, 1, size / 1000, 1 / len(sizes)) for size in sizes)
        table = Regrets(classes, np.array(sizes), np.array([1 / len(sizes)] * len(sizes)))
        worth = [0] * 1001
        for room in range(1001):
            worth[room] = max((size + worth[room - size] for size in sizes if size <= room), default=0)
        for size in (1, 190, 470, 810, 999):
            loss = {room: worth[room] - worth[room - size] for room in range(size, 1001)}
            least = min(loss.values())
            assert all(table.of(size)[room] == round((loss[room] - least) / 10) for room in loss)
        assert not table.of(1000).any()
