"""MIG instances that others made, from NVML to the container: found, named, offered, and given once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from contract.node.node_world import NODE, World, owner
from fakes.nvml_state import FakeCard, FakeInstance, FakeNode
from vc_egpu.core.layouts.compiler import compiled
from vc_egpu.volcano.words.annotations import Cards, CardShare, NodeSlice
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.inventory import Inventory, NodeFacts, take_stock
from vc_egpu_node.cards.sliced import SliceOwners
from vc_egpu_node.containers.admission import NotAdmittedError
from vc_egpu_node.containers.identity import Stock
from vc_egpu_node.vendors.child import Child
from vc_egpu_node.vendors.nvidia.mig.instances import capabilities, name_of, profiles
from vc_egpu_node.vendors.nvidia.mig.slicer import MODULE, MigSlicer
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings
from vc_egpu_node.vendors.nvidia.words import FACTS

RESOURCE = "volcano.sh/vgpu-h100"
MakeNode = Callable[[int], FakeNode]
ROOT = Path(__file__).resolve().parents[3]
BUILD = ROOT / "device-plugin/native/build"
TABLE = ModelTable.from_yaml((ROOT / "manifests/base/config/models.yaml").read_text())
MINORS = """config 1
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi2/access 21
gpu0/gi2/ci0/access 22
gpu0/gi7/access 66
gpu0/gi7/ci0/access 67
"""


@pytest.fixture
def readings(tmp_path: Path) -> Iterator[NvidiaReadings]:
    (tmp_path / "mig-minors").write_text(MINORS)
    vendor = NvidiaReadings(mig_minors=tmp_path / "mig-minors")
    yield vendor
    vendor.close()


def h100(*instances: FakeInstance) -> FakeCard:
    return FakeCard(
        "GPU-h100", "NVIDIA H100 80GB HBM3", 81559, minor=0, mig=1, mig_slices=8, instances=list(instances)
    )


MIXED = (
    FakeInstance("MIG-3g", 1, 2, 4, 40448),
    FakeInstance("MIG-2g", 2, 1, 0, 19968),
    FakeInstance("MIG-1g", 7, 0, 2, 9728),
)


def stock_of(
    readings: NvidiaReadings,
    mode: str = "mig",
    owners: SliceOwners = SliceOwners(),  # noqa: B008 - a frozen value
) -> Inventory:
    return take_stock(
        readings.scan(),
        table=TABLE,
        policy=Policy(),
        facts=NodeFacts(mode_label=mode, slices=owners),
        ill={},
        holdings={},
        previous=None,
        vendor=FACTS,
    )


def put(node: FakeNode, *cards: FakeCard) -> None:
    node.cards = list(cards)
    node.write()


def test_instances_are_offered_under_the_one_name_of_the_model(
    nvml_node: MakeNode, readings: NvidiaReadings
) -> None:
    put(nvml_node(1), h100(*MIXED))
    taken = stock_of(readings)
    (card,) = taken.node_cards.cards
    assert list(taken.offers) == ["volcano.sh/vgpu-h100"]
    assert (card.offered, card.reason, card.stack, card.isolation) == (True, "", False, "hardware")
    assert card.layout is not None
    layout = card.layout.layout("here")
    assert layout.totals == {"1g.10gb": 1, "2g.20gb": 1, "3g.40gb": 1}
    assert compiled(layout).states == 8
    assert {(one.template, one.start) for one in card.slices} == {
        ("3g.40gb", 4),
        ("2g.20gb", 0),
        ("1g.10gb", 2),
    }


def test_an_instance_names_the_pod_that_has_it(nvml_node: MakeNode, readings: NvidiaReadings) -> None:
    put(nvml_node(1), h100(*MIXED))
    taken = NodeSlice(id="MIG-2g", template="2g.20gb", start=0, owner="uid-a")
    (card,) = stock_of(readings, owners=SliceOwners({"GPU-h100": (taken,)})).node_cards.cards
    assert {one.id: one.owner for one in card.slices} == {"MIG-3g": "", "MIG-2g": "uid-a", "MIG-1g": ""}


def test_a_card_without_instances_is_a_card_that_says_so(
    nvml_node: MakeNode, readings: NvidiaReadings
) -> None:
    put(nvml_node(1), h100())
    (card,) = stock_of(readings).node_cards.cards
    assert not card.offered
    assert card.reason.startswith("no slices lie on it: none were made since the node started")


def test_on_a_node_that_shares_its_cards_a_cut_one_is_not_offered(
    nvml_node: MakeNode, readings: NvidiaReadings
) -> None:
    put(nvml_node(1), h100(*MIXED))
    (card,) = stock_of(readings, "shared").node_cards.cards
    assert (card.offered, card.reason) == (False, "MIG mode is on")


def test_a_card_that_is_not_cut_is_not_offered_on_a_node_for_slices(
    nvml_node: MakeNode, readings: NvidiaReadings
) -> None:
    put(nvml_node(1), replace(h100(), mig=0))
    (card,) = stock_of(readings).node_cards.cards
    assert card.reason == "it is not cut into slices, and its node offers slices: turn MIG mode on"


def test_an_instance_smaller_than_the_table_says_is_not_offered(
    nvml_node: MakeNode, readings: NvidiaReadings
) -> None:
    put(nvml_node(1), h100(FakeInstance("MIG-1g", 7, 0, 2, 9000)))
    (card,) = stock_of(readings).node_cards.cards
    assert card.reason == "none of its slices is one of the model table: 1g.10gb (9000 MiB)"


PRODUCTS = {
    "NVIDIA A100-SXM4-40GB": (40960, 8, ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")),
    "NVIDIA A100-SXM4-80GB": (81920, 8, ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")),
    "NVIDIA A30": (24576, 4, ("1g.6gb", "", "2g.12gb", "", "4g.24gb", "")),
    "NVIDIA H100 80GB HBM3": (81559, 8, ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")),
    "NVIDIA H200": (143771, 8, ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb")),
    "NVIDIA H20": (97871, 8, ("1g.12gb", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb")),
    "NVIDIA B200": (183359, 8, ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb")),
    "NVIDIA GB200": (189471, 8, ("1g.23gb", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb")),
}
PROFILES = {8: (0, 9, 1, 2, 3, 4), 4: (0, None, 1, None, 3, None)}


@pytest.mark.parametrize("product", PRODUCTS)
def test_sizes_have_the_names_that_the_vendor_gives_them(
    nvml_node: MakeNode, readings: NvidiaReadings, product: str
) -> None:
    memory_mib, slices, wanted = PRODUCTS[product]
    node = nvml_node(1)
    for profile, name in zip(PROFILES[slices], wanted, strict=True):
        if profile is None:
            continue
        one = FakeInstance("MIG-1", 3, profile, 0, memory_mib // slices)
        put(node, FakeCard("GPU-1", product, memory_mib, minor=0, mig=1, mig_slices=slices, instances=[one]))
        (card,) = readings.scan().cards
        assert [held.template for held in card.slices] == [name]
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        profile_id = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, profile).id
        (here,) = (one for one in profiles(handle, memory_mib) if one.id == profile_id)
        (size,) = {place.size for place in here.places}
        assert name_of(int(name[0]), size, slices, memory_mib) == name == here.name


@pytest.fixture
def slicer(nvml_node: MakeNode, readings: NvidiaReadings, tmp_path: Path) -> Iterator[MigSlicer]:
    environment = {"LD_LIBRARY_PATH": str(BUILD), "FAKE_NVML_STATE": str(nvml_node(0).path)}
    child = Child(MODULE, (str(tmp_path / "mig-minors"),), environment=environment)
    yield MigSlicer(child)
    child.close()


def world_of(world: World, readings: NvidiaReadings, slicer: MigSlicer) -> World:
    taken = stock_of(readings)
    cards = {card.uuid: card for card in readings.scan().cards}
    world.stock = Stock(taken.node_cards, {"h100": 81559}, cards, ready=True)
    world.slicer = slicer
    (world.root / "nvidiactl").touch()
    (world.root / "toolkit").mkdir(exist_ok=True)
    (world.root / "toolkit" / "nvidia.yaml").write_text(
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\n"
        "devices: [{name: GPU-h100, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}]\n"
    )
    world.assemble()
    return world


def bound(name: str, share: CardShare) -> PodView:
    """A pod that a plan gave that share."""
    uid = f"uid-{name}"
    cards = Cards(pod_uid=uid, node=NODE, plan_id="1-1", containers={"main": (share,)})
    return PodView(uid, "ns", name, NODE, "Pending", cards.encode())


def admit(world: World, name: str) -> str:
    """What the kubelet does with a container of one slot; the name of its device."""
    slots = (f"s-{name}",)
    device = world.identity.promise(RESOURCE, frozenset(slots))
    world.kubelet.held[owner(name)] = (RESOURCE, slots)
    world.identity.admit(RESOURCE, frozenset(slots))
    return device


def start(world: World, name: str, template: str, mib: int, cores: int) -> list[str]:
    """The device nodes of a container with that slice."""
    share = CardShare(uuid="GPU-h100", memory_mib=mib, cores=cores, slice=template)
    world.pods.put(bound(name, share))
    device = admit(world, name)
    edits = world.cdi(device)["containerEdits"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits["env"]
    return [one["path"] for one in edits["deviceNodes"]]


def test_each_container_gets_an_instance_of_its_own_and_its_two_capabilities(
    nvml_node: MakeNode, readings: NvidiaReadings, slicer: MigSlicer, world: World
) -> None:
    put(nvml_node(1), h100(*MIXED))
    here = world_of(world, readings, slicer)
    assert start(here, "large", "3g.40gb", 36672, 42) == [
        "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13",
    ]  # fmt: skip
    small = start(here, "small", "1g.10gb", 9152, 14)
    assert small[2:] == ["/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"]
    with pytest.raises(NotAdmittedError, match=r"GPU-h100 has no free slice 1g\.10gb") as refused:
        start(here, "more", "1g.10gb", 9152, 14)
    assert refused.value.why.value == "Slice"


def test_a_share_of_any_size_does_not_start_on_a_cut_card(
    nvml_node: MakeNode, readings: NvidiaReadings, slicer: MigSlicer, world: World
) -> None:
    put(nvml_node(1), h100(*MIXED))
    here = world_of(world, readings, slicer)
    share = CardShare(uuid="GPU-h100", memory_mib=1000, cores=0)
    here.pods.put(bound("loose", share))
    with pytest.raises(NotAdmittedError, match="cut into slices, the plan names none"):
        admit(here, "loose")


def test_the_drivers_file_of_capabilities_may_be_missing(tmp_path: Path) -> None:
    assert capabilities(tmp_path / "none") == {}


def test_after_its_end_an_instance_is_given_again_and_stays_on_the_card(
    nvml_node: MakeNode, readings: NvidiaReadings, slicer: MigSlicer, world: World
) -> None:
    put(nvml_node(1), h100(*MIXED))
    here = world_of(world, readings, slicer)
    start(here, "first", "1g.10gb", 9152, 14)
    (grant,) = here.grants.all()
    here.grants.release(grant.name)
    here.assemble()  # the agent starts again
    assert start(here, "second", "1g.10gb", 9152, 14)[2:] == [
        "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67",
    ]  # fmt: skip
    assert {one.id for one in slicer.slices("GPU-h100")} == {"MIG-3g", "MIG-2g", "MIG-1g"}


def test_a_container_whose_instance_is_gone_does_not_start_again(
    nvml_node: MakeNode, readings: NvidiaReadings, slicer: MigSlicer, world: World
) -> None:
    node = nvml_node(1)
    put(node, h100(*MIXED))
    here = world_of(world, readings, slicer)
    start(here, "first", "1g.10gb", 9152, 14)
    put(node, h100(*MIXED[:2]))
    readings.scan()
    with pytest.raises(NotAdmittedError, match=r"has no free slice 1g\.10gb"):
        here.identity.admit(RESOURCE, frozenset({"s-first"}))
