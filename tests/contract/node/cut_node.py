"""A node whose cards are cut for each container, between a played kubelet and a vendor's fake."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from contract.node.collecting import Cgroups, collector
from contract.node.node_world import NODE, World, owner
from mortal import Mortal
from vc_egpu.core.layouts.catalogue import Catalogue
from vc_egpu.core.layouts.table import Held
from vc_egpu.volcano.words.annotations import Cards, CardShare, NodeCard
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.inventory import NodeFacts, take_stock
from vc_egpu_node.containers.identity import Stock
from vc_egpu_node.offers.stocktaking import owners_of
from vc_egpu_node.vendors.base import Readings, VendorFacts
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings
from vc_egpu_node.vendors.nvidia.words import FACTS as NVIDIA
from vendor_nodes import MigNode

ROOT = Path(__file__).resolve().parents[3]
TABLE = ModelTable.from_yaml((ROOT / "manifests/base/config/models.yaml").read_text())


@dataclass
class CutNode:
    """A node whose cards are cut for each container."""

    world: World
    readings: Readings
    facts: VendorFacts
    model: str
    lying: Callable[[], int]
    """How many slices lie on all of its cards, whoever made them."""
    mortal: Mortal
    mode: str = ""
    policy: Policy = field(default_factory=Policy)
    planned: dict[str, tuple[int, Held]] = field(default_factory=dict)
    """By pod: its card, and its slice there."""

    @property
    def resource(self) -> str:
        return f"volcano.sh/vgpu-{self.model}"

    def look(self) -> tuple[NodeCard, ...]:
        """Take stock, as the agent's loop does."""
        reading = self.readings.scan()
        owners = owners_of(self.world.slices, reading.cards, self.world.grants.all())
        taken = take_stock(
            reading,
            table=TABLE,
            policy=self.policy,
            facts=NodeFacts(mode_label=self.mode, slices=owners),
            ill=self.readings.faults(),
            holdings={},
            previous=None,
            vendor=self.facts,
        )
        row = TABLE.get(self.model)
        assert row is not None
        cards = {card.uuid: card for card in reading.cards}
        self.world.stock = Stock(taken.node_cards, {row.name: row.memory_mib}, cards, ready=True)
        return taken.node_cards.cards

    def place(self, template: str, card: int) -> int:
        """Where the next such slice begins by the rules of the core; -1: the card has no places."""
        wire = self.world.stock.node_cards.cards[card].layout
        assert wire is not None
        layout, catalogue = wire.layout("here"), Catalogue()
        here = [held for at, held in self.planned.values() if at == card]
        return catalogue.place(catalogue.state_of(layout, here), template)

    def pod(self, name: str, template: str, card: int = 0, start: int | None = None) -> None:
        """One that a plan has given that slice, and whose container the kubelet has slots for."""
        row = TABLE.get(self.model)
        layout = TABLE.layout_of(row) if row is not None else None
        assert layout is not None
        size = next(one for one in layout.templates if one.name == template)
        uuid = self.world.stock.node_cards.cards[card].uuid
        begins = self.place(template, card) if start is None else start
        self.planned[name] = (card, Held(template, begins))
        share = CardShare(
            uuid=uuid,
            memory_mib=size.memory_mib,
            cores=size.cores_percent,
            slice=template,
            start=None if begins < 0 else begins,
        )
        plan = Cards(pod_uid=f"uid-{name}", node=NODE, plan_id="1-1", containers={"main": (share,)})
        self.world.pods.put(PodView(f"uid-{name}", "ns", name, NODE, "Pending", plan.encode()))
        self.world.kubelet.allocate(owner(name), self.resource, (f"s-{name}",), f"uid-{name}")

    def start(self, name: str) -> list[str]:
        """Start its container. Paths of its own device nodes on the host, of its vDCU's file, or of the
        capabilities of its MIG instance."""
        self.world.kubelet.pre_start(self.resource, (f"s-{name}",))
        grant = next(one for one in self.world.grants.all() if one.pod == name)
        edits = self.world.cdi(grant.name)["containerEdits"]
        assert "ASCEND_VISIBLE_DEVICES=void" in edits["env"]
        own = [node["hostPath"] for node in edits["deviceNodes"] if "hostPath" in node]
        own += [node["path"] for node in edits["deviceNodes"] if "nvidia-cap" in node["path"]]
        return own or [
            one["hostPath"] for one in edits.get("mounts", ()) if one["containerPath"].endswith(".conf")
        ]

    def run(self, name: str, template: str, card: int = 0, start: int | None = None) -> list[str]:
        self.pod(name, template, card, start)
        return self.start(name)

    def refused(self, name: str) -> str:
        """What the kubelet is told, which stands in the pod's event."""
        with pytest.raises(grpc.RpcError) as refusal:
            self.start(name)
        return str(refusal.value.details())

    def gone(self, name: str) -> None:
        """The pod's object and its container are away."""
        pod = self.world.pods.known("ns", name)
        assert pod is not None
        self.planned.pop(name, None)
        self.world.pods.remove(pod)
        self.world.kubelet.free(owner(name))

    def restart(self) -> None:
        """The agent's next process, once it has found what runs here."""
        self.world.link.stop()
        self.world.assemble()
        self.world.serve(self.resource)
        self.look()
        found = collector(self.world, Cgroups(), later_s=1000.0)
        found.recover()
        assert found.recovered
        found.collect()
        found.sweep()
        found.sweep()  # promises that were never claimed went with the first one


SPEC = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}
devices:
  - {name: GPU-h100-0, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}
  - {name: GPU-h100-1, containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}}
"""


@contextmanager
def cut_mig(world: World, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[CutNode, MigNode]]:
    """Two H100 in MIG mode, whose instances are made on demand. The fake NVML is loaded."""
    node = MigNode(folder, cards=2, change_s=5.0, alone_s=0.0)
    monkeypatch.setenv("FAKE_NVML_STATE", str(node.node.path))
    readings = NvidiaReadings(mig_minors=node.minors)
    (world.root / "nvidiactl").touch()
    (world.root / "toolkit").mkdir()
    (world.root / "toolkit" / "nvidia.yaml").write_text(SPEC)
    mortal = Mortal(node.slicer)
    world.slicer = mortal
    world.assemble()
    policy = Policy(mig_on_demand=True)
    cut = CutNode(world, readings, NVIDIA, "h100", node.lying, mortal, mode="mig", policy=policy)
    world.serve(cut.resource)
    cut.look()
    yield cut, node
    readings.close()
    node.close()
