"""A node with cards of several vendors, and which of the vendors named have any."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from toy_vendor import ToyCards, ToyEdits, toy
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.cards.inventory import NodeFacts, take_stock
from vc_egpu_node.settings.config import ConfigError, Settings
from vc_egpu_node.vendors.ascend.edits import AscendEdits
from vc_egpu_node.vendors.ascend.words import FACTS as ASCEND
from vc_egpu_node.vendors.base import NodeReading, Vendor, VendorFacts
from vc_egpu_node.vendors.hygon.edits import HygonEdits
from vc_egpu_node.vendors.hygon.words import FACTS as HYGON
from vc_egpu_node.vendors.joined import joined
from vc_egpu_node.vendors.nvidia.words import FACTS as NVIDIA
from vc_egpu_node.vendors.registry import HIDE, chosen
from vc_egpu_node.vendors.slices import SliceError, SliceWish
from vendor_nodes import AscendNode, HygonNode

TABLE = ModelTable.from_yaml("""
models:
  - {name: toy, products: [Toy T1], memoryMiB: 16384}
  - {name: 910b3, products: [Ascend910B3], memoryMiB: 65536}
  - {name: k100-ai, products: [K100_AI], memoryMiB: 65520}
""")


def three(ascend: AscendNode, hygon: HygonNode, folder: Path) -> Vendor:
    """A toy, Ascend and Hygon: four cards and one."""
    dev = folder / "dev"
    (dev / "dri").mkdir(parents=True)
    for name in ("davinci_manager", "devmm_svm", "hisi_hdc", "davinci0", "davinci1", "kfd", "mkfd", "toy0"):
        (dev / name).touch()
    for number in (1, 2):
        (dev / f"dri/card{number}").touch()
        (dev / f"dri/renderD{128 + number}").touch()
    edits, others = AscendEdits(dev, folder), HygonEdits(dev, folder, hygon.slices)
    return joined([
        toy(ToyCards(), ToyEdits(dev)),
        Vendor(ASCEND, ascend.readings, edits, None, slicer=ascend.slicer),
        Vendor(HYGON, hygon.readings, others, None, slicer=hygon.slicer),
    ])  # fmt: skip


def stock(reading: NodeReading, mode: str, vendor: VendorFacts) -> dict[str, tuple[bool, str]]:
    found = take_stock(
        reading, table=TABLE, policy=Policy(), facts=NodeFacts(mode), ill={}, holdings={}, previous=None,
        vendor=vendor,
    )  # fmt: skip
    return {f"{card.model}-{card.index}": (card.offered, card.reason) for card in found.node_cards.cards}


def test_three_kinds_on_one_node(ascend: AscendNode, hygon: HygonNode, tmp_path: Path) -> None:
    node = three(ascend, hygon, tmp_path)
    reading = node.readings.scan()
    assert [card.index for card in reading.cards] == [0, 1, 2, 3, 4]
    assert not reading.problem and reading.versions["ascend-library"] == "25.2.0"
    offered = stock(reading, "native", node.facts)
    assert list(offered) == ["toy-0", "910b3-1", "910b3-2", "k100-ai-3", "k100-ai-4"]
    assert all(is_offered for is_offered, _ in offered.values()), offered
    shared = stock(reading, "shared", node.facts)
    assert not shared["910b3-1"][0] and "given out whole" in shared["910b3-1"][1]
    assert shared["toy-0"][0]


def test_each_card_is_opened_by_its_own_vendor(ascend: AscendNode, hygon: HygonNode, tmp_path: Path) -> None:
    node = three(ascend, hygon, tmp_path)
    cards = node.readings.scan().cards
    paths = {one["path"] for one in node.edits.edits(cards[1:4:2], "", shared=False).merged()["deviceNodes"]}
    assert {"/dev/davinci0", "/dev/dri/card1"} <= paths and not paths & {
        "/dev/davinci1",
        "/dev/dri/card2",
        "/dev/toy0",
    }
    assert not node.edits.unusable(cards, "")
    assert node.readings.sample(cards[0].uuid).gpu_util_percent == 50


def test_slices_go_to_the_vendor_of_the_card(ascend: AscendNode, hygon: HygonNode, tmp_path: Path) -> None:
    node = three(ascend, hygon, tmp_path)
    cards = node.readings.scan().cards
    assert node.slicer is not None
    made = node.slicer.make(SliceWish(cards[1].uuid, "vir10_3c_32g", memory_mib=32768))
    assert made is not None and node.slicer.slices(cards[1].uuid) == (made,)
    cut = node.slicer.make(SliceWish(cards[3].uuid, "cu60", memory_mib=1024))
    assert cut is not None and cut.template == "cu60"
    with pytest.raises(SliceError, match="are not cut"):
        node.slicer.make(SliceWish(cards[0].uuid, "half"))
    assert not stock(node.readings.scan(), "native", node.facts)["910b3-1"][0]


def test_one_vendor_that_fails_leaves_the_others(
    ascend: AscendNode, hygon: HygonNode, tmp_path: Path
) -> None:
    node = three(ascend, hygon, tmp_path)
    ascend.script.node["init"] = -8005
    ascend.script.write()
    reading = node.readings.scan()
    assert [card.product for card in reading.cards] == ["Toy T1", "K100_AI", "K100_AI"]
    assert reading.problem == "DCMI: dcmi_init answers -8005: internal error"


def test_vendors_without_a_driver_are_left_out_and_not_spoken_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    settings = replace(
        Settings("node-1", vendors=("nvidia", "ascend", "hygon")),
        dev_dir=dev, driver_device=dev / "nvidiactl", host_root=tmp_path, state_dir=tmp_path,
    )  # fmt: skip
    with caplog.at_level(logging.DEBUG):
        assert chosen(settings).facts == NVIDIA
        (dev / "nvidiactl").touch()
        assert chosen(settings).facts == NVIDIA
        (dev / "davinci_manager").touch()
        assert chosen(settings).facts.name == "nvidia+ascend"
        (dev / "nvidiactl").unlink()
        assert chosen(settings).facts == ASCEND
    assert not caplog.records
    with pytest.raises(ConfigError, match="twice"):
        chosen(replace(settings, vendors=("ascend", "ascend")))


def test_every_vendors_cards_are_hidden_in_every_container() -> None:
    assert HIDE == {"NVIDIA_VISIBLE_DEVICES": "void", "ASCEND_VISIBLE_DEVICES": "void"}
