"""Hygon cards and vDCUs through the fake libraries."""

import re
from pathlib import Path

import pytest
from vc_egpu_node.vendors.hygon.edits import HygonEdits
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import SliceError, SliceWish
from vendor_nodes import HygonNode


def wish(node: HygonNode, card: int = 0, units: int = 30, memory_mib: int = 16380) -> SliceWish:
    return SliceWish(node.asked.scan().cards[card].uuid, f"cu{units}", memory_mib=memory_mib)


def test_devices_are_found_by_pci_address(hygon: HygonNode) -> None:
    first, second = hygon.readings.scan().cards
    assert (first.product, first.memory_mib, first.numbers["cu"]) == ("K100_AI", 65520, 120)
    assert first.devices == ("dri/card1", "dri/renderD129")
    assert second.devices == ("dri/card2", "dri/renderD130")
    assert first.uuid != second.uuid and "node-1" in first.uuid


def test_a_card_without_a_name_is_known_by_its_pci_id(tmp_path: Path) -> None:
    node = HygonNode(tmp_path, name="", device=0x62B7, unique=7)
    card = node.readings.scan().cards[0]
    assert (card.product, card.uuid) == ("K100", "DCU-0000000000000007")
    node.close()


def test_three_slices_beside_each_other_and_a_fifth_that_is_refused(hygon: HygonNode, tmp_path: Path) -> None:
    book = SliceBook(tmp_path / "book", hygon.slicer)
    wanted = wish(hygon, units=20, memory_mib=8192)
    made = [book.realise(owner, wanted) for owner in "abcd"]
    with pytest.raises(SliceError, match="4 of 4 vDCUs") as refused:
        book.realise("e", wanted)
    assert refused.value.why == "no-room"
    masks = [one.slice.numbers["low"] | one.slice.numbers["high"] << 64 for one in made]
    assert sum(mask.bit_count() for mask in masks) == 80 == sum(masks).bit_count()
    book.release("b")
    assert book.realise("e", wanted).slice.id == made[1].slice.id


def test_numbers_are_unique_on_the_node_and_others_stay_theirs(hygon: HygonNode, tmp_path: Path) -> None:
    (tmp_path / "etc-vdev").mkdir()
    (tmp_path / "etc-vdev/vdev1.conf").touch()
    book = SliceBook(tmp_path / "book", hygon.slicer)
    ids = [book.realise(owner, wish(hygon, card)).slice.id for owner, card in (("a", 0), ("b", 1), ("c", 0))]
    assert ids == ["0", "2", "3"]


def test_the_file_says_what_the_container_has(hygon: HygonNode, tmp_path: Path) -> None:
    made = SliceBook(tmp_path / "book", hygon.slicer).realise("a", wish(hygon, card=1))
    path = hygon.slicer.file_of(int(made.slice.id))
    assert path.read_text(encoding="utf-8").splitlines() == [
        "PciBusId: 0000:31:00.0", "cu_mask: 0x000000003fffffff", "cu_mask: 0x0000000000000000",
        "cu_count: 30", "mem: 16380 MiB",
        "device_id: 0", "vdev_id: 0", "pipe_id: 0", "enable: 1"]  # fmt: skip
    dev = tmp_path / "dev"
    (dev / "dri").mkdir(parents=True)
    for name in ("kfd", "mkfd", "dri/card2", "dri/renderD130", "dri/card0"):
        (dev / name).touch()
    card = hygon.readings.scan().cards[1]
    merged = HygonEdits(dev, tmp_path, hygon.slices).edits([card], "", shared=True, realised=[made]).merged()
    assert [one["path"] for one in merged["deviceNodes"]] == [
        "/dev/kfd", "/dev/mkfd", "/dev/dri/card2", "/dev/dri/renderD130"]  # fmt: skip
    assert {"hostPath": str(path), "containerPath": "/etc/vdev/docker/vdev0.conf",
            "options": ["ro", "bind", "nosuid", "nodev"]} in merged["mounts"]  # fmt: skip


@pytest.mark.parametrize(
    ("said", "text"),
    [({"smi_error": 4}, "rsmi_dev_pci_id_get answers 4"), ({"dmi_error": 17}, "dmiGetDeviceInfo answers 17"),
     ({"hang_s": 60}, "did not answer within 5 s")],
)  # fmt: skip
def test_a_card_that_is_not_in_order_gets_no_slice(
    hygon: HygonNode, tmp_path: Path, said: dict[str, int], text: str
) -> None:
    book = SliceBook(tmp_path / "book", hygon.slicer)
    wanted, neighbour = wish(hygon), wish(hygon, card=1)
    hygon.readings.scan()
    hygon.script.say(0, **said)
    with pytest.raises(SliceError, match=re.escape(text)) as refused:
        book.realise("a", wanted)
    assert refused.value.why == "no-answer" and not list(hygon.slices.glob("*.conf"))
    assert wanted.uuid in hygon.readings.faults() or "hang_s" not in said
    assert book.realise("b", neighbour).slice.template == "cu30"


def test_slices_of_another_tool_close_the_card(hygon: HygonNode, tmp_path: Path) -> None:
    hygon.script.slices = ["0 0 vdcu 30 1000 0"]
    wanted = wish(hygon)
    assert "slice" in hygon.readings.scan().cards[0].abilities
    with pytest.raises(SliceError, match="another tool"):
        SliceBook(tmp_path / "book", hygon.slicer).realise("a", wanted)
