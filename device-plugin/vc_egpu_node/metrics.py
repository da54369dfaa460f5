"""Level-2 metrics: cards as dcgm-exporter names and measures them, containers under ``egpu_node_``.

Families are made at each scrape from what is known then; only counts go on from scrape to scrape.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.volcano.words.annotations import NodeCards

from vc_egpu_node.cards.inventory import Slot
from vc_egpu_node.cards.monitor import Observation, unattributed_mib
from vc_egpu_node.cards.trials import OUTCOMES, Outcome
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import Use
from vc_egpu_node.suspension.suspender import SuspendedPod
from vc_egpu_node.vendors.base import CardReading
from vc_egpu_node.wall.offences import ACTIONS, Action, Offence
from vc_egpu_node.wall.wall import Account

CALL_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
_CARD_LABELS: Final = (
    "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION",
)  # fmt: skip
_CONTAINER_LABELS: Final = ("namespace", "pod", "container", "uuid")

# (name, field of CardSample, is a counter, help)
_DCGM: Final = (
    ("DCGM_FI_DEV_SM_CLOCK", "sm_clock_mhz", False, "SM clock frequency (in MHz)."),
    ("DCGM_FI_DEV_MEM_CLOCK", "mem_clock_mhz", False, "Memory clock frequency (in MHz)."),
    ("DCGM_FI_DEV_GPU_TEMP", "temperature_c", False, "GPU temperature (in C)."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "memory_temperature_c", False, "Memory temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "power_w", False, "Power draw (in W)."),
    ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy_mj", True, "Energy since boot (in mJ)."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "pcie_replays", True, "Number of PCIe retries."),
    ("DCGM_FI_DEV_GPU_UTIL", "gpu_util_percent", False, "GPU utilization (in %)."),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "mem_copy_util_percent", False, "Memory utilization (in %)."),
    ("DCGM_FI_DEV_ENC_UTIL", "enc_util_percent", False, "Encoder utilization (in %)."),
    ("DCGM_FI_DEV_DEC_UTIL", "dec_util_percent", False, "Decoder utilization (in %)."),
    ("DCGM_FI_DEV_FB_FREE", "memory_free_mib", False, "Framebuffer memory free (in MiB)."),
    ("DCGM_FI_DEV_FB_USED", "memory_used_mib", False, "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_FB_RESERVED", "memory_reserved_mib", False, "Framebuffer memory reserved (in MiB)."),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "remapped_rows", True, "Rows remapped, uncorrectable."),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "row_remap_pending", False, "Whether rows wait for a reset."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "row_remap_failure", False, "Whether remapping of rows has failed."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "ecc_uncorrected", True, "Double-bit volatile ECC errors."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class View:
    """All that a scrape shows, as of one moment."""

    node: str
    observation: Observation
    node_cards: NodeCards
    problem: str = ""
    """Why the node takes nothing."""
    behind_s: float = 0.0
    """Since the Node last said all that the agent knows."""
    grants: Iterable[Grant] = ()
    uses: Iterable[Use] = ()
    slots: Mapping[str, tuple[Slot, ...]] = field(default_factory=dict)
    registrations: int = 0
    bypasses: int = 0
    policy_problem: str = ""
    models_problem: str = ""
    isolated: bool = False
    """Whether new containers get the isolation library."""
    accounts: Iterable[Account] = ()
    """What containers with the library say of themselves; the later one behind."""
    suspensions: Iterable[SuspendedPod] = ()
    """Pods that are or were suspended; likewise."""
    now_s: float = 0.0
    """Unix time."""


class Metrics(Collector):
    """The agent's registry."""

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view
        self.registry = CollectorRegistry()
        self._calls = Histogram(
            "egpu_node_call_seconds",
            "Calls of the kubelet, from call in to answer, and calls to it.",
            ["call"],
            buckets=CALL_BUCKETS_S,
            registry=self.registry,
        )
        self._refusals = Counter(
            "egpu_node_refusals_total",
            "Calls that were refused, by reason.",
            ["call", "reason"],
            registry=self.registry,
        )
        self._offences = Counter(
            "egpu_node_offences_total",
            "Containers that took more than they were granted, by what was done about it.",
            ["offence", "action"],
            registry=self.registry,
        )
        # The first one has to be seen as growth, so the totals stand at zero before it.
        for offence in Offence:
            for action in ACTIONS:
                self._offences.labels(offence.value, action)
        self._changes = Counter(
            "egpu_node_limit_changes_total",
            "Limits of running containers that were to change, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self._trials = Counter(
            "egpu_node_card_trials_total",
            "Cards that were tried as a program would use them, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in OUTCOMES:
            self._trials.labels(outcome)
        self.registry.register(self)

    def observe(self, call: str, seconds: float, outcome: str) -> None:
        """Count one call of the kubelet."""
        self._calls.labels(call).observe(seconds)
        if outcome != "ok":
            self._refusals.labels(call, outcome).inc()

    def offence(self, offence: Offence, action: Action) -> None:
        """Count what the second wall found."""
        self._offences.labels(offence.value, action).inc()

    def limits_changed(self, outcome: str) -> None:
        """Count a change of a running container's limits: ``applied`` or ``refused``."""
        self._changes.labels(outcome).inc()

    def tried(self, outcome: Outcome) -> None:
        """Count a trial of a card."""
        self._trials.labels(outcome).inc()

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: families depend on what the cards tell."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families, from the present state."""
        view = _later_ones(self._view())
        yield from _cards(view)
        yield from _inventory(view)
        yield from _containers(view)
        yield from _accounts(view)
        yield from _suspensions(view)
        yield from _agent(view)


def _later_ones(view: View) -> View:
    """Keep the later one of each name. A pod that was deleted with force may still hold its cards while its
    successor of the same name starts. But a series has one value."""
    grants = sorted(view.grants, key=lambda one: one.granted_at_s)
    return replace(
        view,
        grants=tuple({(one.namespace, one.pod, one.container): one for one in grants}.values()),
        accounts=tuple(
            {(one.namespace, one.pod, one.container, one.uuid): one for one in view.accounts}.values()
        ),
        suspensions=tuple({(one.namespace, one.pod): one for one in view.suspensions}.values()),
    )


def _labels_of(view: View, card: CardReading) -> list[str]:
    device = card.facts.device(card.index)
    version = view.observation.reading.driver_version
    return [str(card.index), card.uuid, card.pci_bus_id, device, card.product, view.node, version]


def _cards(view: View) -> Iterator[Metric]:
    for name, attribute, is_counter, text in _DCGM:
        family = GaugeMetricFamily(name, text, labels=_CARD_LABELS)
        if is_counter:
            family.type = "unknown"  # dcgm-exporter's counters have no _total, which the client would add
        for card in view.observation.reading.cards:
            sample = view.observation.samples.get(card.uuid)
            value = getattr(sample, attribute) if sample is not None else None
            if value is not None:
                family.add_metric(_labels_of(view, card), value)
        yield family
    text = "Value of the last XID error encountered."
    codes = GaugeMetricFamily("DCGM_FI_DEV_XID_ERRORS", text, labels=_CARD_LABELS)
    for card in view.observation.reading.cards:
        codes.add_metric(_labels_of(view, card), view.observation.error_codes.get(card.uuid, 0))
    yield codes


def _inventory(view: View) -> Iterator[Metric]:
    labels = ("uuid", "index", "model")
    healthy = GaugeMetricFamily("egpu_node_card_healthy", "1: the card is in order.", labels=labels)
    offered = GaugeMetricFamily("egpu_node_card_offered", "1: the card takes new containers.", labels=labels)
    held = GaugeMetricFamily("egpu_node_card_held_pods", "Pods that hold a share of the card.", labels=labels)
    untold = GaugeMetricFamily(
        "egpu_node_card_untold", "1: the driver does not tell who runs on the card.", labels=labels
    )
    for card in view.node_cards.cards:
        values = (card.uuid, str(card.index), card.model)
        healthy.add_metric(values, float(card.healthy))
        offered.add_metric(values, float(card.offered and card.healthy))
        held.add_metric(values, len(card.held))
        untold.add_metric(values, float(card.uuid in view.observation.untold))
    yield from (healthy, offered, held, untold)
    if view.isolated:  # else the agent does not see who is on its cards
        nobodys = GaugeMetricFamily(
            "egpu_node_card_unattributed_mib",
            "Memory of the card that is used, but by no process that the driver names, MiB.",
            labels=labels,
        )
        for card in view.node_cards.cards:
            size = unattributed_mib(view.observation, card.uuid)
            if size is not None:
                nobodys.add_metric((card.uuid, str(card.index), card.model), size)
        yield nobodys
    slots = GaugeMetricFamily(
        "egpu_node_slots", "Slots offered to the kubelet.", labels=("resource", "health")
    )
    for resource, entries in view.slots.items():
        well = sum(slot.healthy for slot in entries)
        slots.add_metric((resource, "healthy"), well)
        slots.add_metric((resource, "unhealthy"), len(entries) - well)
    yield slots


def _containers(view: View) -> Iterator[Metric]:
    def family(name: str, text: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"egpu_node_container_{name}", text, labels=_CONTAINER_LABELS)

    memory = family("memory_granted_mib", "Memory of the card granted to the container, MiB.")
    cores = family("cores_granted_percent", "Compute of the card granted to the container, percent.")
    time_held = family("time_held_seconds", "Seconds since the container was let in on the card.")
    for grant in view.grants:
        for share in grant.shares:
            labels = (grant.namespace, grant.pod, grant.container, share.uuid)
            memory.add_metric(labels, share.memory_mib)
            cores.add_metric(labels, share.cores)
            time_held.add_metric(labels, max(0.0, view.now_s - grant.granted_at_s))
    used = family("memory_used_mib", "Memory of the card used by the container's processes, MiB.")
    busy = family("cores_used_percent", "Compute of the card used by the container's processes, percent.")
    for use in view.uses:
        labels = (use.namespace, use.pod, use.container, use.uuid)
        used.add_metric(labels, use.memory_mib)
        busy.add_metric(labels, use.sm_percent)
    yield from (memory, cores, time_held, used, busy)


# (name, field of Activity, is a counter, help)
_ACTIVITY: Final = (
    ("compute_used_seconds", "busy_s", True, "Time of the card used by the container's work, seconds."),
    ("held_seconds", "held_s", True, "Time that its launches waited for a higher class, seconds."),
    ("capped_seconds", "capped_s", True, "Time that its launches waited for its own share, seconds."),
    ("units", "units", True, "Kernels, graph launches, memsets and copies."),
    ("longest_unit_seconds", "longest_s", False, "The longest of these, seconds."),
)


def _accounts(view: View) -> Iterator[Metric]:
    """As the library in the container counts: an estimate where the container is hostile."""
    accounts = list(view.accounts)
    if not view.isolated and not accounts:
        return
    prefix = "egpu_node_container_"
    charged = GaugeMetricFamily(
        f"{prefix}memory_charged_mib", "Memory charged to the container, MiB.", labels=_CONTAINER_LABELS
    )
    managed = GaugeMetricFamily(
        f"{prefix}memory_managed_mib", "Managed memory, wherever it lies now, MiB.", labels=_CONTAINER_LABELS
    )
    beyond = GaugeMetricFamily(
        f"{prefix}memory_beyond_mib",
        "Memory that the driver shows beyond what the library charged, and that counts from then on, MiB.",
        labels=_CONTAINER_LABELS,
    )
    for one in accounts:
        labels = (one.namespace, one.pod, one.container, one.uuid)
        charged.add_metric(labels, one.charged_mib)
        managed.add_metric(labels, one.managed_mib)
        beyond.add_metric(labels, one.beyond_mib)
    yield from (charged, managed, beyond)
    for name, attribute, is_counter, text in _ACTIVITY:
        kind = CounterMetricFamily if is_counter else GaugeMetricFamily
        family = kind(f"{prefix}{name}", text, labels=_CONTAINER_LABELS)
        for one in accounts:
            labels = (one.namespace, one.pod, one.container, one.uuid)
            family.add_metric(labels, getattr(one.activity, attribute))
        yield family


def _suspensions(view: View) -> Iterator[Metric]:
    labels = ("namespace", "pod")
    seconds = CounterMetricFamily(
        "egpu_node_pod_suspended_seconds", "Time that the pod was suspended, seconds.", labels=labels
    )
    host = GaugeMetricFamily(
        "egpu_node_pod_suspended_mib", "Its GPU memory that lies on the host now, MiB.", labels=labels
    )
    state = GaugeMetricFamily(
        "egpu_node_pod_suspension_state", "1: how far it is with being suspended.", labels=(*labels, "state")
    )
    pods = list(view.suspensions)
    for one in pods:
        seconds.add_metric((one.namespace, one.pod), one.suspended_s)
        host.add_metric((one.namespace, one.pod), one.host_mib)
        state.add_metric((one.namespace, one.pod, one.state), 1.0)
    yield from (seconds, host, state) if pods else ()
    yield from _suspended_containers(view, {(one.namespace, one.pod): one for one in pods})


def _suspended_containers(view: View, pods: Mapping[tuple[str, str], SuspendedPod]) -> Iterator[Metric]:
    """A pod is suspended whole; what of its memory is whose, the library in each container counts."""
    labels = ("namespace", "pod", "container")
    seconds = CounterMetricFamily(
        "egpu_node_container_suspended_seconds",
        "Time that the container was suspended, seconds.",
        labels=labels,
    )
    host = GaugeMetricFamily(
        "egpu_node_container_suspended_mib",
        "GPU memory of the container's share of the card that lies on the host now, MiB.",
        labels=_CONTAINER_LABELS,
    )
    for grant in view.grants:
        pod = pods.get((grant.namespace, grant.pod))
        if pod is not None:
            seconds.add_metric((grant.namespace, grant.pod, grant.container), pod.suspended_s)
    for one in view.accounts:
        pod = pods.get((one.namespace, one.pod))
        if pod is not None:
            away = one.charged_mib if pod.state is SuspensionState.SUSPENDED else 0
            host.add_metric((one.namespace, one.pod, one.container, one.uuid), away)
    yield from (seconds, host) if pods else ()


def _agent(view: View) -> Iterator[Metric]:
    yield CounterMetricFamily(
        "egpu_node_registrations", "Registrations with the kubelet.", value=view.registrations
    )
    yield GaugeMetricFamily(
        "egpu_node_runtime_bypass", "Runtime configurations that hand out cards past us.", value=view.bypasses
    )
    yield GaugeMetricFamily(
        "egpu_node_device_links_missing",
        "1: a reload of systemd takes the cards from running containers.",
        value=float(bool(view.node_cards.warning)),
    )
    yield GaugeMetricFamily(
        "egpu_node_policy_broken", "1: the policy file is wrong, the last good one holds.",
        value=float(bool(view.policy_problem)),
    )  # fmt: skip
    yield GaugeMetricFamily(
        "egpu_node_model_table_broken", "1: the model table is wrong, the last good one holds.",
        value=float(bool(view.models_problem)),
    )  # fmt: skip
    yield GaugeMetricFamily(
        "egpu_node_isolation", "1: new containers get the isolation library.", value=float(view.isolated)
    )
    yield GaugeMetricFamily(
        "egpu_node_behind_seconds", "Time since the Node last said all that the agent knows, seconds.",
        value=view.behind_s,
    )  # fmt: skip
    yield GaugeMetricFamily(
        "egpu_node_problem", "1: the node takes nothing.", value=float(bool(view.problem))
    )
