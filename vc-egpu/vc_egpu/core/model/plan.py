"""What a decision asks for, as values. The executor carries it out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import (
    MemberPlacement,
    Move,
    NodeName,
    PodUid,
    QueueName,
    Reservation,
    Share,
)
from vc_egpu.core.model.reasons import Verdict


@dataclass(frozen=True, slots=True)
class Eviction:
    """Pods of one gang that have to go, all together."""

    gang: str
    pods: frozenset[PodUid]
    whole: bool
    """True: the whole gang; False: exactly surplus members above its minimum."""
    cause: Cause


@dataclass(frozen=True, slots=True)
class Suspension:
    """Pods of one gang that have to leave their cards and keep their plan, all together."""

    gang: str
    pods: frozenset[PodUid]
    cause: Cause


@dataclass(frozen=True, slots=True)
class Resume:
    """Suspended pods of one gang whose order is to be taken back, all together: their cards are free."""

    gang: str
    pods: frozenset[PodUid]


@dataclass(frozen=True, slots=True)
class Resize:
    """What becomes of a user's wish that one running pod's shares have another size."""

    gang: str
    pod: PodUid
    why: str = ""
    """Why it is refused; then the shares stay as they are."""
    meanwhile: tuple[tuple[str, Share], ...] = ()
    """By container: of memory and cores the larger one of before and after. It counts from now on."""
    then: tuple[tuple[str, Share], ...] = ()
    """As it was wished. Where less than before, it counts once the pod's node has lowered the limit."""


@dataclass(frozen=True, slots=True)
class Admission:
    """A placement of a gang (or of its surplus), complete.

    ``evictions`` and ``suspensions`` empty: the plan is ready, gates may fall. Otherwise it waits until the
    evicted are gone and the suspended have left their cards.
    """

    gang: str
    members: Mapping[str, MemberPlacement]
    """By plan key; these members are to be added to what the gang already runs."""
    evictions: tuple[Eviction, ...] = ()
    suspensions: tuple[Suspension, ...] = ()
    accounts: tuple[Account, ...] = ()
    """What the gang's queue and those of its victims have and deserve, where that is why they go. The gang's
    own queue comes first."""
    relieves: QueueName | None = None
    """The highest of the gang's queues whose cap is full without its victims. Victims below it that are
    suspended count in no queue until they run again."""

    choice: str = ""
    """The option that its members are planned with, where the PodGroup does not name it yet."""
    rule: str = ""
    """The rule of placement by which its members got their places; empty: none was for it."""

    @property
    def cause(self) -> Cause:
        """Why its victims go: the same cause for all of them. Without victims the word says nothing."""
        going: tuple[Eviction | Suspension, ...] = (*self.evictions, *self.suspensions)
        return going[0].cause if going else Cause.PRIORITY


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A waiting plan that no longer holds; it is to be removed from its PodGroup."""

    gang: str
    plan_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """A waiting plan whose victims are all gone and which still holds: its gates may fall now."""

    gang: str
    plan_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one decision."""

    revision: int
    admissions: tuple[Admission, ...] = ()
    withdrawals: tuple[Withdrawal, ...] = ()
    ready: tuple[Readiness, ...] = ()
    """Waiting plans to be turned into ready ones."""
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """One for every gang that waits or was admitted, by gang key."""
    suspensions: tuple[Suspension, ...] = ()
    """Pauses that users asked for. No other gang needs the cards."""
    resumes: tuple[Resume, ...] = ()
    """The gang suspended first comes first."""
    evictions: tuple[Eviction, ...] = ()
    """Gangs that cannot come back after a suspension: they are evicted and queued again."""
    resizes: tuple[Resize, ...] = ()
    """One for each pod that a user wishes to be resized."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """By gang, the option that its pods are to be made with from now on; those that wait are made again."""
    moves: Mapping[str, Move] = field(default_factory=dict)
    """By gang, what is known of its way to other cards from now on. Others stay as they are."""
    empties: tuple[NodeName, ...] = ()
    """Nodes that get our taint: they are to be empty."""
    opens: tuple[NodeName, ...] = ()
    """Nodes that lose it: work needs them, or they cannot be emptied."""
    reservations: Mapping[str, Reservation | None] = field(default_factory=dict)
    """By gang, what is to be remembered from now on; None: nothing any more. Other gangs stay as they are."""
