"""What a day brings: requests of inference services, with bursts, and training Jobs. All from a seed."""

import math
import random
from dataclasses import dataclass
from typing import Final

HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
_TRAINING_CARDS: Final = (1, 1, 1, 2, 2, 4, 8)
"""Members of a Job, each drawn as often as it stands here."""
_SHORTEST_H, _LONGEST_H = 0.5, 6.0


@dataclass(frozen=True, slots=True)
class Burst:
    """A rush of requests: up within seconds, and down again."""

    begin_s: float
    end_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class Service:
    """An inference service. Load is in replicas that would be busy all the time."""

    name: str
    base: float
    """At its quietest hour."""
    peak: float
    """Without bursts, at its busiest hour."""
    peak_at_s: float
    bursts: tuple[Burst, ...]

    def load(self, at_s: float) -> float:
        """Replicas' worth of requests that arrive at this moment."""
        wave = (1 + math.cos(2 * math.pi * (at_s - self.peak_at_s) / DAY_S)) / 2
        load = self.base + (self.peak - self.base) * wave**2
        for burst in self.bursts:
            if burst.begin_s <= at_s < burst.end_s:
                load *= burst.factor
        return load


@dataclass(frozen=True, slots=True)
class Training:
    """A Job of some members with a card's work each, that go at one pace."""

    name: str
    members: int
    work_s: float
    """On cards of its own."""
    arrival_s: float


@dataclass(frozen=True, slots=True)
class Day:
    """All that comes."""

    services: tuple[Service, ...]
    training: tuple[Training, ...]


def day(seed: int, cards: int, *, services_per_card: float = 0.375, training_load: float = 0.75) -> Day:
    """A day for a cluster of so many cards. ``training_load``: of all card-hours, what training asks for."""
    dice = random.Random(seed)  # noqa: S311 - a simulation
    services = tuple(_service(dice, number) for number in range(max(1, round(cards * services_per_card))))
    return Day(services, tuple(_training(dice, cards * 24 * training_load)))


def _service(dice: random.Random, number: int) -> Service:
    bursts = []
    for _ in range(dice.randint(2, 6)):
        begin_s = dice.uniform(0, DAY_S)
        end_s = begin_s + dice.uniform(300, 1500)
        bursts.append(Burst(begin_s, end_s, dice.uniform(1.5, 3.0)))
    # Most people are awake at the same hours; some services work at night.
    peak_h = dice.gauss(15, 2) if dice.random() < 0.75 else dice.gauss(3, 2)
    peak = dice.uniform(0.8, 2.4)
    return Service(f"service-{number}", peak * dice.uniform(0.1, 0.3), peak, peak_h * HOUR_S, tuple(bursts))


def _training(dice: random.Random, card_hours: float) -> list[Training]:
    found: list[Training] = []
    asked_h = 0.0
    while asked_h < card_hours:
        members = dice.choice(_TRAINING_CARDS)
        hours = min(_LONGEST_H, _SHORTEST_H + dice.expovariate(1 / 1.5))
        # A third is there at midnight, the rest comes over the day.
        arrival_s = 0.0 if dice.random() < 1 / 3 else dice.uniform(0, 20 * HOUR_S)
        found.append(Training(f"train-{len(found)}", members, hours * HOUR_S, arrival_s))
        asked_h += members * hours
    return sorted(found, key=lambda one: (one.arrival_s, one.name))
