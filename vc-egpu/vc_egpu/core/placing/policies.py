"""Placement policies, one row of a table each. To add one, write it here and name it in ``model/policy.py``.

A policy has two halves, which a pod may name apart: the order of nodes, and the choice of cards on a node.
:mod:`.place`, :mod:`.pack` and :mod:`.search` ask the same object. No other module knows a policy by name.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Protocol

from vc_egpu.core.books.capacity import AskNeed, Need
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.model import policy
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.policy import Mix
from vc_egpu.core.placing.nodes import Nodes, fill_up, one_by_one
from vc_egpu.core.placing.slot import Slot


class NodeOrder(Protocol):
    """The order in which nodes get members."""

    def scores(self, nodes: Nodes) -> Ints:
        """By row of ``nodes``, the lowest first."""
        ...

    def deal(self, nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
        """How many members each row gets: ``wanted`` in all, or fewer where there is no room for more."""
        ...


class CardChoice(Protocol):
    """The choice of a set of cards for one ask. It sees all open cards, so it may choose linked ones."""

    def best(self, cards: Sequence[Slot], ask: AskNeed, mix: Mix) -> Sequence[Slot]:
        """The set that the ask gets: ``ask.cards`` of ``cards``. Fewer where the policy finds no such set."""
        ...

    def every(self, cards: Sequence[Slot], ask: AskNeed, mix: Mix) -> Iterator[Sequence[Slot]]:
        """Every set of ``ask.cards``, for a search that needs any place at all."""
        ...


@dataclass(frozen=True, slots=True)
class Placement:
    """A policy that users may name."""

    name: str
    nodes: NodeOrder
    cards: CardChoice


_Key = Callable[[Slot, AskNeed], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _ByFullness:
    """Nodes by how full they are."""

    sign: int
    """-1: the fullest first; 1: the emptiest."""
    dealt: Callable[[Nodes, Ints, int], dict[int, int]]

    def scores(self, nodes: Nodes) -> Ints:
        return nodes.fullness() * self.sign

    def deal(self, nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
        return self.dealt(nodes, scores, wanted)


@dataclass(frozen=True, slots=True)
class _ByKey:
    """Cards one after the other in the order of a key: no card's worth depends on the others of the set."""

    key: _Key

    def best(self, cards: Sequence[Slot], ask: AskNeed, mix: Mix) -> Sequence[Slot]:
        del mix
        key = self.key
        return sorted(cards, key=lambda slot: key(slot, ask))[: ask.cards]

    def every(self, cards: Sequence[Slot], ask: AskNeed, mix: Mix) -> Iterator[Sequence[Slot]]:
        del mix
        # A search comes last, where keeping room is all that matters: tightest first under every policy.
        return combinations(sorted(cards, key=lambda slot: _tightest(slot, ask)), ask.cards)


def _tightest(slot: Slot, ask: AskNeed) -> tuple[int, ...]:
    return (slot.disturbs(ask), slot.physical_mib, min(slot.high, slot.low), slot.col)


def _emptiest(slot: Slot, ask: AskNeed) -> tuple[int, ...]:
    return (
        slot.disturbs(ask),
        slot.sharers,
        -slot.physical_mib,
        -min(slot.high, slot.low),
        slot.col,
    )


def _roomiest(slot: Slot, ask: AskNeed) -> tuple[int, ...]:
    return (-slot.room(ask), slot.disturbs(ask), slot.col)


BINPACK: Final = Placement(policy.BINPACK, _ByFullness(-1, fill_up), _ByKey(_tightest))
SPREAD: Final = Placement(policy.SPREAD, _ByFullness(1, one_by_one), _ByKey(_emptiest))
TABLE: Final[Mapping[str, Placement]] = {each.name: each for each in (BINPACK, SPREAD)}
"""By name. A name that is not in here gets the default."""

ROOMIEST: Final[CardChoice] = _ByKey(_roomiest)
"""Users cannot name it: the cards that take most further shares like this first. It keeps the most room."""


def card_choice(need: Need) -> CardChoice:
    """The choice of cards that the pods ask for; binpack by default."""
    return TABLE.get(need.shape.card_policy, BINPACK).cards


def node_order(view: GangView, need: Need) -> NodeOrder:
    """The order of nodes that the pods ask for. By default replicas of a high-priority service are spread."""
    asked = TABLE.get(need.shape.node_policy)
    if asked is not None:
        return asked.nodes
    service = view.gang.single and view.gang.share_class is ShareClass.HIGH
    return (SPREAD if service and need.uses_cards else BINPACK).nodes
