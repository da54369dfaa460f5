"""Members dealt to nodes: as if all nodes were looked at, in whatever pieces they are."""

import random

import numpy as np
from unit.core import make
from vc_egpu.core.books.capacity import candidates, need_of, rooms
from vc_egpu.core.books.state import index_of
from vc_egpu.core.model.cluster import PodShape, ShareClass
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.placing.nodes import Nodes, fill_up
from vc_egpu.core.trial.trial import Trial

HELD = [(8192, 10), (16384, 25), (49152, 50)]
ASKED = [(16384, 25), (49152, 0), (73728, 100), (73728, 100)]
CLASSES = list(ShareClass)


def crowded(dice: random.Random, nodes: int) -> Trial:
    """Nodes of one or two cards, most of them with shares of all classes."""
    state = make.state(make.snapshot(nodes=[make.node(f"n{n}", dice.choice([1, 2])) for n in range(nodes)]))
    for share_class in CLASSES:
        state.put_gang(make.gang(f"held-{share_class.name}", share_class=share_class))
    for number, node in enumerate(list(state.snapshot(0).nodes.values())):
        for card in node.cards:
            if dice.random() < 0.02:
                continue
            memory, cores = dice.choice(HELD)
            gang = f"held-{dice.choice(CLASSES).name}"
            held = make.pods(gang, 1, make.shape(memory, cores), task=f"t{number}-{card.index}")
            state.put_pod(make.placed(held[0], card.uuid, node=node.name))
    return Trial(index_of(state.snapshot(0)), Policy(), 0)


def dumb(nodes: Nodes, scores: np.ndarray, wanted: int) -> dict[int, int]:
    """All rows at once, first what disturbs no other, then the rest."""
    room, calm = rooms(nodes.trial.ledger, nodes.need, nodes.rows)
    ranked = np.lexsort((nodes.ranks(), scores)).tolist()
    counts: dict[int, int] = {}
    for left in (calm, room - calm):
        for at in ranked:
            count = min(int(left[at]), wanted)
            if count:
                row = int(nodes.rows[at])
                counts[row] = counts.get(row, 0) + count
                wanted -= count
    return counts


def test_the_rows_that_are_left_out_would_have_got_nobody() -> None:
    disturbing = 0
    for seed in range(30):
        dice = random.Random(seed)
        trial = crowded(dice, 700)
        shape: PodShape = make.shape(*dice.choice(ASKED))
        need = need_of(trial.ledger, shape, dice.choice([ShareClass.LOW, ShareClass.HIGH]))
        rows = candidates(trial.ledger, need, np.ones(len(trial.ledger.names), np.bool_))
        nodes = Nodes(trial, trial.index.view("held-LOW"), need, rows)
        scores = np.array([dice.randrange(5) for _ in rows], np.int64)
        wanted = dice.choice([1, 8, 60, 120, 3000])
        expected = dumb(nodes, scores, wanted)
        assert fill_up(nodes, scores, wanted) == expected, seed
        calm = rooms(trial.ledger, need, rows)[1].sum()
        disturbing += calm < sum(expected.values())
        trial.close()
    assert disturbing > 5, "too few looks reached shares that disturb others"
