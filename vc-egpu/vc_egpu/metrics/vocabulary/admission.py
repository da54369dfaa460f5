"""Level 1, the leading admission controller: the process, queues, cards and shares."""

from functools import partial
from typing import Final

from vc_egpu.metrics.family import CARD, SHARE, Family

_process = partial(Family, component="admission")
_cards = partial(Family, component="admission", path="/metrics/cards")
_shares = partial(Family, component="admission", path="/metrics/shares")

TURN_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
WAIT_BUCKETS_S: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)

LEADER: Final = _process("egpu_admission_leader", "gauge", (), "1 on the process that leads.")
ADMITTING: Final = _process(
    "egpu_admission_admitting", "gauge", (), "0 while the operator has stopped admitting."
)
EPOCH: Final = _process("egpu_admission_epoch", "gauge", (), "Number of this leadership.")
DECISION_SECONDS: Final = _process(
    "egpu_admission_decision_seconds", "histogram", (), "How long decisions take.", "seconds",
    buckets=TURN_BUCKETS_S,
)  # fmt: skip
REACTION_SECONDS: Final = _process(
    "egpu_admission_reaction_seconds", "histogram", (),
    "From the first event that asks for a decision to the plan on its PodGroup.", "seconds",
    buckets=TURN_BUCKETS_S,
)  # fmt: skip
MIRROR_BEHIND_SECONDS: Final = _process(
    "egpu_admission_mirror_behind_seconds", "gauge", ("resource",),
    "Time since the watch of these objects was last heard, if only of a bookmark.", "seconds",
)  # fmt: skip
HYPERNODES_WRONG: Final = _process(
    "egpu_hypernodes_wrong", "gauge", (),
    "HyperNodes of which something is left out. The log and `kubectl egpu doctor` say what is wrong.",
)  # fmt: skip
NODES_MEASURED: Final = _process(
    "egpu_nodes_measured", "gauge", (),
    "Nodes of which it is known how busy they were lately. Placement looks at it.",
)  # fmt: skip
ENVIRONMENTS_BROKEN: Final = _process(
    "egpu_admission_environments_broken", "gauge", (),
    "1: the table of what software needs cannot be read now, the last good one stays in force.",
)  # fmt: skip
PLACEMENT_BROKEN: Final = _process(
    "egpu_admission_placement_broken", "gauge", (),
    "1: the table of placement rules cannot be read now, the last good one stays in force.",
)  # fmt: skip
GANGS_PLACED: Final = _process(
    "egpu_gangs_placed_by_rule_total", "counter", ("rule",),
    "Plans made for gangs by each rule of the table of placement.",
)  # fmt: skip
OPERATIONS: Final = _process(
    "egpu_admission_operations_total", "counter", ("operation",), "What this leader has done."
)
WRITES_REFUSED: Final = _process(
    "egpu_admission_writes_refused_total", "counter", ("write",),
    "Writes that the API server refuses again and again.",
)  # fmt: skip
PODS_LET_GO: Final = _process(
    "egpu_pods_let_go_total", "counter", ("way",),
    "Pods that were bound by us (direct), or whose gate was lifted (scheduler).",
)  # fmt: skip
KUBELET_REFUSALS: Final = _process(
    "egpu_kubelet_refusals_total", "counter", ("lacked",),
    "Pods that a kubelet refused, by what it lacked.",
)  # fmt: skip
GANGS_ADMITTED: Final = _process(
    "egpu_gangs_admitted_total", "counter", ("queue", "class"), "Gangs that got all that they asked for."
)
GANG_WAIT_SECONDS: Final = _process(
    "egpu_gang_wait_seconds", "histogram", ("queue", "class"),
    "From the last member that a gang needed to its admission.", "seconds", buckets=WAIT_BUCKETS_S,
)  # fmt: skip
GANG_BIND_SECONDS: Final = _process(
    "egpu_gang_bind_seconds", "histogram", (), "From the last gate of a gang to its last member on a node.",
    "seconds", buckets=TURN_BUCKETS_S,
)  # fmt: skip
PODS_EVICTED: Final = _process(
    "egpu_pods_evicted_total", "counter", ("queue", "class", "cause"),
    "Pods that were asked to go, by queue and class of the victim.",
)  # fmt: skip
GANGS_MOVED: Final = _process(
    "egpu_gangs_moved_total", "counter", ("queue", "step"),
    "Gangs that claimed other cards (claimed), came to them (arrived), or stayed (given up). With --defrag.",
)  # fmt: skip
NODES_EMPTIED: Final = _process(
    "egpu_nodes_emptied_total", "counter", ("step",),
    "Nodes that got our taint so that they become empty (tainted), or lost it (opened). With "
    "--defrag-empty-nodes.",
)  # fmt: skip
PODS_SUSPENDED: Final = _process(
    "egpu_pods_suspended_total", "counter", ("queue", "class", "cause"),
    "Pods that were told to leave their cards for a while, by queue and class of the victim.",
)  # fmt: skip
SUSPENSIONS: Final = _process(
    "egpu_suspensions_total", "counter", ("queue", "outcome"),
    "Pods that left their cards (suspended) or are back (resumed). Orders that were given up (failed), and "
    "pods that could not be brought back (broken).",
)  # fmt: skip
NODES_NEEDED: Final = _process(
    "egpu_nodes_needed", "gauge", ("model",),
    "Empty nodes that would serve the gangs that lack cards alone. With --node-groups.",
)  # fmt: skip
NODES_REQUESTED: Final = _process(
    "egpu_nodes_requested", "gauge", ("model",),
    "Nodes that the ProvisioningRequest of this model asks for. With --node-groups.",
)  # fmt: skip

PROCESS: Final = (
    LEADER,
    ADMITTING,
    EPOCH,
    DECISION_SECONDS,
    REACTION_SECONDS,
    MIRROR_BEHIND_SECONDS,
    HYPERNODES_WRONG,
    NODES_MEASURED,
    ENVIRONMENTS_BROKEN,
    PLACEMENT_BROKEN,
    GANGS_PLACED,
    OPERATIONS,
    WRITES_REFUSED,
    PODS_LET_GO,
    KUBELET_REFUSALS,
    GANGS_ADMITTED,
    GANG_WAIT_SECONDS,
    GANG_BIND_SECONDS,
    PODS_EVICTED,
    GANGS_MOVED,
    NODES_EMPTIED,
    PODS_SUSPENDED,
    SUSPENSIONS,
    NODES_NEEDED,
    NODES_REQUESTED,
)

QUEUE_USED: Final = _process(
    "egpu_queue_used", "gauge", ("queue", "resource"),
    "What admitted pods and plans count, in the resource's own unit.", "the resource's",
)  # fmt: skip
QUEUE_CAPABILITY: Final = _process(
    "egpu_queue_capability", "gauge", ("queue", "resource"), "The cap.", "the resource's"
)
QUEUE_DESERVED: Final = _process(
    "egpu_queue_deserved", "gauge", ("queue", "resource"), "What the queue deserves.", "the resource's"
)
QUEUE_GUARANTEE: Final = _process(
    "egpu_queue_guarantee", "gauge", ("queue", "resource"), "What is kept for the queue.", "the resource's"
)
QUEUE_WAITING_GANGS: Final = _process(
    "egpu_queue_waiting_gangs", "gauge", ("queue", "reason", "class"),
    "Gangs that wait. A Deployment that is scaled to nothing does not wait.",
)  # fmt: skip
QUEUE_WAITING_RESOURCES: Final = _process(
    "egpu_queue_waiting_resources", "gauge", ("queue", "resource"), "What the gangs that wait ask for.",
    "the resource's",
)  # fmt: skip
QUEUE_OLDEST_WAITING_SECONDS: Final = _process(
    "egpu_queue_oldest_waiting_seconds", "gauge", ("queue", "reason"),
    "Age of the oldest pod that waits now.", "seconds",
)  # fmt: skip
QUEUE_INFO: Final = _process(
    "egpu_queue_info", "gauge", ("queue", "parent", "state"), "1: the queue is there, Open or Closed."
)

QUEUES: Final = (
    QUEUE_USED,
    QUEUE_CAPABILITY,
    QUEUE_DESERVED,
    QUEUE_GUARANTEE,
    QUEUE_WAITING_GANGS,
    QUEUE_WAITING_RESOURCES,
    QUEUE_OLDEST_WAITING_SECONDS,
    QUEUE_INFO,
)

CARD_MEMORY: Final = _cards(
    "egpu_card_memory_bytes", "gauge", CARD, "Memory that the ledger counts.", "bytes"
)
CARD_MEMORY_ALLOCATED: Final = _cards(
    "egpu_card_memory_allocated_bytes", "gauge", CARD, "Memory that shares have.", "bytes"
)
CARD_CORES_ALLOCATED: Final = _cards(
    "egpu_card_cores_allocated_ratio", "gauge", (*CARD, "side"),
    "Compute that shares have: high and unset together (high), unset and low together (low).", "ratio",
)  # fmt: skip
CARD_SHARERS: Final = _cards("egpu_card_sharers", "gauge", CARD, "Shares on the card.")
CARD_SUSPENDED: Final = _cards(
    "egpu_card_suspended_sharers", "gauge", CARD, "Shares that have left the card for a while."
)
CARD_SUSPENDABLE: Final = _cards(
    "egpu_card_suspendable_sharers", "gauge", CARD,
    "Shares that could be suspended, as the node's agent says.",
)  # fmt: skip
CARD_SLICES: Final = _cards(
    "egpu_card_slices", "gauge", (*CARD, "slice"),
    "Slices of that fixed size that are given out; absent where the card is not cut.",
)  # fmt: skip
CARD_USABLE: Final = _cards("egpu_card_usable", "gauge", CARD, "1: the card takes new shares.")
HOST_MEMORY: Final = _cards(
    "egpu_host_memory_bytes", "gauge", ("node",), "Host memory set aside for memory of cards.", "bytes"
)
HOST_MEMORY_BOOKED: Final = _cards(
    "egpu_host_memory_booked_bytes", "gauge", ("node", "for"),
    "What is booked of that, for spilling or suspended (also on the way there and back).", "bytes",
)  # fmt: skip

CARDS: Final = (
    CARD_MEMORY,
    CARD_MEMORY_ALLOCATED,
    CARD_CORES_ALLOCATED,
    CARD_SHARERS,
    CARD_SUSPENDED,
    CARD_SUSPENDABLE,
    CARD_SLICES,
    CARD_USABLE,
    HOST_MEMORY,
    HOST_MEMORY_BOOKED,
)

_DESCRIBED: Final = (*SHARE, "node", "model", "queue", "gang", "class")
SHARE_MEMORY: Final = _shares(
    "egpu_share_memory_bytes", "gauge", _DESCRIBED,
    "Memory of one share, from its placement to its release, suspended ones too.", "bytes",
)  # fmt: skip
SHARE_CORES: Final = _shares(
    "egpu_share_cores_ratio", "gauge", _DESCRIBED, "Compute of one share; 0: none was named.", "ratio"
)
SHARE_SUSPENDED: Final = _shares(
    "egpu_share_suspended", "gauge", SHARE, "1: the share has left its card for a while; else absent."
)

SHARES: Final = (SHARE_MEMORY, SHARE_CORES, SHARE_SUSPENDED)
