"""Three random clusters and one Job: the chosen cluster starts it first, when each does as it decides."""

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

import seeds
from property import generate
from property.test_what_if import (
    NOW,
    emptier,
    first_end_that_helps,
    submitted,
    with_ends,
    without,
    world_of,
)
from vc_egpu.cli.submit.ranking import Offer, offered, ranked
from vc_egpu.core.model.cluster import Snapshot
from vc_egpu.core.model.policy import Policy
from vc_egpu.whatif.answers import Asked, would_start

CASES: Final = 100
CITIES: Final = ("hangzhou", "shanghai", "xian")


@dataclass(frozen=True, slots=True)
class Start:
    """What one cluster really does."""

    in_s: float
    """Infinite: it never starts there by itself."""
    evicts: bool


def varied(whole: Snapshot, rng: random.Random) -> Snapshot:
    """The cluster with less of its work, some of which says when it ends."""
    for _ in range(rng.choice([0, 1, 2])):
        whole = emptier(whole, rng)
    return with_ends(whole, rng)


def offer_of(city: str, place: int, base: Snapshot, asked: Asked) -> Offer:
    return offered(city, would_start(base, Policy(), NOW, asked), NOW, place=place)


def start_in(base: Snapshot, asked: Asked) -> Start:
    """The Job is made there, and the cluster decides again at each end of work."""
    plan = submitted(world_of(base), asked)
    now = next((one for one in plan.admissions if one.gang == asked.gang.key), None)
    if now is not None:
        return Start(0.0, bool(now.evictions or now.suspensions))
    at = first_end_that_helps(base, world_of(base), asked)
    return Start(math.inf if at is None else at - NOW, evicts=False)


def test_the_chosen_cluster_is_the_one_that_starts_it_first() -> None:
    """100 cases. Among clusters that start it at once, one where nobody has to go is chosen."""
    chances: Counter[str] = Counter()
    for seed in seeds.fresh(CASES):
        case = generate.case(seed)
        whole, asked = without(case.snapshot, case.asking[0])
        bases = [varied(whole, random.Random(f"{seed}-{city}")) for city in CITIES]
        offers = [
            offer_of(city, place, base, asked)
            for place, (city, base) in enumerate(zip(CITIES, bases, strict=True))
        ]
        first = ranked(offers)[0]
        starts = {city: start_in(base, asked) for city, base in zip(CITIES, bases, strict=True)}
        soonest = min((start.in_s, start.evicts) for start in starts.values())
        chosen = starts[first.cluster]
        assert (chosen.in_s, chosen.evicts) == soonest, (seed, first, starts)
        differ = len({(start.in_s, start.evicts) for start in starts.values()}) > 1
        chances[first.chance if differ else "all alike"] += 1
    assert {"starts", "waits"} <= set(chances), chances
