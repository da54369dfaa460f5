"""Our stack: webhook and admission, with Volcano's controllers or ours, and either scheduler binding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from localcluster.cluster import LocalCluster
from localcluster.kwok import KwokNode
from stack import verify
from stack.fakes import inventory, offered
from stack.hostmode import HostOptions, HostStack, ProcessName, SchedulerName
from stack.hostprocess import HostProcess
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import QUEUES
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import CARDS, LIMIT_CORES, LIMIT_MEMORY, NODE_CARDS, shared_resource
from volcano.processes import Volcano, VolcanoProcesses

from bench.sides import CARDS_PER_NODE, Running, Side, kwok_node
from bench.watching import BenchError
from bench.workload import CORES_PERCENT, MEMORY_MIB, Json, job

_MODEL: Final = "h20"
_QUEUE: Final = "bench"
_CAP: Final = 1_000_000
CONTROLLER: Final = "vc-egpu-admission"


@dataclass(frozen=True, slots=True)
class OurSetup:
    """Who binds, and what of Volcano runs beside us."""

    name: str
    binds: SchedulerName
    volcano: Volcano | None
    vc_scheduler: bool
    """Whether vc-scheduler runs, binding or not."""
    binder: Literal["direct", "scheduler"] = "scheduler"
    """``direct``: we bind all pods of this benchmark ourselves."""

    def side(self) -> Side:
        """As one side of the comparison."""
        return Side(self.name, node, self.start, scheduler=self.binds == "default-scheduler")

    @property
    def _flags(self) -> Mapping[ProcessName, Sequence[str]]:
        return {"webhook": ("--binder", self.binder)}

    def start(self, cluster: LocalCluster, api: ApiConnection) -> Running:
        """Start all processes and make the queue."""
        if self.volcano is None:
            options = HostOptions(scheduler=self.binds, flags=self._flags)
        else:
            options = HostOptions(
                processes=("webhook", "admission"), scheduler=self.binds, overlay="volcano", flags=self._flags
            )
        stack = HostStack.install(cluster, options, self.volcano)
        # Volcano's scheduler makes queues, which our webhook has to let pass.
        stack.start()
        theirs: Sequence[HostProcess] = ()
        if self.volcano is not None:
            theirs = self._start_volcano(cluster, api, self.volcano)
        api.create(QUEUES, queue(_QUEUE, {shared_resource(_MODEL): str(_CAP)}))

        def check(pods: list[Json]) -> None:
            verify_cards(pods)
            verify.check_invariants(stack.kit, ModelTable.from_yaml(Path(options.models).read_text()))

        processes = (*stack.processes.values(), *theirs)
        return Running(cluster, api, processes, make_job, check, CONTROLLER)

    def _start_volcano(
        self, cluster: LocalCluster, api: ApiConnection, volcano: Volcano
    ) -> Sequence[HostProcess]:
        processes = VolcanoProcesses.of(cluster, volcano, "own")
        processes.start(scheduler=self.vc_scheduler, webhook=False)
        if not self.vc_scheduler:
            # vc-scheduler makes them where it runs.
            for name in ("root", "default"):
                api.create(QUEUES, queue(name, {}))
            return (processes.controllers,)
        return (processes.controllers, processes.scheduler)


def node(_index: int, name: str) -> KwokNode:
    """A node as our agent reports it."""
    extended = {resource: int(amount) for resource, amount in offered(CARDS_PER_NODE, _MODEL).items()}
    return kwok_node(name, extended, {NODE_CARDS: inventory(name, CARDS_PER_NODE, _MODEL).encode()})


def queue(name: str, capability: Mapping[str, str]) -> Json:
    """A queue with these caps."""
    spec = {"weight": 1, "capability": dict(capability)}
    return {
        "apiVersion": QUEUES.api_version,
        "kind": QUEUES.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def make_job(name: str) -> Json:
    """One gang that asks in our terms."""
    limits = {shared_resource(_MODEL): "1", LIMIT_MEMORY: str(MEMORY_MIB), LIMIT_CORES: str(CORES_PERCENT)}
    return job(name, limits, _QUEUE)


def verify_cards(pods: list[Json]) -> None:
    """Every pod carries its cards."""
    without = [p["metadata"]["name"] for p in pods if CARDS not in (p["metadata"].get("annotations") or {})]
    if without:
        raise BenchError(f"{len(without)} of {len(pods)} pods have no cards, first {without[0]}")
