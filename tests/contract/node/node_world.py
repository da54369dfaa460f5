"""A node without a cluster: the kubelet is played on real sockets, pods stand in a book."""

import dataclasses
import json
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contract.node.fake_kubelet import FakeKubelet
from vc_egpu.kube.wire.errors import Unavailable
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.allocations import AllocationStore
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.containers.identity import Identity, Stock
from vc_egpu_node.containers.owners import Owners
from vc_egpu_node.deviceplugin.plugin import Plugin
from vc_egpu_node.deviceplugin.registration import KubeletLink
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.kubelet.podresources import Checkpoint, PodResources
from vc_egpu_node.vendors.base import ContainerEdits
from vc_egpu_node.vendors.nvidia.toolkit import Toolkit
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import Slicer

RES = "volcano.sh/vgpu-h20"
NODE = "node-1"


def owner(pod: str, container: str = "main") -> tuple[str, str, str]:
    return ("ns", pod, container)


class PodBook:
    """Pods as watch and API server have them; the two can differ."""

    def __init__(self) -> None:
        self.watched: dict[tuple[str, str], PodView] = {}
        self.served: dict[tuple[str, str], PodView] = {}
        self.away = False
        self.synced = True
        self.gets = 0
        self.remade = False
        """Another pod may have had the name lately."""

    def put(self, pod: PodView, *, watched: bool = True) -> None:
        """The API server has it; the watch too, unless it lags."""
        self.served[(pod.namespace, pod.name)] = pod
        if watched:
            self.watched[(pod.namespace, pod.name)] = pod

    def remove(self, pod: PodView) -> None:
        """It is gone from both."""
        self.served.pop((pod.namespace, pod.name), None)
        self.watched.pop((pod.namespace, pod.name), None)

    def known(self, namespace: str, name: str) -> PodView | None:
        """As the watch has it."""
        return self.watched.get((namespace, name))

    def fetch(self, namespace: str, name: str, timeout_s: float) -> PodView | None:
        """As the API server has it."""
        self.gets += 1
        if self.away:
            raise Unavailable("the API server is away")
        return self.served.get((namespace, name))

    def may_be_remade(self, namespace: str, name: str) -> bool:
        """As set."""
        return self.remade

    def views(self) -> list[PodView]:
        """All that the watch has."""
        return list(self.watched.values())


def planned(name: str, uid: str, containers: dict[str, list[tuple[str, int]]], **changes: Any) -> PodView:
    """A pod with a cards annotation: container to (card, MiB)."""
    values = {
        "pod_uid": uid,
        "node": NODE,
        "plan_id": "1-1",
        "containers": {
            container: tuple(CardShare(uuid=card, memory_mib=mib, cores=0) for card, mib in shares)
            for container, shares in containers.items()
        },
        **changes,
    }
    return PodView(uid, "ns", name, NODE, "Pending", Cards(**values).encode())


@dataclass
class World:
    """One node: fake kubelet, book of pods, and the agent's own parts between them."""

    kubelet: FakeKubelet
    pods: PodBook
    stock: Stock
    root: Path
    calls: list[tuple[str, float, str]] = field(default_factory=list)
    changed: threading.Event = field(default_factory=threading.Event)
    """Set when the kubelet begins or ends to follow."""
    closed: str = ""
    """Why no pod gets a share."""
    slicer: Slicer | None = None
    edits: ContainerEdits | None = None
    """None: NVIDIA's."""
    isolation: Isolation | None = None
    """Taken at the next :meth:`assemble`."""

    def __post_init__(self) -> None:
        self.assemble()

    def assemble(self) -> None:
        """(Re)start the agent's parts from what is on disk."""
        self.allocations = AllocationStore(self.root / "allocations")
        slices = SliceBook(self.root / "slices", self.slicer) if self.slicer is not None else None
        self.slices = slices
        self.grants = GrantFolder(self.root / "cdi", self.root / "containers", self.isolation, slices)
        self.pod_resources = PodResources(self.kubelet.pod_resources_socket)
        self.toolkit = Toolkit([self.root / "toolkit"], "auto", self.root / "nvidiactl")
        pods: Any = self.pods
        self.identity = Identity(
            NODE,
            self,
            allocations=self.allocations,
            grants=self.grants,
            owners=Owners(self.pod_resources, Checkpoint(self.kubelet.folder), pods, self.grants),
            pods=pods,
            edits=self.edits or self.toolkit,
            slices=slices,
        )
        self.link = KubeletLink(self.kubelet.folder, self._plugin, on_change=self.changed.set)

    @property
    def takes_turns(self) -> bool:
        return True

    def suspended(self) -> Collection[str]:
        """No pod."""
        return ()

    def wake(self) -> None:
        """There is no loop here."""

    def disk_failed(self, error: OSError) -> None:
        """Nobody tries it."""

    def _plugin(self, resource: str) -> Plugin:
        return Plugin(resource, self.kubelet.folder, self.identity, lambda *call: self.calls.append(call))

    def serve(self, *resources: str) -> None:
        """Register plugins and wait until the kubelet has heard of each."""
        for resource in resources or (RES,):
            self.link.plugin(resource)
        self.link.look()
        for _ in resources or (RES,):
            assert self.kubelet.registered.acquire(timeout=30)

    def close(self) -> None:
        """End the agent's parts."""
        self.link.stop()
        self.pod_resources.close()

    def change_card(self, uuid: str, **changes: Any) -> None:
        """The card is something else from now on."""
        cards = tuple(
            card.model_copy(update=changes) if card.uuid == uuid else card
            for card in self.stock.node_cards.cards
        )
        self.stock = dataclasses.replace(
            self.stock, node_cards=self.stock.node_cards.model_copy(update={"cards": cards})
        )

    def cdi(self, qualified: str) -> dict[str, Any]:
        """The one device of a CDI spec, by its qualified name."""
        path = self.grants.path(qualified.rpartition("=")[2])
        return dict(json.loads(path.read_text())["devices"][0])


def running(world: World, name: str, memory_mib: int) -> Grant:
    """A container that runs on GPU-1."""
    world.pods.put(planned(name, f"u-{name}", {"main": [("GPU-1", memory_mib)]}))
    device = world.kubelet.allocate(owner(name), RES, (name,), f"u-{name}")
    world.kubelet.pre_start(RES, (name,))
    grant = world.grants.get(device.rpartition("=")[2])
    assert grant is not None
    return grant
