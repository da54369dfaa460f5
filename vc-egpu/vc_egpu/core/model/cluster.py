"""The world that a decision sees: nodes with cards, pods, gangs, queues. Values only.

Memory of cards is in MiB, of nodes in bytes. Compute of cards is in percent of one card, of nodes in
milli-CPU. Instants are seconds since the epoch, as the API server's timestamps give them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum, StrEnum
from typing import Final, NewType, TypeVar

from vc_egpu.core.environments.needs import NO_FACTS, NO_NEEDS, Facts, Needs
from vc_egpu.core.layouts.table import ANYWHERE, Held, Layout
from vc_egpu.core.measured.use import NodeUse
from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.neighbours import NO_NEIGHBOURS, Neighbours
from vc_egpu.core.profiles.table import NO_TRAITS, Traits
from vc_egpu.core.topology.groups import NO_GROUP, GroupRule
from vc_egpu.core.topology.links import Near
from vc_egpu.core.topology.network import Bound, Domain

CardId = NewType("CardId", str)
"""A card's UUID. Compared whole, never by substring."""
NodeName = NewType("NodeName", str)
QueueName = NewType("QueueName", str)
PodUid = NewType("PodUid", str)
Instant = float
_T = TypeVar("_T")

FULL_CORES_PERCENT: Final = 100
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
"""The taint by which an operator says that nothing runs on a silent node any more."""
DRAIN: Final = "egpu.volcano.sh/drain"
"""The taint by which an operator says that the gangs of a node shall run elsewhere."""
DEFAULT_MAX_SHARERS: Final = 100
LONGEST_CHOICE: Final = 250
"""Characters of a choice, which stands in an annotation. Longer ones are not tried."""


class ShareClass(IntEnum):
    """Which pods may take the time of which others. The order is the order of service."""

    LOW = -1
    UNSET = 0
    HIGH = 1


class Mode(Enum):
    """How a node offers its cards."""

    SHARED = "shared"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class Card:
    """One physical card. ``memory_mib`` is the table's nominal memory, which is what the ledger counts."""

    uuid: CardId
    index: int
    model: str
    memory_mib: int
    usable: bool = True
    """False while ill, cordoned or not offered: it takes nothing new, what is there stays."""
    links: Mapping[CardId, int] = field(default_factory=dict)
    """Peer to number of NVLinks that lead straight to it."""
    switch_links: int = 0
    """NVLinks that end at a switch, which all cards of the node share."""
    link_mb_s: int = 0
    """What one NVLink carries each way, in MB/s; 0: the driver does not tell."""
    near: Mapping[CardId, Near] = field(default_factory=dict)
    """Peer to the way over PCIe; empty: the agent does not tell."""
    layout: Layout | None = None
    """Which slices of fixed size it may hold; None: shares of any size."""
    foreign: tuple[Held, ...] = ()
    """Slices on it that no agent of ours made: they take room, and are not given out."""
    stack: bool = True
    """False: high does not run over low here. All shares together have one card's cores and memory."""
    group: int = NO_GROUP
    """Cards of one group are joined more closely than others."""
    module: int = NO_GROUP
    """Cards of one module share a board."""
    isolation: str = "library"
    """What keeps containers apart on it, as its agent says."""
    rule: GroupRule | None = None
    """Which cards one container may get together; None: any."""

    def __post_init__(self) -> None:
        if self.memory_mib <= 0 or self.index < 0:
            raise ValueError(f"card {self.uuid}: memory_mib {self.memory_mib}, index {self.index}")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a pod requests or a node offers, the scheduler's way."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    pods: int = 0
    scalars: Mapping[str, int] = field(default_factory=dict)
    """Other extended resources by name, whole units; ours (shares and counters) are not in here."""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One node-affinity expression; ``key`` is a label, or ``metadata.name`` with ``on_field``."""

    key: str
    operator: str
    """In, NotIn, Exists, DoesNotExist, Gt, Lt."""
    values: tuple[str, ...] = ()
    on_field: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A node and its cards."""

    name: NodeName
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    lost: bool = False
    """Tainted :data:`OUT_OF_SERVICE`: nothing runs there any more."""
    drained: bool = False
    """Tainted :data:`DRAIN`: gangs on it go, and it takes nothing."""
    mode: Mode = Mode.SHARED
    cards: tuple[Card, ...] = ()
    core_ratio: float = 1.0
    memory_ratio: float = 1.0
    ratio_class: ShareClass | None = None
    """The class that the ratios are for, low or high; None: every class. Other classes get ratio 1."""
    max_sharers: int = DEFAULT_MAX_SHARERS
    host_memory_mib: int = 0
    """Host memory that card memory may move to, by spilling or by suspension; 0: none may."""
    problem: str = ""
    """Non-empty: the node takes no shares, and why (garbage reported, agent away, ...)."""
    slots: Mapping[str, int] = field(default_factory=dict)
    """Allocatable kubelet slots by resource name (``volcano.sh/vgpu-h20`` ...): a bound, not a ledger."""
    created: Instant = 0.0
    environment: Facts = NO_FACTS
    """What its software is: driver, CUDA that the driver offers, capabilities of its cards."""
    network: tuple[Domain, ...] = ()
    """What it shares with others on the network, the nearest first: its rack, its block ..."""
    emptied: Instant | None = None
    """Since when it bears our taint: it takes nothing new, so that an autoscaler may remove it."""
    stays: bool = False
    """Its autoscaler is told not to remove it."""

    @property
    def is_silent(self) -> bool:
        """Whether its pods stay where they are: neither a kubelet nor the control plane ends them."""
        return not self.ready and not self.lost

    @property
    def is_up(self) -> bool:
        """Whether a kubelet is there that starts and ends pods."""
        return self.ready and not self.lost

    @property
    def offers_cards(self) -> bool:
        """Whether its cards, those that are usable, take anything new."""
        return self.is_up and not self.problem


@dataclass(frozen=True, slots=True)
class CardAsk:
    """What one container asks of each of ``cards`` different cards of one model."""

    container: str
    model: str
    cards: int
    memory_mib: int
    cores_percent: int
    native: bool = False
    whole: bool = False
    spill: bool = False
    """Where the node's memory ratio is above 1, part of its memory may lie on the host."""
    swap: bool = False
    """Where it is, it has the whole card in turns with others of that kind. All of its memory, or none, is on
    the host."""
    host_limit_mib: int | None = None
    """The container's own memory limit, which what it spills must fit into; None: it has none."""
    slice: str = ""
    """A template of the card's layout, whose size the amounts are; empty: a share of any size."""
    asked: tuple[int, int] = (0, 0)
    """(MiB, cores) that were asked for before they were rounded up to that slice; zeros: nothing was."""

    def __post_init__(self) -> None:
        if self.cards < 1 or self.memory_mib < 1 or not 0 <= self.cores_percent <= FULL_CORES_PERCENT:
            raise ValueError(f"container {self.container}: impossible ask {self}")


@dataclass(frozen=True, slots=True)
class AskOption:
    """One of several ways in which a pod takes cards. Its gang takes the one of this name."""

    name: str
    asks: tuple[CardAsk, ...]
    needs: Needs | None = None
    """What its program needs of the node; None: what the pod needs."""


@dataclass(frozen=True, slots=True)
class PodShape:
    """Everything about a pod that decides where it fits. Equal shapes are tried once."""

    asks: tuple[CardAsk, ...] = ()
    requests: Resources = field(default_factory=Resources)
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity_terms: tuple[tuple[Requirement, ...], ...] = ()
    """Terms are alternatives, requirements within a term hold together; empty: any node."""
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[tuple[str, str, int], ...] = ()
    """(host IP, protocol, port)."""
    use_cards: frozenset[CardId] = frozenset()
    avoid_cards: frozenset[CardId] = frozenset()
    use_models: frozenset[str] = frozenset()
    avoid_models: frozenset[str] = frozenset()
    card_policy: str = ""
    """A name of :data:`.policy.PLACEMENTS`, or empty for the default."""
    node_policy: str = ""
    """The same for the order of nodes."""
    neighbours: Neighbours = NO_NEIGHBOURS
    """Which pods may be on its node, and with which it is spread."""
    prefers: tuple[tuple[int, tuple[Requirement, ...]], ...] = ()
    """(weight, requirements that hold together): nodes that it had better go to."""
    runtime_s: float | None = None
    """It ends within so long after its start: its user says so, or a deadline; None: that is not known."""
    options: tuple[AskOption, ...] = ()
    """What it may ask for, the wish of its user first; empty: what stands in ``asks`` alone."""
    choice: str = ""
    """The option that ``asks`` are of; empty where none was chosen when the pod was made."""
    mixes: bool = False
    """Members of one gang may take different options."""
    takes_soonest: bool = False
    """While no option can start, the one that will start soonest is chosen."""
    needs: Needs = NO_NEEDS
    """What its program needs of the node's software."""

    @property
    def is_open(self) -> bool:
        """Whether it was made before an option was chosen: no such pod ever runs."""
        return bool(self.options) and not self.choice

    def as_option(self, name: str) -> "PodShape | None":
        """The pod as it is made once this option is chosen; None where it has no such option."""
        found = next((option for option in self.options if option.name == name), None)
        if found is None:
            return None
        needs = self.needs if found.needs is None else found.needs
        return replace(self, asks=found.asks, choice=name, needs=needs)


@dataclass(frozen=True, slots=True)
class Share:
    """What one container holds on one card."""

    card: CardId
    memory_mib: int
    cores_percent: int
    whole: bool = False
    native: bool = False
    physical_mib: int | None = None
    """The part of its memory that may lie on the card; None: all of it. The rest is on the host budget."""
    swap: bool = False
    """It has the card in turns with others of that kind. ``physical_mib`` is then its part of the sum."""
    slice: str = ""
    """Its template, where it is a slice of fixed size."""
    start: int = ANYWHERE
    """Where that slice begins, on cards with places."""

    @property
    def on_card_mib(self) -> int:
        """Memory that lies on the card."""
        return self.memory_mib if self.physical_mib is None else self.physical_mib

    @property
    def spilled_mib(self) -> int:
        """What it takes of the node's host memory. At a hand-over all that take turns lie there."""
        over = self.memory_mib - self.on_card_mib
        return self.memory_mib if self.swap and over else over


class PodPhase(Enum):
    """How far a pod is, as far as cards and nodes are concerned."""

    GATED = "gated"
    """Waits for us; holds nothing but what a plan says."""
    PLACED = "placed"
    """Ungated or bound, on its way or running; holds its shares and its node's resources."""
    TERMINATING = "terminating"
    """Deleted, still there: its cards are still its own."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class SuspensionState(StrEnum):
    """How far a pod's processes are from its cards, as the agent of its node reports it: in these words."""

    RUNNING = "running"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    RESUMING = "resuming"
    FAILED = "failed"
    """It could not be brought back: the gang is evicted and queued again."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod: ours (with a gang), or another one, which only takes room on its node."""

    uid: PodUid
    namespace: str
    name: str
    shape: PodShape
    phase: PodPhase
    node: NodeName | None = None
    """Where it is bound or pinned."""
    gang: str | None = None
    """The key of its gang; None: not managed by us."""
    task: str = ""
    index: int = -1
    """Task name and index where a Job made it, otherwise empty and -1: then the UID is its plan key."""
    shares: tuple[tuple[str, Share], ...] = ()
    """(container, share) from the cards annotation."""
    plan_id: str = ""
    created: Instant = 0.0
    started: Instant | None = None
    finished: Instant | None = None
    """When it ended, by the clock of who decides (:mod:`.ends`). From then on cards are kept."""
    gone_by: Instant | None = None
    """When a deleted pod should be gone: the end of its grace period (its deletionTimestamp)."""
    other_gates: tuple[str, ...] = ()
    """Scheduling gates that are not ours."""
    queue: QueueName | None = None
    """The queue that it was checked for. What it holds counts there while its gang is not known."""
    protected: bool = False
    """A PodDisruptionBudget allows no disruption now: it is neither evicted nor suspended for others."""
    bare: bool = False
    """No controller makes it again: it is never evicted. It may be suspended, which loses nothing."""
    suspend_ordered: bool = False
    """It is told to leave its cards, for a while; absent order: it shall run."""
    suspend_order: tuple[int, int] = (0, 0)
    """(lease epoch, counter) of the order's plan id: which of two suspended gangs was the first."""
    suspended_since: Instant = 0.0
    """When that order was given; 0: long ago, by whoever did not say when."""
    off_quota: bool = False
    """That order made room in a cap above the pod: while it stands, the pod counts in no queue."""
    suspension: SuspensionState = SuspensionState.RUNNING
    suspendable: bool = False
    """The agent says that it could be suspended now."""
    pause_wished: bool = False
    """A user who may do so asked for it to be suspended until the wish is withdrawn."""
    overdue: bool = False
    """It was told to come back to its cards long ago, and its node has not brought it back."""
    stranded: bool = False
    """It left its cards as it was told, and for too long those have not been there to come back to."""
    subgroup: tuple[str, ...] = ()
    """Its subgroup: a word of :attr:`Gang.subgroups`, and what tells it from others of it; empty: none."""
    resize: tuple[tuple[str, int | None, int | None], ...] = ()
    """Sizes that a user who may do so wishes: (container, MiB, cores), None where it is to stay as it is."""
    runs_as: ShareClass | None = None
    """The class with which its cards were given, whatever its gang has become since; None: as its gang."""

    @property
    def comes_back(self) -> bool:
        """Whether it is on its way back to its cards, where it can be suspended again in a moment."""
        if self.suspend_ordered or self.overdue:
            return False
        return self.suspension not in {SuspensionState.RUNNING, SuspensionState.FAILED}

    @property
    def asleep(self) -> bool:
        """Whether it was told to leave its cards and has: what it held there is free."""
        return self.suspend_ordered and self.suspension is SuspensionState.SUSPENDED


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """Where one member goes. ``shares``: (container, share), in the order of the ask."""

    node: NodeName | None
    """None: a member without cards, no pin."""
    shares: tuple[tuple[str, Share], ...] = ()


@dataclass(frozen=True, slots=True)
class PlanInForce:
    """A plan that stands on a PodGroup and has not yet been carried out by all its members."""

    plan_id: str
    members: Mapping[str, MemberPlacement]
    """By plan key: ``<task>/<index>`` or the pod UID."""
    victims: frozenset[PodUid] = frozenset()
    """Non-empty: the plan is waiting; its shares may overlap only these pods' shares."""
    created: Instant = 0.0
    suspends: frozenset[PodUid] = frozenset()
    """Those of the victims that are to be suspended, not evicted."""
    cause: Cause = Cause.PRIORITY
    """Why the victims go."""
    accounts: tuple[Account, ...] = ()
    """See :attr:`.plan.Admission.accounts`."""
    relieves: QueueName | None = None
    """See :attr:`.plan.Admission.relieves`."""
    rule: str = ""
    """See :attr:`.plan.Admission.rule`."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A gang that waits long for cards alone, and what is claimed for it."""

    since: Instant
    """Since when it has been the first of its queue and class that lacks only cards."""
    claimed: Instant = 0.0
    """When the claim was made, or moved; 0: it has none yet."""
    members: Mapping[str, MemberPlacement] = field(default_factory=dict)
    """By plan key: the places that will serve it soonest. Others may still be on them."""


MOST_GIVEN_UP: Final = 99
"""So far it is counted how often a move was given up."""


@dataclass(frozen=True, slots=True)
class Move:
    """A gang that is to go to other cards, or has gone: what its PodGroup remembers of it."""

    at: Instant
    """When the new places were claimed, or the move was given up."""
    places: Mapping[str, MemberPlacement] = field(default_factory=dict)
    """By plan key of the members that leave: what is claimed for them. Empty once they have their places."""
    pods: frozenset[PodUid] = frozenset()
    """Those members."""
    whom: str = ""
    """The gang that fits because of it; empty: fewer cards are left over in pieces."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What those members count in their queue: it is theirs until they have their new place."""
    won_milli: int = 0
    """Thousandths of a card that become of use: what ``whom`` asks for, or less that is left over."""
    given_up: int = 0
    """Moves of this gang that were given up one after the other, before it had left its cards."""
    empties: str = ""
    """The node that is to be empty because of it."""

    @property
    def stays(self) -> bool:
        """Whether the gang was to go and did not."""
        return self.given_up > 0 and not self.places

    @property
    def past(self) -> "Move":
        """What counts of it once its gang is gone."""
        return Move(self.at, whom=self.whom, given_up=self.given_up * (not self.places), empties=self.empties)

    def give_up(self, now: Instant) -> "Move":
        """What is remembered of a move whose gang stays."""
        return replace(self.past, at=now, given_up=min(self.given_up + 1, MOST_GIVEN_UP))


@dataclass(frozen=True, slots=True)
class Gang:
    """A PodGroup of ours, waiting or running or both (surplus members wait while others run)."""

    key: str
    """``<namespace>/<PodGroup name>``."""
    uid: str
    queue: QueueName
    share_class: ShareClass
    priority_value: int
    """The priority class's value; orders gangs of equal share class."""
    min_member: int
    created: Instant
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    plan: PlanInForce | None = None
    single: bool = False
    """Members are planned and evicted singly (Deployments and the like)."""
    blocked_nodes: frozenset[NodeName] = frozenset()
    """Nodes that refused a member of this gang lately; left out for it."""
    not_before: Instant = 0.0
    """Back-off after a roll-back."""
    most_per_node: int = 0
    """Fewer on a node than were refused lately; 0: as many as fit. Blocked nodes may be taken then."""
    spares_since: Instant = 0.0
    """When it was refused after others went for it; 0: never. None goes for it until a node is made."""
    takes_free_room: bool = False
    """A kubelet refused a pod of it lately. No gang goes for it while that node is left out."""
    template: tuple[tuple[str, int, PodShape], ...] = ()
    """(task, replicas, shape) of a gang whose pods its controller has not made yet (stock Volcano)."""
    victim_at: tuple[Instant, ...] = ()
    """When the whole gang was evicted for others: the last few times, oldest first."""
    reservation: Reservation | None = None
    """None: it is not the first of its queue and class, or does not lack cards alone."""
    bound: Bound | None = None
    """All its members have to be that near each other on the network; None: anywhere."""
    subgroups: Mapping[str, Bound | None] = field(default_factory=dict)
    """How near members of each subgroup have to be, by the first word of its name; None: as may be."""
    partitions: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """By task of its template: the first word of its subgroups, and how many members each has; 0: all."""
    choice: str = ""
    """Which option its pods are made with, as it stands on the PodGroup (:func:`.gangs.option_of`)."""
    move: Move | None = None
    """None: it was not moved, as far as its PodGroup tells."""
    restartable: bool = False
    """Its user says that it may be evicted and begun again, although it is not of low priority."""
    traits: Traits = NO_TRAITS
    """What rules of placement ask about, beyond what it asks for."""

    @property
    def is_bound(self) -> bool:
        """Whether members have to be near each other."""
        return self.bound is not None or any(bound is not None for bound in self.subgroups.values())

    @property
    def is_of_several(self) -> bool:
        """Whether more than one pod of it has to run at once."""
        return self.min_member > 1

    @property
    def is_of_replicas(self) -> bool:
        """Whether any one member will do: each is suspended and comes back without the others."""
        return self.single and self.min_member <= 1


def class_of(pod: Pod, gang: Gang | None, unknown: _T) -> ShareClass | _T:
    """The class with which a pod of this gang runs, or will; ``unknown`` where that is lost."""
    if pod.runs_as is not None:
        return pod.runs_as
    return gang.share_class if gang is not None else unknown


@dataclass(frozen=True, slots=True)
class Queue:
    """A tenant's queue. Amounts by resource name, whole units (shares, MiB, percent, milli-CPU, bytes)."""

    name: QueueName
    parent: QueueName | None = None
    open: bool = True
    capability: Mapping[str, int] = field(default_factory=dict)
    deserved: Mapping[str, int] = field(default_factory=dict)
    guarantee: Mapping[str, int] = field(default_factory=dict)
    weight: int = 1
    priority: int = 0
    reclaimable: bool = True
    preempts_within: bool = True
    """Whether high gangs for which its cap is full make room in it by low gangs that count there."""
    fifo: bool = False
    """Whether a gang that waits for quota or cards holds up those behind it in this queue."""
    most_mib: int | None = None
    """The most memory of one share; None: it sets no such limit."""
    min_runtime_s: float | None = None
    """A gang that began less than this ago is taken last; None: as those above say, or the controller."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the cluster. ``revision`` names it in plans and logs."""

    revision: int
    nodes: Mapping[NodeName, Node]
    pods: Mapping[PodUid, Pod]
    gangs: Mapping[str, Gang]
    queues: Mapping[QueueName, Queue]
    models: Mapping[str, int] = field(default_factory=dict)
    """The table: model to nominal memory in MiB."""
    held: Mapping[CardId, tuple[tuple[PodUid, Share], ...]] = field(default_factory=dict)
    """Shares of pods whose object is gone but which a node agent still reports as held."""
    kept: Mapping[PodUid, Pod] = field(default_factory=dict)
    """Failed members whose object is gone already; their cards may still be kept for the replacement."""
    moves_of_gone: Mapping[str, Move] = field(default_factory=dict)
    """By UID of its PodGroup: the last move of each gang that is gone since."""
    measured: Mapping[NodeName, NodeUse] = field(default_factory=dict)
    """What nodes were measured to use lately; absent: nobody says."""
    index: object | None = field(default=None, compare=False, repr=False)
    """Sums of :class:`vc_egpu.core.books.state.ClusterState`. Without them the values are counted again."""


def plan_key(pod: Pod) -> str:
    """The key of a member in a plan: ``<task>/<index>``, or its UID where no Job made it."""
    return f"{pod.task}/{pod.index}" if pod.task and pod.index >= 0 else str(pod.uid)
