"""A cluster of simulated nodes that has the nodes of a table, and Jobs for the pods of that table."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from localcluster import ClusterSpec, LocalCluster
from localcluster.kwok import KwokNode
from outcomes.workload import container, pod_spec, shares
from stack.fakes import inventory, offered
from stack.hostmode import HostOptions, HostStack
from stack.kit import StoryError, condition, is_running
from stack.verify import check_invariants
from vc_egpu.core.model.cluster import Node, PodShape, Requirement
from vc_egpu.kube.resources import POD_GROUPS, PODS, VOLCANO_JOBS
from vc_egpu.sim.load import Load
from vc_egpu.sim.replay import Replay, Terms
from vc_egpu.sim.table import CARD_MILLI, MODEL
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards
from vc_egpu.volcano.words.model_table import ModelTable

from rigs.admission import wait_ready
from rigs.one_team import open_queues
from rigs.volcano_job import ONE_TRY, volcano_job

Json = dict[str, Any]
Place = tuple[str, tuple[int, ...]]
"""A node, and the numbers of its cards; none for a pod without cards."""
TEAM: Final = "traced"
TIMEOUT_S: Final = 30.0
_MIB: Final = 1 << 20
_PODS_PER_NODE: Final = 1000
_TABLE: Final = f"""
models:
  - {{name: {MODEL}, products: ["Card of a table"], memoryMiB: {CARD_MILLI}, cardsPerNode: 8}}
"""


def simulated(load: Load, binpack: str) -> dict[str, Place]:
    """Where the simulator puts the works of a load, by key. What fits nowhere when it comes is absent."""
    replay = Replay(load, Terms(binpack, waits=False, preemption=False))
    replay.run()
    found: dict[str, Place] = {}
    for pod in replay.world.snapshot().pods.values():
        if pod.node is not None and pod.gang is not None:
            cards = sorted({int(str(share.card).rpartition("/")[2]) for _, share in pod.shares})
            found[pod.gang] = (str(pod.node), tuple(cards))
    return found


@dataclass(frozen=True)
class Traced:
    """The stack on such a cluster."""

    stack: HostStack
    models: ModelTable

    def submit(self, name: str, shape: PodShape) -> None:
        """A Job of one pod of this shape."""
        (ask,) = shape.asks
        limits = shares(None if ask.whole else ask.memory_mib, cards=ask.cards, model=MODEL)
        spec = pod_spec(container(limits=limits)) | {"restartPolicy": "Never"}
        spec["containers"][0]["resources"]["requests"] = {
            "cpu": f"{shape.requests.cpu_milli}m",
            "memory": str(shape.requests.memory_bytes),
        }
        if shape.affinity_terms:
            spec["affinity"] = {"nodeAffinity": _required(shape.affinity_terms)}
        job = volcano_job(name, TEAM, 1, {"metadata": {}, "spec": spec}, **ONE_TRY)
        self.stack.kit.api.create(VOLCANO_JOBS, job, TEAM)

    def place(self, name: str) -> Place:
        """Wait until the pod of the Job runs."""

        def there(pods: dict[str, Json]) -> Json | None:
            return next(
                (pod for key, pod in pods.items() if key.startswith(f"{name}-w-") and is_running(pod)), None
            )

        pod = self._until(f"{name} runs", PODS, there)
        text = pod["metadata"]["annotations"][names.CARDS]
        uuids = {share.uuid for held in Cards.decode(text).containers.values() for share in held}
        return pod["spec"]["nodeName"], tuple(sorted(int(uuid.rpartition("-")[2]) for uuid in uuids))

    def drop(self, name: str) -> None:
        """Wait until the Job is said to wait, and take it away."""

        def waits(groups: dict[str, Json]) -> bool | None:
            found = [
                condition(group, names.CONDITION_ADMITTED)
                for key, group in groups.items()
                if key.startswith(f"{name}-")
            ]
            return any(one and one["status"] == "False" for one in found) or None

        self._until(f"{name} waits", POD_GROUPS, waits)
        self.stack.kit.api.delete(VOLCANO_JOBS, name, TEAM, propagation="Background")
        gone = lambda pods: not any(key.startswith(f"{name}-w-") for key in pods) or None  # noqa: E731
        self._until(f"{name} is gone", PODS, gone)

    def check_invariants(self) -> None:
        """Those of the whole cluster."""
        check_invariants(self.stack.kit, self.models)

    def _until(self, what: str, resource: Any, check: Callable[[dict[str, Json]], Any]) -> Any:
        return self.stack.kit.until(what, resource, check, namespace=TEAM, timeout_s=TIMEOUT_S)


def _required(terms: Sequence[Sequence[Requirement]]) -> Json:
    found = [
        {
            "matchExpressions": [
                {"key": one.key, "operator": one.operator, "values": list(one.values)} for one in term
            ]
        }
        for term in terms
    ]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}


def _kwok(node: Node) -> KwokNode:
    """The node of a table as a simulated one."""
    cards = len(node.cards)
    return KwokNode(
        str(node.name),
        cpu=node.allocatable.cpu_milli // 1000,
        memory_mib=node.allocatable.memory_bytes // _MIB,
        pods=_PODS_PER_NODE,
        extended={key: int(amount) for key, amount in offered(cards, MODEL, CARD_MILLI).items()},
        labels=dict(node.labels),
        annotations={names.NODE_CARDS: inventory(str(node.name), cards, MODEL, CARD_MILLI).encode()},
    )


@contextmanager
def traced(name: str, nodes: Sequence[Node], folder: Path, *flags: str) -> Iterator[Traced]:
    """The cluster ``name``; gone afterwards. ``folder`` is for the model table, ``flags`` for the admission
    controller."""
    models = folder / "models.yaml"
    models.write_text(_TABLE)
    with LocalCluster.up(ClusterSpec(name=name, real_nodes=0, services=False, dns=False)) as local:
        made = [_kwok(node) for node in nodes]
        local.add_kwok_nodes(len(made), lambda index, _: made[index])
        stack = HostStack.install(local, HostOptions(models=models, flags={"admission": flags}))
        try:
            stack.start()
            wait_ready(stack.kit, len(made))
            open_queues(stack.kit, {names.shared_resource(MODEL): "100000"}, TEAM)
            yield Traced(stack, ModelTable.from_yaml(_TABLE))
        except StoryError:
            for process in stack.processes.values():
                print(process.log_tail(60))  # shown where a test fails
            raise
        finally:
            stack.stop()
