"""GPUs without hardware: inventories of simulated (kwok) nodes.

Real nodes get theirs from the node agent, which reads the fake NVML library; a kwok node has no agent, so
its inventory is written on it as an agent would have written it.
"""

from dataclasses import dataclass
from typing import Final

from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu.volcano.words.names import cores_total_resource, memory_total_resource, shared_resource

H20_MEMORY_MIB: Final = 98304
SHARERS: Final = 100


def inventory(node: str, cards: int, model: str = "h20", memory_mib: int = H20_MEMORY_MIB) -> NodeCards:
    """What the agent of a node with ``cards`` healthy cards of one model reports."""
    return NodeCards(
        agent_version="simulated",
        driver_version="570.0",
        cards=tuple(
            NodeCard(uuid=f"GPU-{node}-{i}", index=i, model=model, memory_mib=memory_mib)
            for i in range(cards)
        ),
    )


def offered(cards: int, model: str = "h20", memory_mib: int = H20_MEMORY_MIB) -> dict[str, str]:
    """Allocatable of such a node: slots and the two counters."""
    return {
        shared_resource(model): str(cards * SHARERS),
        memory_total_resource(model): str(cards * SHARERS * memory_mib),
        cores_total_resource(model): str(cards * SHARERS * 100),
    }


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver that a node's fake library tells of."""

    version: str = "570.124.06"
    cuda: int = 12080
    """The CUDA that it offers, as NVML writes it: 12080 is 12.8."""


def nvml_state(
    node: str,
    cards: int,
    product: str = "NVIDIA H20",
    memory_mib: int = H20_MEMORY_MIB,
    driver: Driver = Driver(),
) -> str:
    """What the fake driver library of a real node reads: see ``device-plugin/native/fake/state.h``."""
    lines = [f"driver={driver.version}", f"cuda={driver.cuda}"]
    for i in range(cards):
        lines += [
            f"card=GPU-{node}-{i}",
            f"name={product}",
            f"memory_mib={memory_mib}",
            f"pci=00000000:{0x1A + i:02X}:00.0",
            f"minor={i}",
            "cores=9984",
            "cc=9.0",
            "max_sm_mhz=1980",
            "temp_c=35",
            "power_mw=95000",
        ]
    return "\n".join(lines) + "\n"
