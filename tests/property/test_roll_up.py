"""What queues deserve and are guaranteed adds up through parents: random trees against spelt-out rules."""

import random

import pytest
import seeds
from property import brute_rounds, brute_search
from unit.core import make
from vc_egpu.core.books.state import fresh_index
from vc_egpu.core.model.cluster import CardAsk, Pod, Queue, QueueName, Snapshot
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.queues import deserved
from vc_egpu.core.standing import guaranteed
from vc_egpu.core.trial.claims import ClaimKind
from vc_egpu.core.trial.trial import Trial

KINDS = ("volcano.sh/vgpu-h20", "volcano.sh/gpu-h20", "volcano.sh/vgpu-t4")
H20 = KINDS[0]
TREES = 60
CARDS = 60
WHOLE = make.shape(asks=(CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True),), cpu_milli=1)


def tree(rng: random.Random) -> list[Queue]:
    """Up to ten queues on up to four levels, some of which name something."""
    found: list[Queue] = []
    for number in range(rng.randint(1, 10)):
        parent = rng.choice([None, *(queue.name for queue in found)])
        found.append(
            Queue(
                QueueName(f"q{number}"),
                parent,
                capability={H20: 1000},
                deserved={kind: rng.randint(0, 4) for kind in KINDS if rng.random() < 0.4},
                guarantee={H20: rng.randint(0, 5)} if rng.random() < 0.5 else {},
            )
        )
    rng.shuffle(found)
    return found


@pytest.mark.parametrize("seed", [*range(TREES), *seeds.fresh(TREES)])
def test_lines_are_those_that_are_named_or_what_is_below_them(seed: int) -> None:
    snapshot = make.snapshot(queues=tree(random.Random(seed)))
    found = deserved.lines(Trial(fresh_index(snapshot), Policy(), 0.0), {"h20": make.H20_MIB})
    for name, queue in snapshot.queues.items():
        for kind in KINDS:
            assert found.get(name, {}).get(kind) == brute_rounds.line(snapshot, queue, kind), (name, kind)


def _running(rng: random.Random, queues: list[Queue]) -> tuple[Snapshot, dict[str, int]]:
    """Whole cards that gangs of these queues use; a card each, on one large node."""
    gangs, pods, uses = [], list[Pod](), dict[str, int]()
    for queue in queues:
        count = rng.choice([0, 0, 1, 2])
        key = f"g-{queue.name}"
        for pod in make.pods(key, count, WHOLE):
            pods.append(make.placed(pod, f"n1/{len(pods)}"))
        if count:
            gangs.append(make.gang(key, least=count, queue=queue.name))
        uses[queue.name] = count
    return make.snapshot([make.node("n1", CARDS)], gangs, pods, queues), uses


@pytest.mark.parametrize("seed", [*range(TREES), *seeds.fresh(TREES)])
def test_places_are_kept_up_to_each_guarantee_and_no_more(seed: int) -> None:
    """Of each queue: what it and those below it use and are kept is its guarantee, unless they have more."""
    queues = tree(random.Random(f"guarantees {seed}"))
    snapshot, uses = _running(random.Random(f"use {seed}"), queues)
    trial = Trial(fresh_index(snapshot), Policy(), 0.0)
    guaranteed.book(trial)
    kept = {claim.queue: len(claim.bookings) for claim in trial.claims.of(ClaimKind.GUARANTEE)}
    for queue in queues:
        branch = [one.name for one in queues if queue.name in brute_search.chain(snapshot, one.name)]
        used = sum(uses[name] for name in branch)
        below = sum(kept.get(name, 0) for name in branch if name != queue.name)
        assert kept.get(queue.name, 0) == max(0, queue.guarantee.get(H20, 0) - used - below), queue.name
