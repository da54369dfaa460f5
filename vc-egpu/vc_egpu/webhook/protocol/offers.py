"""What nodes offer of each model, as far as warnings go by it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from vc_egpu.core.environments.backends import HELD
from vc_egpu.core.environments.needs import NO_FACTS, Crowd, Facts
from vc_egpu.volcano.needs.nodes import environment
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, NodeCards


@dataclass(frozen=True, slots=True)
class Offer:
    """One node's shares of one model."""

    stretched: bool = False
    """It promises more memory than there is: shares may spill to the host."""
    enforced: bool = False
    """The library or the driver keeps containers to their share."""


def cards_of(annotations: Mapping[str, object]) -> NodeCards | None:
    """What a Node's agent tells; None where it tells nothing that can be read."""
    try:
        return NodeCards.decode(str(annotations.get(names.NODE_CARDS) or ""))
    except AnnotationError:
        return None


def offers_of(told: NodeCards | None) -> dict[str, Offer]:
    """By model, what a Node offers. Empty where it gives no shares."""
    if told is None or told.mode != "shared":
        return {}
    kept = {card.model: card.isolation in HELD for card in told.cards if card.offered or card.held}
    return {model: Offer(told.memory_ratio > 1, enforced) for model, enforced in kept.items()}


def facts_of(told: NodeCards | None, labels: Mapping[str, str]) -> Facts:
    """What a Node's agent and its labels tell of its software; none where the agent tells nothing."""
    return NO_FACTS if told is None else environment(told, labels)


@dataclass(slots=True)
class Offers:
    """What all nodes offer. One thread writes, any may read."""

    _nodes: dict[str, Mapping[str, Offer]] = field(default_factory=dict)
    _counts: dict[tuple[str, Offer], int] = field(default_factory=dict)
    """How many nodes offer this of a model."""
    _facts: dict[str, Facts] = field(default_factory=dict)
    """By node."""
    _crowds: dict[str, Counter[Facts]] = field(default_factory=dict)
    """By model, how many of its nodes tell what of their software. Replaced as a whole, never changed."""

    def put(self, node: str, offered: Mapping[str, Offer], facts: Facts = NO_FACTS) -> None:
        """The node offers this now, and nothing else; empty where it is gone."""
        before = self._nodes.get(node, {})
        self._count_facts(node, before, offered, facts)
        if offered == before:
            return
        for sign, offers in ((1, offered), (-1, before)):
            for key in offers.items():
                self._counts[key] = self._counts.get(key, 0) + sign
        if offered:
            self._nodes[node] = offered
        else:
            del self._nodes[node]

    def _count_facts(
        self, node: str, before: Mapping[str, Offer], offered: Mapping[str, Offer], facts: Facts
    ) -> None:
        former = self._facts.get(node, NO_FACTS)
        if facts == former and offered.keys() == before.keys():
            return
        for model in {*before, *offered}:
            crowd = Counter(self._crowds.get(model, ()))
            if model in before:
                crowd[former] -= 1
            if model in offered:
                crowd[facts] += 1
            self._crowds[model] = +crowd
        if offered:
            self._facts[node] = facts
        else:
            self._facts.pop(node, None)

    def crowd(self, models: Iterable[str]) -> Crowd:
        """What the nodes of these models tell of their software, and how many of them do."""
        found: Counter[Facts] = Counter()
        for model in models:
            found.update(self._crowds.get(model, {}))
        return frozenset(found.items())

    def never_stretched(self, models: Iterable[str]) -> list[str]:
        """Those models that some node offers, and none with more memory than there is."""
        return self._none_of(models, lambda offer: offer.stretched)

    def never_enforced(self, models: Iterable[str]) -> list[str]:
        """Those models that some node offers, and none keeps containers to their share."""
        return self._none_of(models, lambda offer: offer.enforced)

    def _none_of(self, models: Iterable[str], promise: Callable[[Offer], bool]) -> list[str]:
        """Models of which there are offers, and none with this promise."""
        there = ((model, self._of(model)) for model in sorted(models))
        return [model for model, offers in there if offers and not any(map(promise, offers))]

    def _of(self, model: str) -> list[Offer]:
        kinds = (Offer(stretched, enforced) for stretched in (False, True) for enforced in (False, True))
        return [offer for offer in kinds if self._counts.get((model, offer), 0) > 0]
