"""Rules of placement, and which of them is for a gang.

All conditions of a rule hold together. Its answer is a name for the order of nodes, and one for the choice of
cards. Names are those of :mod:`vc_egpu.core.model.policy`; this module knows none of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

ANY: Final = "*"
"""As the value of a label: any value."""
NO_CLASS: Final = "standard"
"""The class of work that names none."""
_HOURS: Final = 24


@dataclass(frozen=True, slots=True)
class Range:
    """From ``least`` to ``most``, both included; ``most`` None: without an end."""

    least: int = 0
    most: int | None = None

    def has(self, amount: int) -> bool:
        """Whether the amount lies in it."""
        return self.least <= amount and (self.most is None or amount <= self.most)


ANY_AMOUNT: Final = Range()
MOST_LABELS: Final = 16
"""A gang has pods by the thousand, each of which may carry another value."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of a gang besides what it asks for: of all this, what the table names, and no more."""

    owner: str = ""
    """The kind of what makes its pods: ``Deployment``, ``VolcanoJob``, ``Job``, ``Pod``."""
    labels: tuple[tuple[str, str], ...] = ()
    """Those of its PodGroup and of any of its pods, in order; :data:`MOST_LABELS` at most."""
    earlier: tuple[str, ...] = ()
    """What earlier runs of the same Job showed, see :mod:`.runs`."""
    uses_points: int | None = None
    """How busy earlier runs kept each of their cards, of a hundred, in steps of ten; None: not known."""


NO_TRAITS: Final = Traits()


@dataclass(frozen=True, slots=True)
class Work:
    """One gang, as rules see it."""

    share_class: str = NO_CLASS
    members: int = 1
    """Pods; 1 for replicas, each of which is placed by itself."""
    cards: int = 0
    """All its members together; one pod of replicas."""
    part_percent: int = 0
    """What its largest share takes of a card: 100 for whole cards, 0 without cards."""
    models: tuple[str, ...] = ()
    traits: Traits = NO_TRAITS


@dataclass(frozen=True, slots=True)
class Moment:
    """When it is placed."""

    hour: float
    """The hour of the day, in UTC, 0 to 24."""
    allocation: Callable[[str], int]
    """By model: how much of its cards is taken, in percent. Asked only where a rule wants to know."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What it is for, and how that is placed. A condition that is empty holds always."""

    name: str
    nodes: str = ""
    """Name of a policy; empty: as without a rule."""
    cards: str = ""
    classes: frozenset[str] = frozenset()
    owners: frozenset[str] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    """All of them; the value :data:`ANY` is met by any."""
    members: Range = ANY_AMOUNT
    card_count: Range = ANY_AMOUNT
    """All members together."""
    part_percent: Range = ANY_AMOUNT
    hours: tuple[int, int] | None = None
    """From this hour of the day, in UTC, to that one, which may be before it."""
    allocation_percent: Range = ANY_AMOUNT
    """The fullest of its models."""
    earlier: frozenset[str] = frozenset()
    """Any of these words."""

    def matches(self, work: Work, moment: Moment) -> bool:
        """Whether it is for this work now."""
        traits = work.traits
        return (
            (not self.classes or work.share_class in self.classes)
            and (not self.owners or traits.owner in self.owners)
            and self.members.has(work.members)
            and self.card_count.has(work.cards)
            and self.part_percent.has(work.part_percent)
            and (not self.earlier or not self.earlier.isdisjoint(traits.earlier))
            and self._has_labels(traits.labels)
            and (self.hours is None or is_within(self.hours, moment.hour))
            and (self.allocation_percent == ANY_AMOUNT or self._is_as_full(work, moment))
        )

    def _has_labels(self, labels: tuple[tuple[str, str], ...]) -> bool:
        return all(
            (key, value) in labels if value != ANY else any(key == has for has, _ in labels)
            for key, value in self.labels
        )

    def _is_as_full(self, work: Work, moment: Moment) -> bool:
        """Work without cards is of no model: nothing is full or empty for it."""
        return bool(work.models) and self.allocation_percent.has(max(map(moment.allocation, work.models)))


@dataclass(frozen=True, slots=True)
class Profile:
    """How one gang is placed, as far as a rule says so."""

    rule: str = ""
    """Its name; empty: no rule is for the gang."""
    nodes: str = ""
    cards: str = ""


NO_PROFILE: Final = Profile()


@dataclass(frozen=True, slots=True)
class Table:
    """All rules. The first that matches counts."""

    rules: tuple[Rule, ...] = ()

    def first(self, work: Work, moment: Moment) -> Profile:
        """What the first rule says that matches; :data:`NO_PROFILE` where none does."""
        for rule in self.rules:
            if rule.matches(work, moment):
                return Profile(rule.name, rule.nodes, rule.cards)
        return NO_PROFILE

    @property
    def policies(self) -> frozenset[str]:
        """All names that its rules answer with."""
        return frozenset(name for rule in self.rules for name in (rule.nodes, rule.cards) if name)

    @property
    def wants(self) -> "Wants":
        """What its rules want to know of gangs."""
        return Wants(
            labels=frozenset(key for rule in self.rules for key, _ in rule.labels),
            owner=any(rule.owners for rule in self.rules),
            earlier=any(rule.earlier for rule in self.rules),
        )


@dataclass(frozen=True, slots=True)
class Wants:
    """What a table asks about, out of all that is known of gangs. Gangs that differ in no more are alike."""

    labels: frozenset[str] = frozenset()
    """Keys."""
    owner: bool = False
    earlier: bool = False
    use: bool = False
    """How busy earlier runs were: no rule asks for it, but what looks at measured use."""

    @property
    def nothing(self) -> bool:
        """Whether it asks for none of it."""
        return not (self.of_members or self.earlier or self.use)

    @property
    def of_members(self) -> bool:
        """Whether it asks for what each member may say otherwise."""
        return bool(self.labels) or self.owner

    def traits(
        self,
        owner: str = "",
        labels: Iterable[tuple[str, str]] = (),
        earlier: tuple[str, ...] = (),
        uses_points: int | None = None,
    ) -> Traits:
        """The traits of a gang, as far as they are asked for."""
        kept = tuple(sorted({pair for pair in labels if pair[0] in self.labels})[:MOST_LABELS])
        found = Traits(
            owner if self.owner else "",
            kept,
            earlier if self.earlier else (),
            uses_points if self.use else None,
        )
        return NO_TRAITS if found == NO_TRAITS else found


WANTS_NOTHING: Final = Wants()
NO_RULES: Final = Table()


def is_within(hours: tuple[int, int], hour: float) -> bool:
    """Whether an hour of the day lies from the first of these to the second, over midnight if need be."""
    begin, end = hours
    return begin <= hour < end if begin <= end else hour >= begin or hour < end


def hour_of(moment_s: float) -> float:
    """The hour of the day, in UTC, of seconds since the epoch."""
    return moment_s % (_HOURS * 3600) / 3600
