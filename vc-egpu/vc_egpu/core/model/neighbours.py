"""What rules between pods say about one pod, by node: which pods it avoids, and with which it is spread.

A rule stands for a namespace and a label selector. Its key is short, so no label comes into a decision.
Equal keys mean equal rules. The codec (:mod:`vc_egpu.volcano.podspec.neighbours`) says which it reads.
"""

from dataclasses import dataclass
from typing import Final

RuleKey = str
Mark = str
"""What a node counts: pods that a rule selects, or pods that carry a rule."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Pods that the rule selects are spread evenly over the nodes that this pod may go to."""

    rule: RuleKey
    max_skew: int
    """No node that gets one has so many more of them than the node with the fewest."""
    capped: bool = False
    """No node gets more of them than ``max_skew``, however many the others have."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The rules of one pod, each tuple in order, so that equal rules make equal shapes."""

    avoids: tuple[RuleKey, ...] = ()
    """It goes to no node that has a pod which one of these rules selects."""
    spread: Spread | None = None
    selected_by: tuple[RuleKey, ...] = ()
    """Rules that select this pod: its own, and those of other pods that are known."""

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What a node that has this pod counts once more."""
        return (*(counted(rule) for rule in self.selected_by), *(f"!{rule}" for rule in self.avoids))

    @property
    def limits(self) -> tuple[tuple[Mark, int], ...]:
        """(mark, most): a node that counts so many already does not take this pod."""
        spread = self.spread
        capped = ((counted(spread.rule), spread.max_skew),) if spread is not None and spread.capped else ()
        return (
            *((counted(rule), 1) for rule in self.avoids),
            *((f"!{rule}", 1) for rule in self.selected_by),
            *capped,
        )


NO_NEIGHBOURS: Final = Neighbours()
"""Nearly all pods have these."""


def counted(rule: RuleKey) -> Mark:
    """The mark by which a node counts the pods that this rule selects."""
    return f"={rule}"


def members_of(gang: str) -> Mark:
    """The mark by which a node counts the members of a gang that may have only so many on one node."""
    return f"+{gang}"
