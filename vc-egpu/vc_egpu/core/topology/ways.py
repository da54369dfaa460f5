"""How cards of a node reach each other, by what they tell of their links."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from vc_egpu.core.topology.links import Ends, Near
from vc_egpu.core.topology.wiring import Wiring, wiring

_Id = TypeVar("_Id", bound=Hashable)


class Linked(Protocol[_Id]):
    """What of a card this needs: see :class:`.cluster.Card`."""

    @property
    def uuid(self) -> _Id:
        """Its name."""

    @property
    def links(self) -> Mapping[_Id, int]:
        """Peer to number of NVLinks that lead straight to it."""

    @property
    def switch_links(self) -> int:
        """NVLinks that end at a switch."""

    @property
    def link_mb_s(self) -> int:
        """What one NVLink carries each way, in MB/s; 0: not known."""

    @property
    def near(self) -> Mapping[_Id, Near]:
        """Peer to the way over PCIe."""


def ends_of(one: Linked[_Id], other: Linked[_Id]) -> Ends:
    """What two cards of a node tell of the way between them. Either may tell what the other does not."""
    nvlinks = max(one.links.get(other.uuid, 0), other.links.get(one.uuid, 0))
    nvlinks = nvlinks or min(one.switch_links, other.switch_links)
    near = one.near.get(other.uuid) or other.near.get(one.uuid)
    return Ends(nvlinks, min(one.link_mb_s, other.link_mb_s), near)


def wiring_of(cards: Sequence[Linked[_Id]]) -> Wiring | None:
    """How these cards of a node reach each other, by their places in ``cards``; None where none tells."""
    if not any(card.links or card.switch_links or card.near for card in cards):
        return None
    return wiring(tuple(tuple(ends_of(one, other).mb_s for other in cards) for one in cards))
