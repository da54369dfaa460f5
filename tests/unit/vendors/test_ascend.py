"""Ascend cards and vNPUs through the fake library: what they are, what they refuse, and one that hangs."""

import time
from pathlib import Path

import pytest
from vc_egpu_node.vendors.ascend.edits import AscendEdits
from vc_egpu_node.vendors.base import EditsError, UntoldError
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import Realised, SliceError, SliceWish
from vendor_nodes import AscendNode


def wish(node: AscendNode, template: str = "vir05_1c_16g", memory_mib: int = 16384) -> SliceWish:
    return SliceWish(node.readings.scan().cards[0].uuid, template, memory_mib=memory_mib)


def test_cards_are_told_apart_by_die(ascend: AscendNode) -> None:
    reading = ascend.readings.scan()
    first, second = reading.cards
    assert not reading.problem and reading.versions["library"] == "25.2.0"
    assert (first.product, first.memory_mib, first.devices) == ("Ascend910B3", 65536, ("davinci0",))
    assert first.uuid != second.uuid and first.uuid.count("-") == 4
    assert (
        first.isolation == "hardware"
        and not {"share", "slice"} & first.abilities
        and "make" in first.abilities
    )


def test_a_die_of_zeros_has_a_name_unique_in_the_cluster(tmp_path: Path) -> None:
    node = AscendNode(tmp_path, die=0)
    assert node.readings.scan().cards[0].uuid == "pci-node-1-0000-c1-00.0"
    node.close()


def test_memory_of_a_310p_is_not_hbm(tmp_path: Path) -> None:
    node = AscendNode(tmp_path, chip="310P3", memory_mib=21527, used_mib=100, aicore=8)
    card = node.readings.scan().cards[0]
    assert (card.product, card.memory_mib) == ("Ascend310P3", 21527)
    assert node.readings.sample(card.uuid).memory_used_mib == 100
    node.close()


def test_samples_processes_and_health(ascend: AscendNode) -> None:
    ascend.script.say(0, used_mib=500, util=70, power_dw=1234, process="4711:300", health=3, code=0x80E01801)
    first, _ = ascend.readings.scan().cards
    sample = ascend.readings.sample(first.uuid)
    assert (sample.memory_used_mib, sample.gpu_util_percent, sample.power_w) == (500, 70, 123.4)
    assert [(one.pid, one.memory_mib) for one in ascend.readings.processes(first.uuid)] == [(4711, 300)]
    assert ascend.readings.faults() == {first.uuid: "DCMI health is 3, error codes 0x80e01801"}


def test_not_ready_is_asked_again(ascend: AscendNode) -> None:
    ascend.script.node["not_ready"] = 2
    ascend.script.write()
    assert len(ascend.readings.scan().cards) == 2


def test_a_chip_that_hangs_costs_its_own_readings(tmp_path: Path) -> None:
    node = AscendNode(tmp_path, cards=2)
    first, second = node.readings.scan().cards
    node.script.say(1, hang_s=60)
    begun = time.monotonic()
    reading = node.readings.scan()
    again = node.readings.scan()
    assert time.monotonic() - begun < 20
    assert (
        [card.uuid for card in again.cards]
        == [card.uuid for card in reading.cards]
        == [first.uuid, second.uuid]
    )
    assert list(node.readings.faults()) == [second.uuid]
    with pytest.raises(UntoldError, match="left alone"):
        node.readings.processes(second.uuid)
    assert node.readings.processes(first.uuid) == ()
    node.close()


def test_a_library_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    node = AscendNode(tmp_path)
    node.script.node["init"] = -8005
    node.script.write()
    assert node.readings.scan().problem == "DCMI: dcmi_init answers -8005: internal error"
    node.close()


@pytest.mark.parametrize(
    ("said", "why"),
    [({"create": -8020}, "busy"), ({"create": -8002}, "not-permitted"), ({"create": -8255}, "not-supported"),
     ({"create": -8012}, "not-ready"), ({"create": -8005}, "failed"), ({"made_mib": 8192}, "other-size")],
)  # fmt: skip
def test_refusals_have_a_type_and_leave_nothing(
    ascend: AscendNode, tmp_path: Path, said: dict[str, int], why: str
) -> None:
    book = SliceBook(tmp_path / "book", ascend.slicer)
    wanted = wish(ascend)
    ascend.script.say(0, **said)
    with pytest.raises(SliceError) as refused:
        book.realise("a", wanted)
    assert refused.value.why == why
    assert not ascend.script.slices and not book.entries()


def test_slices_of_both_sizes_on_one_card(ascend: AscendNode, tmp_path: Path) -> None:
    book = SliceBook(tmp_path / "book", ascend.slicer)
    small = wish(ascend)
    large = SliceWish(small.uuid, "vir10_3c_32g", memory_mib=32768)
    ids = {book.realise(*one).slice.id for one in (("a", small), ("b", small), ("c", large))}
    assert ids == {"100", "101", "102"}
    card = ascend.readings.scan().cards[0]
    assert len(card.slices) == 3 and card.isolation == "hardware" and "slice" in card.abilities
    with pytest.raises(SliceError, match="-8005"):
        book.realise("d", small)


def test_a_slice_in_use_stays_and_is_told(ascend: AscendNode, tmp_path: Path) -> None:
    book = SliceBook(tmp_path / "book", ascend.slicer)
    book.realise("a", wish(ascend))
    ascend.script.slices = [line[:-1] + "1" for line in ascend.script.slices]
    assert "-8020" in book.release_others([])["a"]
    ascend.script.slices = [line[:-1] + "0" for line in ascend.script.slices]
    assert not book.release_others([]) and not ascend.script.slices


def test_a_container_gets_its_own_nodes_and_a_group(ascend: AscendNode, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.mkdir()
    first, second = ascend.readings.scan().cards
    edits = AscendEdits(dev, tmp_path)
    with pytest.raises(EditsError, match="davinci_manager"):
        edits.edits([first], "", shared=False)
    for name in ("davinci_manager", "devmm_svm", "hisi_hdc", "davinci0"):
        (dev / name).touch()
    assert list(edits.unusable([first, second], "")) == [second.uuid]
    merged = edits.edits([first], "", shared=False).merged()
    assert [node["path"] for node in merged["deviceNodes"]] == [
        "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc", "/dev/davinci0"]  # fmt: skip
    made = SliceBook(tmp_path / "book", ascend.slicer).realise("a", wish(ascend))
    shown = edits.record([first], shared=True, realised=[Realised("a", first.uuid, made.slice)]).merged()
    assert {"path": "/dev/davinci100", "hostPath": "/dev/vdavinci100"} in shown["deviceNodes"]
    assert {"path": "/dev/davinci0"} not in shown["deviceNodes"]
