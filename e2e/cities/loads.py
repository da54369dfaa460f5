"""Random work in each city, so that a Job starts at another time in each."""

import random
from dataclasses import dataclass
from typing import Final, Literal

from localcluster.kwok import SUCCEED_AFTER
from outcomes.workload import shares
from rigs.foresight import CARDS, OTHERS, OURS, Json, gang_job
from vc_egpu.volcano.words import names

from cities.group import NODES, City, Group

Load = Literal["free", "ends", "held", "gives way"]
"""No work; work that says when it ends; work that does not; low work, which makes room for high."""
ENDS_S: Final = (14, 22, 30)
"""When work ends. They lie far apart, so that what the machine does meanwhile changes no order."""


@dataclass(frozen=True, slots=True)
class Case:
    """What runs in each city, and what is submitted then."""

    loads: dict[str, tuple[Load, int]]
    """With the seconds until it ends."""
    job: Json

    @property
    def told(self) -> str:
        """For people."""
        kinds = ", ".join(
            f"{city} {kind}{f' in {ends_s} s' if kind == 'ends' else ''}"
            for city, (kind, ends_s) in self.loads.items()
        )
        return f"{self.job['metadata']['name']}: {kinds}"


def random_case(rng: random.Random, number: int) -> Case:
    """In one city at least the Job starts some time."""
    kinds: list[Load] = [rng.choice(["ends", "ends", "free"])]
    kinds += rng.choices(["free", "ends", "ends", "held", "gives way"], k=len(NODES) - 1)
    rng.shuffle(kinds)
    ends_s = rng.sample(ENDS_S, len(NODES))
    members, cards = rng.choice([1, 2]), rng.choice([1, 2])
    job = gang_job(f"case{number}", OURS, members, shares(cards=cards), rng.choice(["low", "high"]))
    return Case(dict(zip(NODES, zip(kinds, ends_s, strict=True), strict=True)), job)


def lay(group: Group, case: Case) -> None:
    """Have the work run: a Job for each node, which takes all of its cards."""
    wanted: list[tuple[City, str]] = []
    for name, (kind, ends_s) in case.loads.items():
        if kind == "free":
            continue
        city = group.cities[name]
        marks = {names.EXPECTED_RUNTIME: f"{ends_s}s", SUCCEED_AFTER: f"{ends_s}s"} if kind == "ends" else {}
        priority = "low" if kind == "gives way" else "high"
        for number in range(NODES[name]):
            work = gang_job(f"work{number}", OTHERS, 1, shares(cards=CARDS), priority, **marks)
            wanted.append((city, city.town.submit(work)))
    for city, key in wanted:
        city.town.until_runs(key, 1)
