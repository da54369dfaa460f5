"""What a decision found out about one gang: why it waits, or that it has its place.

Values only. The waiting room finds them (:mod:`vc_egpu.core.waiting.shortage` and others), and
:mod:`vc_egpu.core.waiting.say` turns them into a sentence for users.
"""

from dataclasses import dataclass
from enum import Enum, auto

from vc_egpu.core.model.causes import Account
from vc_egpu.core.model.cluster import Instant, NodeName, QueueName
from vc_egpu.core.topology.network import Bound

# --- what is asked for ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CardRequest:
    """Cards of one kind that some members ask for together."""

    model: str
    cards: int
    memory_mib: int
    """On each card."""
    cores_percent: int
    native: bool
    whole: bool
    slice: str = ""
    """The slice of fixed size that it is, with :attr:`.cluster.CardAsk.asked`."""
    asked: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Request:
    """What some members ask for together."""

    members: int
    cards: tuple[CardRequest, ...]
    """Empty: they are members without cards."""


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What one member asks of its node, cards aside."""

    cpu_milli: int
    memory_bytes: int
    ephemeral_bytes: int
    scalars: tuple[tuple[str, int], ...]
    ports: tuple[int, ...]


# --- queues and caps -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """The cap that stands in the way. ``used + asked > cap``."""

    queue: QueueName
    resource: str
    asked: int
    used: int
    cap: int
    named: bool = True
    """False: the queue does not name this model at all."""

    @property
    def never(self) -> bool:
        """Whether even the empty queue would not allow it."""
        return self.asked > self.cap

    @property
    def left(self) -> int:
        """What the queue has left; zero where it is above its cap already."""
        return max(0, self.cap - self.used)


@dataclass(frozen=True, slots=True)
class OverCap:
    """The queue does not allow it now, or at all."""

    request: Request
    limit: Limit


@dataclass(frozen=True, slots=True)
class NoQueue:
    """The gang names a queue that does not exist."""

    queue: QueueName


@dataclass(frozen=True, slots=True)
class Closed:
    """The queue takes nothing new."""

    queue: QueueName
    closed: QueueName
    """The queue that is closed: this one, or one above it."""


# --- members -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Leaving:
    """Members that were told to go and are still on their nodes."""

    members: int
    nodes: tuple[NodeName, ...]
    silent: tuple[NodeName, ...]
    """Those of the nodes whose kubelet does not answer."""


@dataclass(frozen=True, slots=True)
class MissingMembers:
    """Fewer pods than the gang needs at least."""

    have: int
    need: int
    task: str = ""
    """The task that is short of members; empty: the gang is."""
    leaving: Leaving | None = None


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The gang has more members than any gang may have."""

    members: int
    limit: int


@dataclass(frozen=True, slots=True)
class ForeignGate:
    """Scheduling gates that are not ours keep members back."""

    members: int
    gates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BackOff:
    """The gang was rolled back and is not tried for a while."""

    left_s: int


@dataclass(frozen=True, slots=True)
class Behind:
    """Another gang of the queue is before it, and the queue serves its gangs in order."""

    queue: QueueName
    head: str
    """The key of that gang."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """Members of the gang are suspended, and it does not grow meanwhile."""

    suspended: int
    placed: int


# --- room ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoModel:
    """No node has a model that is asked for, in the way it is asked for."""

    model: str
    native: bool


@dataclass(frozen=True, slots=True)
class NodesWithout:
    """Nodes that lack the same thing of what a program needs."""

    nodes: int
    needed: str
    """The condition, as ``driver>=550``."""
    fact: str
    has: tuple[str, ...]
    """What they have instead; empty: they do not tell."""


@dataclass(frozen=True, slots=True)
class NoEnvironment:
    """No node with the cards that are asked for has the software that the program needs."""

    needs: str
    """As the user wrote it."""
    nodes: int
    """With such cards."""
    without: tuple[NodesWithout, ...]


class NodeResource(Enum):
    """Something of a node that a pod takes, cards aside."""

    CPU = auto()
    MEMORY = auto()
    DISK = auto()
    PODS = auto()
    SCALAR = auto()
    """An extended resource, by name."""
    SLOTS = auto()
    """The kubelet's slots of one of our resources, by name."""
    PORT = auto()
    """One host port, by number."""
    PORTS = auto()
    """One of several host ports."""


@dataclass(frozen=True, slots=True)
class NodeLack:
    """One resource of the nodes that is short by itself."""

    resource: NodeResource
    name: str = ""
    count: int = 0
    """For ports: how many are asked for."""


@dataclass(frozen=True, slots=True)
class HostMemoryLack:
    """The host memory to spill to is short, also on the node with most of it."""

    may_spill_mib: int
    """By one member."""
    free_mib: int


@dataclass(frozen=True, slots=True)
class ContainerLack:
    """A container may spill more than its own memory limit."""

    container: str
    may_spill_mib: int
    limit_mib: int


class Rule(Enum):
    """A kind of rule between pods."""

    ALONE = auto()
    """Pod anti-affinity that lets no two members be on one node."""
    AWAY = auto()
    """Pod anti-affinity between members and other pods."""
    EVEN = auto()
    """Topology spread."""
    NEAR = auto()
    """Pod affinity."""
    TOGETHER = auto()
    """Several kinds of rules, each of which alone would leave enough."""
    PACKED = auto()
    """So many members of a gang on one node were refused."""


@dataclass(frozen=True, slots=True)
class NeighbourLack:
    """Rules between pods leave too few places."""

    rule: Rule
    wanted: int
    places: int
    label: str = ""
    """The node label whose values have to be different ones; empty: different nodes."""


@dataclass(frozen=True, slots=True)
class LevelLack:
    """Members have to be within one domain of the network, and none has room for all of them."""

    bound: Bound
    wanted: int
    places: int
    """For how many of it the roomiest has room; 0 where there is none."""
    roomiest: str
    """The name of that domain; empty: no node tells of a domain of this tier, or of one where they are."""
    subgroup: str = ""
    """The members are those of this subgroup; empty: all that the gang needs."""
    of_subgroups: bool = False
    """``wanted`` and ``places`` count subgroups: how many find a domain at the same time."""
    is_apart: bool = False
    """Those that are there already are in no one domain."""


Lack = NodeLack | HostMemoryLack | ContainerLack | NeighbourLack


@dataclass(frozen=True, slots=True)
class NamedCards:
    """What the lists of cards on the pods leave of a model's cards."""

    cards: int
    left: int
    uses: bool
    avoids: bool


@dataclass(frozen=True, slots=True)
class CardSupply:
    """Cards of the model that is asked for."""

    model: str
    nodes: int
    """Nodes that have such cards, free or not."""
    free_for: int
    """Members for which the cards alone would be enough, on all nodes."""
    named: NamedCards | None
    off_for: int = 0
    """Further members for which cards would be enough, did operators not keep high and low gangs of several
    pods apart."""
    off_low: bool = False
    """Such low gangs are on these cards, and the members are of class high; else the other way round."""
    apart_for: int = 0
    """Members for which free cards would be enough, if any cards of a node could go together."""
    no_place: int = 0
    """Cards that have memory and cores left for the slice, and no place for one of its size."""
    slice: str = ""
    """That size."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """What is short on nodes where cards are not."""

    cards_for: int
    """Members for which there are cards on nodes that are open to them."""
    lacks: tuple[Lack, ...]
    """Empty: each resource by itself is enough, all of them together are not."""


@dataclass(frozen=True, slots=True)
class ShutNode:
    """A node with room that does not take the pods."""

    name: NodeName
    why: str


@dataclass(frozen=True, slots=True)
class Standby:
    """Room that suspended gangs keep, and without which more members would fit."""

    fit: int
    memory_mib: int
    cores_percent: int
    cards: int
    gangs: tuple[str, ...]
    hold_s: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """Cards that are claimed for gangs that wait longer, and without which more members would fit."""

    fit: int
    cards: int
    gangs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Guaranteed:
    """Cards that queues are guaranteed and do not use, and without which more members would fit."""

    fit: int
    cards: int
    queues: tuple[QueueName, ...]


@dataclass(frozen=True, slots=True)
class OwnClaim:
    """What is claimed for the gang itself."""

    cards: int
    nodes: tuple[NodeName, ...]
    since: Instant
    waits_for: tuple[str, ...]
    """Gangs that are still on these cards."""
    until: Instant | None
    """When they are known to have left; None: that is not known."""


class Spared(Enum):
    """Why no gang goes for one that finds no room."""

    COMING_BACK = auto()
    """Gangs on their way back to their cards can be suspended again soon."""
    GUARANTEED = auto()
    """Those whose going would make room are guaranteed what they hold."""
    PROTECTED = auto()
    """Those whose going would make room may not be evicted."""
    REFUSED = auto()
    """Gangs went for it before, and the scheduler refused it all the same."""
    NODE_REFUSED = auto()
    """A kubelet refused a pod of it lately."""
    NOT_ENOUGH = auto()
    """There would be no room without them either."""


class Kept(Enum):
    """Why a gang whose queue deserves cards takes none back."""

    BEYOND = auto()
    """With the gang its queue would have more than it deserves."""
    NOBODY = auto()
    """No queue that gives back has more than it deserves."""
    NOT_ENOUGH = auto()
    """What those queues may give back would not make room."""


@dataclass(frozen=True, slots=True)
class NotReclaimed:
    """Why nothing is taken back."""

    why: Kept
    resource: str
    """The kind of card that decides it."""
    account: Account | None = None
    """What the gang's queue would have with it, where that is more than it deserves."""


@dataclass(frozen=True, slots=True)
class NoVictims:
    """Making room was tried, and no gang goes."""

    why: Spared
    gangs: tuple[str, ...] = ()
    """Those that are coming back."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """No place for all of them now. It tells of the members of one shape: of the one that lacks most."""

    request: Request
    queue: QueueName
    wanted: int
    free: int
    """So many of those wanted would find a place. All of them: each shape fits by itself."""
    task: str = ""
    """The task of these members, where the gang has members of other shapes."""
    each: NodeRequest | None = None
    """What one member asks of its node; None: it asks for cards."""
    cards: CardSupply | None = None
    beyond: Beyond | None = None
    shut: tuple[ShutNode, ...] = ()
    shut_more: int = 0
    """Further nodes that are closed to them."""
    standby: Standby | None = None
    claimed: Claimed | None = None
    guaranteed: Guaranteed | None = None
    own: OwnClaim | None = None
    no_victims: NoVictims | None = None
    not_reclaimed: NotReclaimed | None = None
    """None: its queue deserves nothing of what it asks for."""
    level: LevelLack | None = None
    """No domain of the network that it may have has room for all of it."""
    brief: bool = False
    """The decision had told very many gangs already: what is short was not looked for."""
    opens: tuple[str, ...] = ()
    """Nodes that were to be empty, and take work again for it."""


@dataclass(frozen=True, slots=True)
class RoomSoon:
    """No gang has to go: there is room once pods that leave anyway are gone."""

    request: Request
    queue: QueueName
    leaving: int


@dataclass(frozen=True, slots=True)
class MakingRoom:
    """Pods of other gangs go, or leave their cards, for this one."""

    evicted: tuple[str, ...]
    """Gangs, by key."""
    evicted_pods: int
    suspended: tuple[str, ...]
    suspended_pods: int
    cards: int
    """That all of these pods hold."""
    accounts: tuple[Account, ...] = ()
    """What the gang's queue and those of its victims have and deserve, where that is why they go."""


@dataclass(frozen=True, slots=True)
class Remade:
    """An option was chosen, and pods that were made without it are made again."""

    choice: str
    members: int
    """So many pods."""


@dataclass(frozen=True, slots=True)
class NoOption:
    """None of the options of the gang can start now."""

    options: tuple[tuple[str, "Finding"], ...]
    """By option, what is short for it. Empty: its members have no option in common."""
    standing: "Finding | None" = None
    """What is short for the option that its pods are made with; None: they are made with none."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The plan of the gang does not hold any more."""

    plan_id: str
    why: str


# --- placed --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    """Members have their place."""

    members: int
    surplus: int = 0
    """Members above the minimum that still wait."""
    there: int = 0
    """Members that had their place before."""
    tried: bool = True
    """Whether room was looked for those that wait. A plan that is carried out says nothing about them."""
    rule: str = ""
    """The operator's rule that said how they are placed; empty: none was for them."""


@dataclass(frozen=True, slots=True)
class AboveMinimum:
    """The gang runs, and members above its minimum wait."""

    there: int
    waiting: int
    why: "Finding"
    """Why the next of them waits."""


Finding = (
    OverCap
    | NoQueue
    | Closed
    | MissingMembers
    | TooLarge
    | ForeignGate
    | BackOff
    | Behind
    | Suspended
    | NoModel
    | NoEnvironment
    | Shortage
    | RoomSoon
    | MakingRoom
    | Remade
    | NoOption
    | GivenUp
    | Placed
    | AboveMinimum
)
