"""What rules between pods say about one pod: which pods it avoids, needs, and is spread with.

A rule stands for a selection of pods, and for a domain: nodes of one value of a node label. Its key is short,
so no label of a pod comes into a decision. Equal keys mean equal rules. What follows ``@`` in a key is the
label of the domain. Without one, each node is a domain of its own. The codec
(:mod:`vc_egpu.volcano.podspec.neighbours`) says which rules it reads.
"""

from dataclasses import dataclass
from typing import Final

RuleKey = str
Mark = str
"""What a domain counts: pods that a rule selects, or pods that carry a rule."""

DOMAIN: Final = "@"
"""Before the node label in a key."""
NEEDED: Final = "&"
"""A key of a rule that wants pods near begins so: pods count by it once they are on their nodes."""
SPREAD: Final = "~"
"""The same for a spread: pods that are to come count by it, but keep no other domain from growing."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Pods that the rule selects are spread evenly over the domains of the nodes that count."""

    rule: RuleKey
    max_skew: int
    """No domain that gets one has so many more of them than the domain with the fewest."""
    capped: bool = False
    """No node gets more of them than ``max_skew``, however many the others have. A scheduler that sees the
    pod pinned sees one domain, and was told to see more."""
    min_domains: int = 1
    """With fewer domains the fewest are taken to be none."""
    itself: bool = True
    """Whether the pod is one of those that the rule selects."""
    by_affinity: bool = True
    """Only nodes count that its node selector and node affinity leave."""
    by_taints: bool = False
    """Only nodes count whose taints it tolerates."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The rules of one pod, each tuple in order, so that equal rules make equal shapes."""

    avoids: tuple[RuleKey, ...] = ()
    """It goes to no domain that has a pod which one of these rules selects."""
    spreads: tuple[Spread, ...] = ()
    selected_by: tuple[RuleKey, ...] = ()
    """Rules that select this pod: its own, and those of other pods that are known."""
    needs: tuple[RuleKey, ...] = ()
    """It goes to domains that have pods which these rules select. All of them select the same pods."""
    needs_itself: bool = False
    """It is such a pod: where there is none yet, it may be the first."""
    likes: tuple[tuple[RuleKey, int], ...] = ()
    """(rule, weight) for each pod that the rule selects in its domain; below zero it is to be avoided."""
    evens: tuple[RuleKey, ...] = ()
    """It had better go where these rules select fewest pods."""

    @property
    def marks(self) -> tuple[Mark, ...]:
        """What a node that has this pod counts once more."""
        return (*(counted(rule) for rule in self.selected_by), *(f"!{rule}" for rule in self.avoids))

    @property
    def limits(self) -> tuple[tuple[Mark, int], ...]:
        """(mark, most): a domain that counts so many already does not take this pod."""
        return (
            *((counted(rule), 1) for rule in self.avoids),
            *((f"!{rule}", 1) for rule in self.selected_by if rule[:1] not in _WANTED),
        )

    @property
    def are_wide(self) -> bool:
        """Whether it makes a difference to other nodes where a pod goes, or which pods are there already."""
        return bool(self.needs or self.spreads or self.likes or self.evens)

    @property
    def grow(self) -> bool:
        """Whether a pod more, somewhere, can give it a place."""
        return bool(self.needs or self.spreads)


NO_NEIGHBOURS: Final = Neighbours()
"""Nearly all pods have these."""
_WANTED: Final = frozenset({NEEDED, SPREAD, "*"})
"""First letters of keys of rules that no pod keeps others away by."""
PREFERRED: Final = "*"
"""The first letter of a key of a rule that is only preferred."""


def counted(rule: RuleKey) -> Mark:
    """The mark by which a domain counts the pods that this rule selects."""
    return f"={rule}"


def to_come(rule: RuleKey) -> Mark:
    """The mark for those of a spread that are not on their nodes yet."""
    return f"-{rule}"


def members_of(gang: str) -> Mark:
    """The mark by which a node counts the members of a gang that may have only so many on one node."""
    return f"+{gang}"


def label_of(mark: Mark) -> str:
    """The node label that a mark's domains have in common; empty where each node is its own domain."""
    return "" if mark[:1] == "+" else mark.partition(DOMAIN)[2]


def of_planned(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """The marks of a pod that is to come: it is near no other pod yet, and fills no domain for others."""
    kept = (mark for mark in marks if not mark.startswith("=" + NEEDED))
    return tuple(f"-{mark[1:]}" if mark.startswith("=" + SPREAD) else mark for mark in kept)


def of_leaving(marks: tuple[Mark, ...]) -> tuple[Mark, ...]:
    """The marks of a pod that is told to go: a spread does not count it any more."""
    return tuple(mark for mark in marks if not mark.startswith("=" + SPREAD))
