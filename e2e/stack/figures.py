"""What the node agents tell Prometheus, and waiting for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from localcluster.api import wait_until
from prometheus_client.parser import text_string_to_metric_families
from vc_egpu.kube.resources import PODS

from stack.kit import Kit, StoryError

CARD_USED = "DCGM_FI_DEV_FB_USED"
HELD, SPILLED = "egpu_node_container_memory_used_bytes", "egpu_node_container_memory_managed_bytes"
SYSTEM, AGENTS, METRICS_PORT = "vc-egpu-system", "app.kubernetes.io/name=vc-egpu-node-agent", 9445
TIMEOUT_S = 60
T = TypeVar("T")


@dataclass(frozen=True)
class Figures:
    """Of one node."""

    used_mib: dict[str, int]
    """By card: what NVML says is used on it."""
    held_mib: dict[str, int]
    """By pod: what its processes hold on cards, as NVML says."""
    spilled_mib: dict[str, int]
    """By pod: managed memory, which may lie in the host's."""

    @classmethod
    def read(cls, kit: Kit, node: str) -> "Figures":
        """As they are now."""
        here = f"spec.nodeName={node}"
        agents = kit.api.list(PODS, SYSTEM, label_selector=AGENTS, field_selector=here).items
        if len(agents) != 1:
            raise StoryError(f"{node} has {len(agents)} agents")
        path = PODS.path(SYSTEM, agents[0]["metadata"]["name"])
        return cls.parse(kit.api.request_text(f"{path}:{METRICS_PORT}/proxy/metrics"))

    @classmethod
    def parse(cls, text: str) -> "Figures":
        """Of the agent's page."""
        found: dict[str, dict[str, int]] = {CARD_USED: {}, HELD: {}, SPILLED: {}}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in found:
                    key = sample.labels["UUID" if sample.name == CARD_USED else "pod"]
                    sums = found[sample.name]
                    size_mib = int(sample.value) if sample.name == CARD_USED else int(sample.value) >> 20
                    sums[key] = sums.get(key, 0) + size_mib
        return cls(found[CARD_USED], found[HELD], found[SPILLED])


def first(what: str, look: Callable[[], T | None]) -> T:
    """The first thing that ``look`` finds."""
    found: list[T] = []

    def check() -> bool:
        seen = look()
        if seen is not None:
            found.append(seen)
        return bool(found)

    wait_until(what, check, TIMEOUT_S)
    return found[0]
