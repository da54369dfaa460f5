"""The kubelet's slots of one resource: ids and health. Pure.

Slots are not cards. A slot only says "one more share may start here"; which card it is stands in the pod's
annotation. So an ill card makes *free* slots unhealthy, as many as nobody has of its S, never one that a
running container holds: the kubelet's view must not fail pods on healthy cards, and what is free there stays.
"""

from collections.abc import Set
from dataclasses import dataclass

from vc_egpu_node.cards.inventory import Offer


@dataclass(frozen=True, slots=True)
class Slot:
    """One device as the kubelet sees it."""

    id: str
    healthy: bool


def slot_id(number: int) -> str:
    """``s0``, ``s1``, ...: the same ids after every restart."""
    return f"s{number}"


def slots(offer: Offer, per_card: int, in_use: Set[str]) -> tuple[Slot, ...]:
    """All slots: cards × ``per_card``, of which out × ``per_card``, less what is held there, are unhealthy:
    free ones, the last. What is held of cards that do not count is listed on top.

    Slots in use stay listed and healthy even where cards or ``per_card`` became fewer."""
    ids = [slot_id(number) for number in range(offer.cards * per_card + offer.beside)]
    known = set(ids)
    ids += sorted((used for used in in_use if used not in known), key=_order)
    free = [identity for identity in ids if identity not in in_use and identity in known]
    out = max(0, offer.out * per_card - offer.out_held)
    unhealthy = set(free[max(0, len(free) - out) :]) if out else set()
    return tuple(Slot(identity, identity not in unhealthy) for identity in ids)


def _order(identity: str) -> tuple[int, str]:
    digits = identity[1:]
    return (int(digits), "") if digits.isdecimal() else (1 << 30, identity)
