"""A collector on a node of its own, and what of the node it sees."""

import time
from collections.abc import Collection
from typing import Any

from contract.node.node_world import RES, World, planned
from vc_egpu_node.containers.collector import Collector
from vc_egpu_node.kubelet.podresources import Checkpoint

MAIN = {"main": [("GPU-1", 4000)]}


class Cgroups:
    """Pods whose containers run; None: nothing can be seen."""

    def __init__(self) -> None:
        self.running: set[str] | None = set()

    def living(self, uids: Collection[str]) -> frozenset[str] | None:
        """Of these, the ones that run."""
        return None if self.running is None else frozenset(self.running & set(uids))


def collector(world: World, cgroups: Cgroups, later_s: float = 0.0) -> Collector:
    return Collector(
        allocations=world.allocations,
        grants=world.grants,
        pods=world.pods,  # type: ignore[arg-type]
        pod_resources=world.pod_resources,
        checkpoint=Checkpoint(world.kubelet.folder),
        cgroups=cgroups,  # type: ignore[arg-type]
        identity=world.identity,
        slices=world.slices,
        clock=lambda: time.time() + later_s,
    )


def started(world: World, name: str = "p", slot: str = "s1") -> Any:
    pod = planned(name, f"u-{name}", MAIN)
    world.pods.put(pod)
    world.kubelet.allocate(("ns", name, "main"), RES, (slot,), pod.uid)
    world.kubelet.pre_start(RES, (slot,))
    return pod
