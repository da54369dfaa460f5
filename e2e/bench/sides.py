"""What is compared: Volcano with its own vGPU scheduling, and our admission layer with either scheduler."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from localcluster.cluster import LocalCluster
from localcluster.kwok import KwokNode
from localcluster.spec import ClientRate, ClusterSpec
from stack.hostprocess import HostProcess, cpu_seconds
from vc_egpu.kube.connection import ApiConnection

from bench.watching import BenchError
from bench.workload import Json

CARDS_PER_NODE: Final = 8
RATE: Final = ClientRate(2000, 4000)
COMPONENTS: Final = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kwok")


@dataclass(slots=True)
class Running:
    """One side, up on one cluster."""

    cluster: LocalCluster
    api: ApiConnection
    processes: Sequence[HostProcess]
    make_job: Callable[[str], Json]
    verify: Callable[[list[Json]], None]
    """Raises :class:`BenchError` when bound pods do not carry what they were measured for."""
    controller: str = ""
    """Name of the process whose CPU time is reported."""
    notes: dict[str, Any] = field(default_factory=dict)

    def check_alive(self) -> None:
        """Raise with the log's end when a process has died."""
        for process in self.processes:
            if not process.alive:
                raise BenchError(f"{process.name} ended:\n{process.log_tail()}")

    def cpu(self) -> dict[str, float]:
        """CPU seconds so far, by program."""
        used = {process.name: process.cpu_s() for process in self.processes}
        for name in COMPONENTS:
            pid = self.cluster.component(name).pid
            if pid is not None:
                used[name] = cpu_seconds(pid)
        return used


@dataclass(frozen=True, slots=True)
class Side:
    """One thing to measure: the cluster it runs on, its nodes, and how it starts."""

    name: str
    node: Callable[[int, str], KwokNode]
    start: Callable[[LocalCluster, ApiConnection], Running]
    scheduler: bool
    """Whether the kube-scheduler runs."""

    def spec(self, name: str) -> ClusterSpec:
        """Its cluster; no root is needed."""
        return ClusterSpec(
            name=name,
            real_nodes=0,
            services=False,
            dns=False,
            scheduler=self.scheduler,
            scheduler_rate=RATE,
            controller_manager_rate=RATE,
            # All clients of both sides may go as fast as they can.
            priority_and_fairness=False,
        )


def kwok_node(name: str, extended: Mapping[str, int], annotations: Mapping[str, str]) -> KwokNode:
    """A simulated node of the benchmark: room for far more pods than there are slices."""
    return KwokNode(
        name, cpu=128, memory_mib=1024 * 1024, pods=200, extended=extended, annotations=annotations
    )
