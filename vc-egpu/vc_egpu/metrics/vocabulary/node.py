"""Level 2, the node agent: itself, its cards, and the containers on them."""

from functools import partial
from typing import Final

from vc_egpu.metrics.family import CARD, SHARE, Family

_agent = partial(Family, component="node-agent")
_full = partial(Family, component="node-agent", optional=True)

CALL_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

CALL_SECONDS: Final = _agent(
    "egpu_node_call_seconds", "histogram", ("call",),
    "Calls of the kubelet (Allocate, PreStartContainer), from call in to answer, and ours to it.", "seconds",
    buckets=CALL_BUCKETS_S,
)  # fmt: skip
REFUSALS: Final = _agent(
    "egpu_node_refusals_total", "counter", ("call", "reason"), "Calls that were refused, by reason."
)
OFFENCES: Final = _agent(
    "egpu_node_offences_total", "counter", ("offence", "action"),
    "Containers that took more than they were granted, by what was done about it.",
)  # fmt: skip
LIMIT_CHANGES: Final = _agent(
    "egpu_node_limit_changes_total", "counter", ("outcome",),
    "Limits of running containers that were to change, by outcome.",
)  # fmt: skip
CARD_TRIALS: Final = _agent(
    "egpu_node_card_trials_total", "counter", ("outcome",),
    "Cards that were tried as a program would use them, by outcome: well, fault, untold.",
)  # fmt: skip
REGISTRATIONS: Final = _agent(
    "egpu_node_registrations_total", "counter", (), "Registrations with the kubelet."
)
SLOTS: Final = _agent("egpu_node_slots", "gauge", ("resource", "health"), "Slots offered to the kubelet.")
RUNTIME_BYPASS: Final = _agent(
    "egpu_node_runtime_bypass", "gauge", (), "Runtime configurations that hand out cards past us."
)
DEVICE_LINKS_MISSING: Final = _agent(
    "egpu_node_device_links_missing", "gauge", (),
    "1: a reload of systemd takes the cards from running containers.",
)  # fmt: skip
POLICY_BROKEN: Final = _agent(
    "egpu_node_policy_broken", "gauge", (), "1: the policy file is wrong, the last good one holds."
)
MODEL_TABLE_BROKEN: Final = _agent(
    "egpu_node_model_table_broken", "gauge", (), "1: the model table is wrong, the last good one holds."
)
ISOLATION: Final = _agent("egpu_node_isolation", "gauge", (), "1: new containers get the isolation library.")
CARDS_HELD: Final = _agent(
    "egpu_node_cards_held", "gauge", ("isolation",), "Cards by what keeps containers to their memory on them."
)
CARDS_TIMED: Final = _agent(
    "egpu_node_cards_timed", "gauge", ("compute",), "Cards by what shares their time."
)
MPS_FAULTS: Final = _agent(
    "egpu_node_mps_faults_total", "counter", (),
    "Faults of MPS servers and daemons, each of which ended all programs on its card.",
)  # fmt: skip
MPS_PROGRAMS: Final = _agent("egpu_node_mps_programs", "gauge", (), "Programs under MPS servers of the node.")
BEHIND_SECONDS: Final = _agent(
    "egpu_node_behind_seconds", "gauge", (), "Time since the Node last said all that the agent knows.",
    "seconds",
)  # fmt: skip
PROBLEM: Final = _agent("egpu_node_problem", "gauge", (), "1: the node takes nothing.")
DCGM_NAMES: Final = _agent(
    "egpu_node_dcgm_names", "gauge", (),
    "1: this page has the DCGM names; 0: a dcgm-exporter answers on the node, or a setting says no.",
)  # fmt: skip
SEES_PROCESSES: Final = _agent(
    "egpu_node_sees_processes", "gauge", (),
    "0: the driver tells this agent of no other program's processes, so use by container is not known.",
)  # fmt: skip

POD_SUSPENDED_SECONDS: Final = _agent(
    "egpu_node_pod_suspended_seconds_total", "counter", ("namespace", "pod"),
    "Time that the pod was suspended.", "seconds", optional=True,
)  # fmt: skip
POD_SUSPENDED_BYTES: Final = _agent(
    "egpu_node_pod_suspended_bytes", "gauge", ("namespace", "pod"),
    "Its GPU memory that lies on the host now.", "bytes", optional=True,
)  # fmt: skip
POD_SUSPENSION_STATE: Final = _agent(
    "egpu_node_pod_suspension_state", "gauge", ("namespace", "pod", "state"),
    "1: how far it is with being suspended.", optional=True,
)  # fmt: skip
SWAP_HAND_OVERS: Final = _agent(
    "egpu_node_swap_hand_overs_total", "counter", (),
    "Times that a card went from one pod to another that has it in turns.", optional=True,
)  # fmt: skip
SWAP_SECONDS: Final = _agent(
    "egpu_node_swap_hand_over_seconds_total", "counter", (),
    "How long these took, from the order to leave until the next one ran.", "seconds", optional=True,
)  # fmt: skip
SWAP_BYTES: Final = _agent(
    "egpu_node_swap_moved_bytes_total", "counter", (),
    "GPU memory of such pods that went to the host or back.", "bytes", optional=True,
)  # fmt: skip

AGENT: Final = (
    CALL_SECONDS,
    REFUSALS,
    OFFENCES,
    LIMIT_CHANGES,
    CARD_TRIALS,
    REGISTRATIONS,
    SLOTS,
    RUNTIME_BYPASS,
    DEVICE_LINKS_MISSING,
    POLICY_BROKEN,
    MODEL_TABLE_BROKEN,
    ISOLATION,
    CARDS_HELD,
    CARDS_TIMED,
    MPS_FAULTS,
    MPS_PROGRAMS,
    BEHIND_SECONDS,
    PROBLEM,
    DCGM_NAMES,
    SEES_PROCESSES,
    POD_SUSPENDED_SECONDS,
    POD_SUSPENDED_BYTES,
    POD_SUSPENSION_STATE,
    SWAP_HAND_OVERS,
    SWAP_SECONDS,
    SWAP_BYTES,
)

CARD_HEALTHY: Final = _agent("egpu_node_card_healthy", "gauge", CARD, "1: the card is in order.")
CARD_OFFERED: Final = _agent("egpu_node_card_offered", "gauge", CARD, "1: the card takes new containers.")
CARD_HELD_PODS: Final = _agent(
    "egpu_node_card_held_pods", "gauge", CARD, "Pods that hold a share of the card."
)
CARD_UNTOLD: Final = _agent(
    "egpu_node_card_untold", "gauge", CARD, "1: the driver does not tell which processes run on the card."
)
CARD_UNATTRIBUTED: Final = _agent(
    "egpu_node_card_unattributed_bytes", "gauge", CARD,
    "With the library: memory of the card that is used, but by no process that the driver names.", "bytes",
    optional=True,
)  # fmt: skip

CARDS: Final = (CARD_HEALTHY, CARD_OFFERED, CARD_HELD_PODS, CARD_UNTOLD, CARD_UNATTRIBUTED)

MEMORY_GRANTED: Final = _agent(
    "egpu_node_container_memory_granted_bytes", "gauge", SHARE,
    "Memory of the card granted to the container.", "bytes",
)  # fmt: skip
CORES_GRANTED: Final = _agent(
    "egpu_node_container_cores_granted_ratio", "gauge", SHARE,
    "Compute of the card granted to the container; 0: none was named.", "ratio",
)  # fmt: skip
SHARE_SECONDS: Final = _agent(
    "egpu_node_container_share_seconds_total", "counter", SHARE,
    "Time since the container was let in on the card.", "seconds",
)  # fmt: skip
MEMORY_USED: Final = _agent(
    "egpu_node_container_memory_used_bytes", "gauge", SHARE,
    "Memory of the card used by the container's processes, as the driver measures it. Absent where it does "
    "not tell.", "bytes",
)  # fmt: skip
COMPUTE_USED_SECONDS: Final = _agent(
    "egpu_node_container_compute_used_seconds_total", "counter", SHARE,
    "Time of the card used by the container's work: added up from what the driver tells of its processes. "
    "Where it does not tell, what the library charged.", "seconds",
)  # fmt: skip
LAUNCH_WAIT_SECONDS: Final = _agent(
    "egpu_node_container_launch_wait_seconds_total", "counter", (*SHARE, "cause"),
    "With the library: time that its launches waited for a higher class (class) or for its own share "
    "(share).", "seconds", optional=True,
)  # fmt: skip
SUSPENDED_SECONDS: Final = _agent(
    "egpu_node_container_suspended_seconds_total", "counter", SHARE,
    "Time that the container was suspended.", "seconds",
)  # fmt: skip
MEMORY_CHARGED: Final = _full(
    "egpu_node_container_memory_charged_bytes", "gauge", SHARE,
    "Memory that the library charged to the container.", "bytes",
)  # fmt: skip
MEMORY_MANAGED: Final = _full(
    "egpu_node_container_memory_managed_bytes", "gauge", SHARE,
    "Managed memory, wherever it lies now.", "bytes",
)  # fmt: skip
MEMORY_BEYOND: Final = _full(
    "egpu_node_container_memory_beyond_bytes", "gauge", SHARE,
    "Memory that the driver shows beyond what the library charged, and that counts from then on.", "bytes",
)  # fmt: skip
MEMORY_SUSPENDED: Final = _full(
    "egpu_node_container_suspended_bytes", "gauge", SHARE,
    "GPU memory of the container that lies on the host now, as its library counts it.", "bytes",
)  # fmt: skip
UNITS: Final = _full(
    "egpu_node_container_units_total", "counter", SHARE, "Kernels, graph launches, memsets and copies."
)
LONGEST_UNIT_SECONDS: Final = _full(
    "egpu_node_container_longest_unit_seconds", "gauge", SHARE, "The longest of these.", "seconds"
)

CONTAINERS: Final = (
    MEMORY_GRANTED,
    CORES_GRANTED,
    SHARE_SECONDS,
    MEMORY_USED,
    COMPUTE_USED_SECONDS,
    LAUNCH_WAIT_SECONDS,
    SUSPENDED_SECONDS,
    MEMORY_CHARGED,
    MEMORY_MANAGED,
    MEMORY_BEYOND,
    MEMORY_SUSPENDED,
    UNITS,
    LONGEST_UNIT_SECONDS,
)
