"""The settings of a decision: parsed once at the edge, passed down as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.core.model.cluster import Instant, NodeName, PodShape, QueueName
from vc_egpu.core.profiles.table import NO_RULES, Table, Wants, hour_of, is_within

MAX_BACK_OFF_S: Final = 640.0
"""A gang that was rolled back is tried again after so long at most."""
CLOCK_SKEW_S: Final = 60.0
"""Instants may be written by one machine and read by another, whose clock differs by this at most. What
differs more is not believed."""

DEFAULT_MIN_RUNTIME_S: Final = 120.0
OFTEN: Final = 3
"""A gang that was evicted for others so many times lately is the last to be taken."""
OFTEN_WITHIN_S: Final = 3600.0
"""What counts as lately there."""

CLAIMED_PART: Final = 0.2
"""All claims on the cards of a model together stay below this part of them. The first one is always whole."""

BINPACK: Final = "binpack"
SPREAD: Final = "spread"
TOPOLOGY: Final = "topology"
PLACEMENTS: Final = (BINPACK, SPREAD, TOPOLOGY)
"""Placement policies that users may name. :mod:`.placing.policies` says what each of them does."""

FULLEST: Final = "fullest"
RANDOM: Final = "random"
BEST_FIT: Final = "bestfit"
PACKING: Final = "packing"
FGD: Final = "fgd"
OURS: Final = "ours"
BINPACK_RULES: Final = (FULLEST, RANDOM, BEST_FIT, PACKING, FGD, OURS)
"""What an operator may choose as the meaning of :data:`BINPACK`."""


@dataclass(frozen=True, slots=True)
class PodClass:
    """Pods that ask for the same: one entry of the mix."""

    cpu_milli: int
    cards: int
    memory_mib: int
    """On each card; 0 with ``cards`` 0."""
    cores_percent: int
    model: str
    """The model of its cards; empty with ``cards`` 0."""
    whole: bool
    """It shares its cards with nobody. ``native`` pods do not either."""
    native: bool
    where: PodShape
    """What it asks of nodes: a shape with node selector, affinity and tolerations, and nothing else."""
    frequency: float
    """Its part of all pods seen, 0 to 1."""
    hold_s: float = 1.0
    """How long such a pod holds its cards in the mean; 1 for all classes while that is not known."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What work usually comes, learned from pods seen. Empty: nothing was learned, or no policy asks."""

    classes: tuple[PodClass, ...] = ()
    churn: float = 0.0
    """Card memory given back per card memory placed lately, 0 to 1. 0 while a cluster only fills up."""


@dataclass(frozen=True, slots=True)
class RecentUse:
    """What queues had lately: an average over time in which use counts half as much after each half-life."""

    half_life_s: float = 0.0
    """0: nothing is averaged."""
    at: Instant = 0.0
    parts: Mapping[QueueName, Mapping[str, float]] = field(default_factory=dict)
    """Up to then: millionths of cards by queue and kind of card (the resource that counts it)."""
    since: Mapping[QueueName, Mapping[str, int]] = field(default_factory=dict)
    """What each queue has had since then."""


MOVED_AGAIN_S: Final = 86_400.0
"""A gang is not moved again within this time."""


@dataclass(frozen=True, slots=True)
class Moving:
    """When gangs are moved to other cards, and how many. By default none is."""

    for_waiting: bool = False
    """Gangs move so that one that waits long fits."""
    for_fragments: bool = False
    """Gangs move so that less is left over in pieces. Only under policies that score it."""
    per_hour: int = 4
    """So many gangs are moved within an hour at most."""
    after_s: float = 600.0
    """Nobody moves for a gang that was made less than this ago."""
    least_won_milli: int = 250
    """Without a gang that fits: so many thousandths of a card have to be won for each card that moves."""
    for_empty: bool = False
    """Gangs move so that a node is empty. It gets our taint, and an autoscaler removes it."""
    stuck: frozenset[NodeName] = frozenset()
    """Nodes that are being emptied and cannot be opened again now: the API server refused it."""
    hours: tuple[int, int] = (0, 24)
    """Without a gang that fits: from this hour of the day, in UTC, to that one, which may be before it."""

    def is_time(self, now: Instant) -> bool:
        """Whether gangs may move now without a gang that fits because of it."""
        return is_within(self.hours, hour_of(now))

    @property
    def on(self) -> bool:
        """Whether any gang is ever moved."""
        return self.for_waiting or self.for_fragments or self.for_empty


@dataclass(frozen=True, slots=True)
class Policy:
    """What operators may set otherwise; the defaults."""

    unnamed_model_unlimited: bool = False
    """True: a queue that does not name a model does not cap it, as in Volcano."""
    preemption: bool = True
    """False: no gang goes for another one, whatever the cause."""
    reclaim: bool = True
    """Whether queues take back what they deserve. False: ``deserved`` orders, and no more."""
    reclaim_by_weight: bool = False
    """Whether a queue that names nothing of a model takes back, and gives back, by its weight."""
    high_apart: bool = False
    """True: high goes on no card with a low gang of several pods, and such gangs on none with high."""
    replacement_hold_s: float = 60.0
    """How long a running gang keeps a failed member's cards for the replacement."""
    suspended_hold_s: float = 60.0
    """After this long a suspended gang keeps what becomes free on its cards: no newcomer of low or no
    priority gets it."""
    min_runtime_s: float = DEFAULT_MIN_RUNTIME_S
    """A gang that began less than this ago is evicted for others only if nothing else helps. Queues may say
    otherwise."""
    reserve_after_s: float = 300.0
    """A gang that was the first of its queue and class for so long, with only cards missing, claims some.
    Infinite: none ever does."""
    max_gang_members: int = 2048
    max_victim_candidates: int = 512
    """Bound on the victims' search; nearest (cheapest) first."""
    binpack: str = OURS
    """What :data:`BINPACK` means: one of :data:`BINPACK_RULES`. Without a mix, all go by fullness."""
    profiles: Table = NO_RULES
    """Which work is placed otherwise. Its names are of :data:`PLACEMENTS` and :data:`BINPACK_RULES`."""
    recent: RecentUse = RecentUse()
    """By this and what they have now queues are ordered among each other."""
    mix: Mix = Mix()
    """For placement policies that look at it."""
    heeds_measured: bool = True
    """Whether nodes and cards that are measured to be busy come later: for shares without guaranteed cores,
    and for :data:`SPREAD`."""
    moving: Moving = Moving()
    """When gangs are moved to other cards."""

    @property
    def wants(self) -> Wants:
        """What is asked of gangs: by rules of placement, and by what looks at measured use."""
        return replace(self.profiles.wants, use=self.heeds_measured)
