"""Which cluster a Job is sent to: where it starts first. Pure."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from vc_egpu.whatif.answers import Answer

Chance = Literal["starts", "makes room", "waits", "refused", "cannot tell"]
"""The last two are never sent to."""
_ORDER: dict[Chance, int] = {"starts": 0, "makes room": 1, "waits": 2}


@dataclass(frozen=True, slots=True)
class Offer:
    """What one cluster would do with the Job."""

    cluster: str
    city: str
    place: int
    """Its place in the list of clusters, from 0."""
    chance: Chance
    starts_in_s: float = math.inf
    """Seconds from now, where it waits; infinite: nobody knows."""
    more: int = 0
    """So many more of the same would start there."""
    mbit_per_s: float = 0.0
    """To the cluster that has the data: infinite in that one, 0 where it is not known."""
    why: str = ""
    """For people: a reason, or where its members go."""

    @property
    def takes_it(self) -> bool:
        """Whether it may be sent there."""
        return self.chance in _ORDER


def offered(
    cluster: str, answer: Answer, now: float, *, city: str = "", place: int = 0, mbit_per_s: float = 0.0
) -> Offer:
    """What a cluster's answer says. ``now``: that cluster's own, seconds since 1970."""
    wait_s = max(0.0, answer.forecast.at - now) if answer.forecast is not None else math.inf
    where = ", ".join(f"{each.members} on {each.node}" for each in answer.places[:3])
    return Offer(
        cluster,
        city,
        place,
        answer.outcome,
        starts_in_s=wait_s,
        more=answer.more,
        mbit_per_s=mbit_per_s,
        why=answer.message if answer.outcome == "waits" else where,
    )


def ranked(offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The first starts first. Among equals: nearest to the data, then most room left, then as listed.

    Clocks of clusters are not compared: each says how long from its own now. Those that do not take it come
    last.
    """

    def key(offer: Offer) -> tuple[int, float, float, int, int]:
        order = _ORDER.get(offer.chance, len(_ORDER))
        wait_s = offer.starts_in_s if offer.chance == "waits" else 0.0
        return order, wait_s, -offer.mbit_per_s, -offer.more, offer.place

    return tuple(sorted(offers, key=key))
