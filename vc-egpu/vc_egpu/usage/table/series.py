"""The one table of the metric names that the small path asks Prometheus for, and how each becomes columns."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

SHARE_KEY: Final = ("namespace", "pod", "container", "uuid")
CARD_KEY: Final = ("uuid",)
QUEUE_KEY: Final = ("queue",)
RESOURCE_KEY: Final = ("queue", "resource")


class Kind(Enum):
    """How the values of a minute are made of samples."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Role(Enum):
    """What a series tells of."""

    SHARE = "share"
    RESTART = "restart"
    CARD = "card"
    DCGM = "dcgm"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True)
class Series:
    """One question to Prometheus: the metric, its kind, the labels that remain, the name of its values."""

    metric: str
    kind: Kind
    role: Role
    value: str
    by: tuple[str, ...]
    matchers: str = ""

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.metric}{{{self.matchers}}}" if self.matchers else self.metric

    @property
    def is_ours(self) -> bool:
        """Whether a program of ours tells it: that nothing does is worth a word."""
        return self.role in {Role.SHARE, Role.CARD}

    def per_minute(self) -> str:
        """The query of the highest value of each minute, evaluated at the minute's end.

        Prometheus leaves the left end of a range out and the stream's windows leave out the right one: the
        millisecond makes both the same. Series of several scrapers of one process become one.
        """
        labels = ", ".join(("cluster", *self.by))
        return f"max by ({labels}) (max_over_time({self.name}[1m] offset 1ms))"


def _share(metric: str, kind: Kind, value: str, matchers: str = "") -> Series:
    return Series(metric, kind, Role.SHARE, value, SHARE_KEY, matchers)


def _queue(
    metric: str, kind: Kind, value: str, by: tuple[str, ...] = QUEUE_KEY, matchers: str = ""
) -> Series:
    return Series(metric, kind, Role.QUEUE, value, by, matchers)


GRANT: Final = Series(
    "egpu_share_memory_bytes",
    Kind.GAUGE,
    Role.SHARE,
    "granted",
    (*SHARE_KEY, "node", "model", "queue", "gang", "class"),
)
"""The series that names a share; all others of a share are joined to it."""

SERIES: Final = (
    GRANT,
    _share("egpu_share_cores_ratio", Kind.GAUGE, "cores"),
    _share("egpu_node_container_memory_used_bytes", Kind.GAUGE, "memory_used"),
    _share("egpu_node_container_compute_used_seconds_total", Kind.COUNTER, "compute"),
    _share("egpu_node_container_share_seconds_total", Kind.COUNTER, "held"),
    _share("egpu_node_container_suspended_seconds_total", Kind.COUNTER, "suspended"),
    _share("egpu_node_container_launch_wait_seconds_total", Kind.COUNTER, "launch_wait", 'cause="share"'),
    Series(
        "kube_pod_container_status_restarts_total",
        Kind.COUNTER,
        Role.RESTART,
        "restarts",
        ("namespace", "pod", "container"),
    ),
    Series(
        "kube_pod_container_status_last_terminated_reason",
        Kind.GAUGE,
        Role.RESTART,
        "oom",
        ("namespace", "pod", "container"),
        'reason="OOMKilled"',
    ),
    Series("egpu_card_memory_bytes", Kind.GAUGE, Role.CARD, "card_memory", (*CARD_KEY, "node", "model")),
    Series("egpu_card_memory_allocated_bytes", Kind.GAUGE, Role.CARD, "allocated", CARD_KEY),
    Series("egpu_card_cores_allocated_ratio", Kind.GAUGE, Role.CARD, "cores", CARD_KEY),
    Series("DCGM_FI_DEV_FB_USED", Kind.GAUGE, Role.DCGM, "memory_used_mib", ("UUID",)),
    Series("DCGM_FI_DEV_GPU_UTIL", Kind.GAUGE, Role.DCGM, "utilisation_percent", ("UUID",)),
    _queue("egpu_queue_used", Kind.GAUGE, "used", RESOURCE_KEY),
    _queue("egpu_queue_deserved", Kind.GAUGE, "deserved", RESOURCE_KEY),
    _queue("egpu_queue_guarantee", Kind.GAUGE, "guarantee", RESOURCE_KEY),
    _queue("egpu_queue_capability", Kind.GAUGE, "capability", RESOURCE_KEY),
    _queue("egpu_queue_waiting_resources", Kind.GAUGE, "waiting_resources", RESOURCE_KEY),
    _queue("egpu_queue_waiting_gangs", Kind.GAUGE, "waiting_gangs", ("queue", "reason", "class")),
    _queue("egpu_queue_info", Kind.GAUGE, "info", ("queue", "parent")),
    _queue("egpu_gangs_admitted_total", Kind.COUNTER, "admitted", ("queue", "class")),
    _queue("egpu_gang_wait_seconds_sum", Kind.COUNTER, "wait_seconds", ("queue", "class")),
    _queue("egpu_pods_evicted_total", Kind.COUNTER, "evicted", ("queue", "class", "cause")),
)
"""Everything that is asked. Ours begin with ``egpu_``; others are kube-state-metrics' and DCGM's."""
