"""Placement policies, one row of a table each. To add one, write it here and name it in ``model/policy.py``.

A policy has two halves, which a pod may name apart: the order of nodes, and the choice of cards on a node.
:mod:`.place`, :mod:`.pack` and :mod:`.search` ask the same object. No other module knows a policy by name.
Users name a policy of :data:`TABLE`. What its ``binpack`` means is the operator's choice among :data:`RULES`.
Where they name none, a rule of the operator's may (:mod:`vc_egpu.core.profiles.table`).
What nodes measure sits on any of them (:func:`by_use`), as links do.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, Protocol

import numpy as np

from vc_egpu.core.books.capacity import AskNeed, Need
from vc_egpu.core.books.ledger import Ints
from vc_egpu.core.measured.use import FULL_POINTS, USUAL_POINTS
from vc_egpu.core.model import policy
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.placing.nodes import Nodes, busyness, fill_up, one_by_one, reach, short_of
from vc_egpu.core.placing.scores import (
    FGD_RULE,
    OURS_RULE,
    best_fit,
    by_chance,
    by_outlook,
    card_by_chance,
    card_by_outlook,
    packing,
)
from vc_egpu.core.placing.slot import Scene, Slot
from vc_egpu.core.profiles.table import NO_PROFILE, Profile


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

    @property
    def card_by_card(self) -> bool:
        """Whether each card has a rank of its own, where links are alike: the best set of two has the best
        card in it."""
        ...

    def best(self, cards: Sequence[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        """The set that the ask gets: ``ask.cards`` of ``cards``. Fewer where the policy finds no such set."""
        ...

    def every(self, cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
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

    @property
    def card_by_card(self) -> bool:
        return True

    def best(self, cards: Sequence[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        key = self.key
        chosen = sorted(cards, key=lambda slot: key(slot, ask))[: ask.cards]
        return _least_missed(chosen, cards, scene)

    def every(self, cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
        return _every(cards, ask)


@dataclass(frozen=True, slots=True)
class _ByScore:
    """Nodes by a score, the highest first, one filled after the other."""

    score: Callable[[Nodes], Ints]

    def scores(self, nodes: Nodes) -> Ints:
        return -self.score(nodes)

    def deal(self, nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
        return fill_up(nodes, scores, wanted)


@dataclass(frozen=True, slots=True)
class _ByCardScore:
    """Cards by a score of each free part of a card, the highest first; otherwise the tightest."""

    score: Callable[[Scene, AskNeed], Mapping[int, tuple[int, ...]]]
    """By column, for open cards and others; empty where nothing tells them apart."""

    @property
    def card_by_card(self) -> bool:
        return False

    def best(self, cards: Sequence[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        by_col = self.score(scene, ask) if len(cards) > ask.cards and not ask.ask.slice else {}

        def key(slot: Slot) -> tuple[int, ...]:
            if slot.col in by_col:
                return (slot.disturbs(ask), *by_col[slot.col], slot.col)
            return _tightest(slot, ask)

        return _least_missed(sorted(cards, key=key)[: ask.cards], cards, scene)

    def every(self, cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
        return _every(cards, ask)


@dataclass(frozen=True, slots=True)
class _ByLinks:
    """Several cards as the set that is linked best; else, and where no links are known, as another choice."""

    otherwise: CardChoice

    @property
    def card_by_card(self) -> bool:
        return False

    def best(self, cards: Sequence[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        wiring = scene.ledger.wired[scene.row]
        if ask.cards < 2 or wiring is None or wiring.uniform:
            return self.otherwise.best(cards, ask, scene)
        calm = [slot for slot in cards if not slot.disturbs(ask)]
        pool = calm if len(calm) >= ask.cards else cards
        by_col = {slot.col: slot for slot in sorted(pool, key=lambda slot: _tightest(slot, ask))}
        return [by_col[col] for col in wiring.best(tuple(by_col), ask.cards)]

    def every(self, cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
        return _every(cards, ask)


@dataclass(frozen=True, slots=True)
class _ByReach:
    """Nodes by the links of the best set that they have left, then in another order."""

    otherwise: NodeOrder

    def scores(self, nodes: Nodes) -> Ints:
        return _first(reach(nodes), self.otherwise.scores(nodes))

    def deal(self, nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
        return self.otherwise.deal(nodes, scores, wanted)


@dataclass(frozen=True, slots=True)
class _ByIdleCards:
    """Nodes on whose cards the work finds the compute that it will use, then in another order."""

    otherwise: NodeOrder
    ask: AskNeed
    uses_points: int

    def scores(self, nodes: Nodes) -> Ints:
        return _first(short_of(nodes, self.ask, self.uses_points), self.otherwise.scores(nodes))

    def deal(self, nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
        return self.otherwise.deal(nodes, scores, wanted)


@dataclass(frozen=True, slots=True)
class _Calmest:
    """Nodes by what is booked and by what is measured: either counts half."""

    otherwise: NodeOrder

    def scores(self, nodes: Nodes) -> Ints:
        scores, measured = self.otherwise.scores(nodes), busyness(nodes)
        return scores if measured is None else np.asarray(scores + measured, np.int64)

    def deal(self, nodes: Nodes, scores: Ints, wanted: int) -> dict[int, int]:
        return self.otherwise.deal(nodes, scores, wanted)


@dataclass(frozen=True, slots=True)
class _OfIdleCards:
    """As another choice, of those cards on which the work finds most of the compute that it will use."""

    otherwise: CardChoice
    uses_points: int

    @property
    def card_by_card(self) -> bool:
        return False

    def best(self, cards: Sequence[Slot], ask: AskNeed, scene: Scene) -> Sequence[Slot]:
        trial = scene.trial
        if trial is None or len(cards) <= ask.cards:
            return self.otherwise.best(cards, ask, scene)
        row, width = np.array([scene.row], np.int64), scene.ledger.kind.shape[1]
        points = trial.index.busy.compute(row, width, trial.now, policy.CLOCK_SKEW_S)
        if points is None:
            return self.otherwise.best(cards, ask, scene)
        booked = trial.index.ledger
        awake = (booked.sharers[scene.row] - booked.asleep[scene.row]).tolist()
        measured = points[0].tolist()
        short = dict[int, int]()
        for slot in cards:
            new = max(0, slot.sharers - awake[slot.col])  # placed by this decision, and not measured yet
            short[slot.col] = max(0, measured[slot.col] + self.uses_points * (1 + new) - FULL_POINTS)
        most = sorted(short.values())[ask.cards - 1]
        return self.otherwise.best([slot for slot in cards if short[slot.col] <= most], ask, scene)

    def every(self, cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
        return self.otherwise.every(cards, ask)


def _first(classes: Ints | None, scores: Ints) -> Ints:
    """The order of the classes, and within each that of the scores."""
    if classes is None or not len(scores):
        return scores
    from_zero = scores - scores.min()
    return np.asarray(classes * (from_zero.max() + 1) + from_zero, np.int64)


def _least_missed(chosen: Sequence[Slot], cards: Sequence[Slot], scene: Scene) -> Sequence[Slot]:
    """The chosen card, or one that is idle like it and whose links others will miss less.

    Sets of several cards stay as they are.
    """
    wiring = scene.ledger.wired[scene.row]
    if len(chosen) != 1 or wiring is None or wiring.uniform or chosen[0].sharers:
        return chosen
    state = chosen[0].state()
    alike = {slot.col: slot for slot in (*chosen, *cards) if slot.state() == state}
    return [alike[col] for col in wiring.best(tuple(alike), 1)]


def _every(cards: Sequence[Slot], ask: AskNeed) -> Iterator[Sequence[Slot]]:
    # A search comes last, where keeping room is all that matters: tightest first under every policy.
    return combinations(sorted(cards, key=lambda slot: _tightest(slot, ask)), ask.cards)


def _tightest(slot: Slot, ask: AskNeed) -> tuple[int, ...]:
    return (slot.disturbs(ask), slot.lost(ask), slot.physical_mib, min(slot.high, slot.low), slot.col)


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
"""By name. A name that is not in here gets the default. ``topology`` goes by links, then by the default."""
RULES: Final[Mapping[str, Placement]] = {
    each.name: each
    for each in (
        Placement(policy.FULLEST, BINPACK.nodes, BINPACK.cards),
        Placement(policy.RANDOM, _ByScore(by_chance), _ByCardScore(card_by_chance)),
        Placement(policy.BEST_FIT, _ByScore(best_fit), BINPACK.cards),
        Placement(policy.PACKING, _ByScore(packing), BINPACK.cards),
        Placement(policy.FGD, _ByScore(by_outlook(FGD_RULE)), _ByCardScore(card_by_outlook(FGD_RULE))),
        Placement(policy.OURS, _ByScore(by_outlook(OURS_RULE)), _ByCardScore(card_by_outlook(OURS_RULE))),
    )
}
"""What binpack may mean, by the operator's name for it."""

ROOMIEST: Final[CardChoice] = _ByKey(_roomiest)
"""Users cannot name it: the cards that take most further shares like this first. It keeps the most room."""


def card_choice(need: Need, chosen: Policy, profile: Profile = NO_PROFILE) -> CardChoice:
    """The choice of cards that the pods ask for, else a rule. By default whole cards go by links, else
    binpack."""
    own = need.shape.card_policy
    cards = _asked(own, profile.cards, chosen, BINPACK).cards
    return _ByLinks(cards) if _linked(own, profile.cards, need) else cards


def node_order(view: GangView, need: Need, chosen: Policy, profile: Profile = NO_PROFILE) -> NodeOrder:
    """The order of nodes that the pods ask for, else a rule. By default replicas of a high-priority service
    are spread."""
    own = need.shape.node_policy
    service = view.gang.single and view.gang.share_class is ShareClass.HIGH
    default = SPREAD if service and need.uses_cards else BINPACK
    order = _asked(own, profile.nodes, chosen, default).nodes
    return _ByReach(order) if _linked(own, profile.nodes, need) else order


def wants_spread(need: Need, profile: Profile) -> bool:
    """Whether pods, or a rule, say that members are to be spread over nodes."""
    own = need.shape.node_policy
    return (own if own in policy.PLACEMENTS else profile.nodes) == policy.SPREAD


def follows(need: Need, profile: Profile) -> bool:
    """Whether a rule has a say in where such pods go: they do not name all that it speaks of."""
    halves = ((need.shape.node_policy, profile.nodes), (need.shape.card_policy, profile.cards))
    said = [(own, ruled) for own, ruled in halves if ruled]
    return not said or any(
        own not in policy.PLACEMENTS or (own == policy.BINPACK and ruled in RULES) for own, ruled in said
    )


def goes_by(name: str, chosen: Policy, profile: Profile) -> bool:
    """Whether this meaning of binpack places such work, its nodes or its cards."""
    return name in {_meaning(profile.nodes, chosen), _meaning(profile.cards, chosen)}


def _meaning(ruled: str, chosen: Policy) -> str:
    return ruled if ruled in RULES else chosen.binpack


def _linked(name: str, ruled: str, need: Need) -> bool:
    """Whether links decide: pods or a rule say so, or nothing is named for several whole cards."""
    said = name if name in policy.PLACEMENTS else ruled
    if said in TABLE:
        return False
    return said == policy.TOPOLOGY or any(ask.alone and ask.cards > 1 for ask in need.asks)


def spreads_out(order: NodeOrder) -> bool:
    """Whether the order gives each member to the node that has the fewest of its gang."""
    if isinstance(order, _ByReach | _ByIdleCards | _Calmest):
        return spreads_out(order.otherwise)
    return order is SPREAD.nodes


def by_use(cards: CardChoice, order: NodeOrder, view: GangView, need: Need) -> tuple[CardChoice, NodeOrder]:
    """The same, with busy nodes and cards later where that matters: for shares without guaranteed cores, and
    where members are spread. The same objects for other work."""
    if spreads_out(order):
        order = _Calmest(order)
    free = [ask for ask in need.asks if not (ask.cores_percent or ask.alone or ask.ask.slice)]
    if not free:
        return cards, order
    uses_points = view.gang.traits.uses_points
    uses_points = USUAL_POINTS if uses_points is None else uses_points
    order = _ByIdleCards(order, max(free, key=lambda ask: ask.cards), uses_points)
    return (_OfIdleCards(cards, uses_points) if len(need.asks) == 1 else cards), order


def _asked(name: str, ruled: str, chosen: Policy, default: Placement) -> Placement:
    """What pods name counts before what a rule names. A rule's meaning of binpack holds where pods name
    binpack, too."""
    asked = TABLE.get(name) or TABLE.get(ruled) or (BINPACK if ruled in RULES else default)
    return RULES.get(_meaning(ruled, chosen), BINPACK) if asked is BINPACK else asked
