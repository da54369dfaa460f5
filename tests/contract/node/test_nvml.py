"""Cards through the real NVML path, against the fake library."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
from fakes.nvml_state import DRIVER_NOT_LOADED, FakeNode
from vc_egpu.core.topology.links import Near
from vc_egpu_node.cards.monitor import FORGET_S, Monitor
from vc_egpu_node.vendors.base import SHARED, ProcessSample
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings

MakeNode = Callable[[int], FakeNode]
LIBRARY_MISMATCH = 18


@pytest.fixture
def vendor() -> Iterator[NvidiaReadings]:
    vendor = NvidiaReadings()
    yield vendor
    vendor.close()


def test_what_a_card_is(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    node = nvml_node(2)
    node.cards[0].links = ["-", node.cards[1].pci, "-", *[node.cards[1].pci] * 2, "00000000:FF:00.0"]
    node.write()
    reading = vendor.scan()
    assert (reading.versions, reading.problem) == ({"driver": "570.124.06", "cuda": "12.8"}, "")
    first = reading.cards[0]
    assert (first.uuid, first.index) == (node.cards[0].uuid, 0)
    assert (first.product, first.memory_mib) == ("NVIDIA H20", 98304)
    assert (first.clock_mhz, first.isolation, first.abilities) == (1980, "library", SHARED)
    assert (first.devices, first.numbers) == (("nvidia0",), {"sm": 78, "minor": 0})
    assert first.attributes == {"compute_capability": "9.0"}
    assert first.links == {node.cards[1].uuid: 3}


def test_how_cards_reach_each_other(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    node = nvml_node(3)
    first, second, third = node.cards
    for card in node.cards:
        card.links, card.link_version = ["switch"] * 18, pynvml.NVML_NVLINK_VERSION_4_0
    third.links, third.link_version, third.socket = [], 0, 1
    node.write()
    told = vendor.scan().cards
    assert [card.switch_links for card in told] == [18, 18, 0]
    assert [card.link_mb_s for card in told] == [25_000, 25_000, 0]
    assert all(not card.links for card in told), "a switch is no card"
    assert told[0].near == {second.uuid: Near.NODE, third.uuid: Near.SYSTEM}
    assert told[2].near == {first.uuid: Near.SYSTEM, second.uuid: Near.SYSTEM}


@pytest.mark.parametrize(("mode", "closed_to"), [(0, ""), (1, "others"), (2, "all"), (3, "others")])
def test_whom_a_card_s_compute_mode_keeps_out(
    nvml_node: MakeNode, vendor: NvidiaReadings, mode: int, closed_to: str
) -> None:
    node = nvml_node(1)
    node.cards[0].compute_mode = mode
    node.write()
    assert vendor.scan().cards[0].closed_to == closed_to


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ("3.7", pynvml.NVML_DEVICE_ARCH_KEPLER),
        ("7.0", pynvml.NVML_DEVICE_ARCH_VOLTA),
        ("7.5", pynvml.NVML_DEVICE_ARCH_TURING),
        ("8.0", pynvml.NVML_DEVICE_ARCH_AMPERE),
        ("8.9", pynvml.NVML_DEVICE_ARCH_ADA),
        ("9.0", pynvml.NVML_DEVICE_ARCH_HOPPER),
        ("99.0", pynvml.NVML_DEVICE_ARCH_UNKNOWN),
    ],
)
def test_of_what_architecture_a_card_is(
    nvml_node: MakeNode, vendor: NvidiaReadings, capability: str, architecture: int
) -> None:
    """NVIDIA's DRA driver asks it, and for MIG profiles, before it publishes a card."""
    node = nvml_node(1)
    node.cards[0].cc = capability
    node.write()
    vendor.scan()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    found = pynvml.nvmlDeviceGetArchitecture(handle)
    assert found % (1 << 32) == architecture % (1 << 32)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, 0, version=1)


def test_how_far_cards_are_from_each_other(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    """NVIDIA's device plugin asks it before it chooses cards for a pod."""
    nvml_node(2)
    vendor.scan()
    first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2))
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, first) == pynvml.NVML_TOPOLOGY_INTERNAL
    assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second) == pynvml.NVML_TOPOLOGY_NODE


def test_what_a_card_does(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    node = nvml_node(1)
    card = node.cards[0]
    card.used_mib, card.util, card.mem_util, card.power_mw, card.temp_c = 1000, 73, 20, 350_500, 66
    card.processes = [(4242, 900, 70), (4243, 100, 3)]
    node.write()
    vendor.scan()
    sample = vendor.sample(card.uuid)
    assert (sample.memory_used_mib, sample.memory_free_mib) == (1000, 97304)
    assert (sample.gpu_util_percent, sample.mem_copy_util_percent) == (73, 20)
    assert (sample.power_w, sample.temperature_c) == (350.5, 66)
    assert vendor.processes(card.uuid) == (ProcessSample(4242, 900, 70), ProcessSample(4243, 100, 3))
    assert vendor.sample("GPU-unknown").gpu_util_percent is None


def test_a_driver_that_does_not_tell_reserved_memory_apart_still_tells_the_rest(
    nvml_node: MakeNode, vendor: NvidiaReadings
) -> None:
    node = nvml_node(1)
    node.driver = "470.256.02"
    node.cards[0].used_mib = 1000
    node.write()
    assert vendor.scan().problem == ""
    sample = vendor.sample(node.cards[0].uuid)
    assert (sample.memory_used_mib, sample.memory_free_mib) == (1000, 97304)
    assert sample.memory_reserved_mib is None


def test_a_container_without_the_library_says_what_brings_it(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()  # before one that the machine may have
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "from vc_egpu_node.vendors.nvidia import readings as n; print(n.NvidiaReadings().scan().problem)",
        ],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == (
        "NVML: NVML Shared Library Not Found (libnvidia-ml.so.1 is not in the agent's container: it needs "
        "RuntimeClass nvidia or components/driver-root)"
    )


def test_a_driver_that_was_changed_says_what_ends_that(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    node = nvml_node(1)
    node.error = LIBRARY_MISMATCH
    node.write()
    assert "reload its module, or reboot the node" in vendor.scan().problem
    node.error = 999
    node.write()
    assert vendor.scan().problem == "NVML: Unknown Error"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"error": 15}, "the driver does not reach it: GPU is lost"),
        ({"remap_failure": 1}, "a memory row could not be remapped"),
        ({"remap_pending": 1, "remap_failure": 1}, "a memory row could not be remapped"),
        ({"remap_pending": 1, "cc": "8.9"}, "memory rows wait for a reset to be remapped"),
        ({"recovery_action": 1}, "the driver asks for a reset of the card"),
        ({"recovery_action": 2}, "the driver asks for a reboot of the node"),
        ({"recovery_action": 3}, "the driver asks that programs which use it with other cards end"),
        ({"recovery_action": 4}, "the driver asks that its programs end and it is reset: it does less"),
        ({"recovery_action": 42}, "the driver asks for recovery action 42"),
        ({"remap_pending": 1, "recovery_action": 1}, "the driver asks for a reset of the card"),
        ({"fabric": "1:0"}, "its NVLink fabric is not up (not started)"),
        ({"fabric": "2:0"}, "its NVLink fabric is not up (in progress)"),
        ({"fabric": "3:999"}, "its NVLink fabric is not up (Unknown Error)"),
        ({"fabric": "7:0"}, "its NVLink fabric is not up (state 7)"),
        ({"ecc": 4}, "uncorrected ECC errors rose from 0 to 4"),
    ],
)
def test_faults(nvml_node: MakeNode, vendor: NvidiaReadings, change: dict[str, Any], fault: str) -> None:
    node = nvml_node(2)
    vendor.scan()
    assert vendor.faults() == {}
    for name, value in change.items():
        setattr(node.cards[1], name, value)
    node.write()
    assert vendor.faults() == {node.cards[1].uuid: fault}


@pytest.mark.parametrize("driver", ["525.60.13", "535.161.08", "570.124.06"])
def test_every_driver_that_tells_of_the_fabric_is_understood(
    nvml_node: MakeNode, vendor: NvidiaReadings, driver: str
) -> None:
    """By the third record, by the second, or by the function that has none of them."""
    node = nvml_node(1)
    node.driver = driver
    node.cards[0].fabric = "2:0"
    node.write()
    vendor.scan()
    assert vendor.faults() == {node.cards[0].uuid: "its NVLink fabric is not up (in progress)"}


@pytest.mark.parametrize(
    ("driver", "fabric"),
    [("570.124.06", ""), ("570.124.06", "0:0"), ("570.124.06", "3:0"), ("510.47.03", "2:0")],
    ids=["has none", "not supported", "completed", "the driver has no such function"],
)
def test_a_card_without_a_fabric_or_with_one_that_is_up_is_in_order(
    nvml_node: MakeNode, vendor: NvidiaReadings, driver: str, fabric: str
) -> None:
    node = nvml_node(1)
    node.driver = driver
    node.cards[0].fabric = fabric
    node.write()
    vendor.scan()
    assert vendor.faults() == {}


def test_cards_whose_fabric_is_late_are_never_offered_and_come_by_themselves(nvml_node: MakeNode) -> None:
    """After a boot the kubelet is faster than the fabric manager: cards answer NVML and take no CUDA."""
    node = nvml_node(8)
    for card in node.cards:
        card.fabric = "2:0"
    node.write()
    now_s = [0.0]
    seen: list[int] = []
    monitor = Monitor(
        NvidiaReadings(),
        probe_interval_s=0.01,
        rescan_interval_s=60.0,
        recovery_s=lambda: 60.0,
        on_change=lambda: seen.append(len(monitor.observation.reading.cards) - len(monitor.observation.ill)),
        clock=lambda: now_s[0] + time.monotonic(),
    )
    monitor.turn()
    assert set(monitor.observation.ill.values()) == {"its NVLink fabric is not up (in progress)"}
    assert len(monitor.observation.ill) == 8
    assert seen == [0], "how many were well, each time that somebody was told"
    for card in node.cards:
        card.fabric = "3:0"
    node.write()
    now_s[0] = 61.0
    monitor.turn()
    assert monitor.observation.ill == {}
    monitor.stop()


def test_rows_that_wait_for_a_reset_are_out_of_use_meanwhile(
    nvml_node: MakeNode, vendor: NvidiaReadings
) -> None:
    """So the card stays: it would be out until somebody resets it, which needs all of its programs gone."""
    node = nvml_node(1)
    vendor.scan()
    node.cards[0].remap_pending = 1
    node.write()
    assert vendor.faults() == {}
    sample = vendor.sample(node.cards[0].uuid)
    assert (sample.row_remap_pending, sample.row_remap_failure) == (1, 0)


def test_errors_are_told_once_and_those_of_programs_not_at_all(
    nvml_node: MakeNode, vendor: NvidiaReadings
) -> None:
    node = nvml_node(2)
    vendor.scan()
    assert vendor.wait_events(0.01) == ()
    node.cards[0].fail_with_xid(31)
    node.cards[1].fail_with_xid(79)
    node.write()
    assert [(event.uuid, event.code) for event in vendor.wait_events(1.0)] == [(node.cards[1].uuid, 79)]
    assert vendor.wait_events(0.01) == ()


def test_an_error_that_asks_for_a_reset_is_not_over_while_nothing_happens(
    nvml_node: MakeNode, vendor: NvidiaReadings
) -> None:
    node = nvml_node(2)
    ill, well = node.cards
    vendor.scan()
    ill.fail_with_xid(119)
    well.fail_with_xid(94)  # contained: its program is gone, the card goes on
    node.write()
    assert {(event.uuid, event.code) for event in vendor.wait_events(1.0)} == {
        (ill.uuid, 119),
        (well.uuid, 94),
    }
    wants = {ill.uuid: "XID 119: it has to be reset"}
    assert vendor.faults() == wants
    vendor.scan()
    assert vendor.faults() == wants
    ill.error = 10  # it does not answer for a while: still listed, and nobody has reset it
    node.write()
    assert [card.uuid for card in vendor.scan().cards] == [well.uuid]
    ill.error = 0
    node.write()
    vendor.scan()
    assert vendor.faults() == wants
    node.cards = [well]
    node.write()
    vendor.scan()
    node.cards = [ill, well]
    node.write()
    vendor.scan()
    assert vendor.faults() == {}


def open_nodes(folder: Path) -> set[str]:
    """Device nodes there that this process has open."""
    return {one.resolve().name for one in Path("/proc/self/fd").iterdir() if one.resolve().parent == folder}


def test_cards_stay_awake_while_they_are_counted_anew(
    nvml_node: MakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them that have a node here; afterwards nothing is held."""
    nvml_node(2)
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia1", "nvidiactl"):
        (dev / name).touch()
    seen: set[str] = set()
    read = pynvml.nvmlDeviceGetHandleByIndex

    def note(index: int) -> Any:
        seen.update(open_nodes(dev))
        return read(index)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", note)
    vendor = NvidiaReadings(dev)
    vendor.scan()
    assert seen == set()  # which there are is known from the first time on
    assert len(vendor.scan().cards) == 2
    assert seen == {"nvidia1"}
    assert open_nodes(dev) == set()
    vendor.close()


def test_a_driver_that_comes_late(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    node = nvml_node(1)
    node.error = DRIVER_NOT_LOADED
    node.write()
    assert vendor.scan().problem == (
        "NVML: Driver Not Loaded (the node has no NVIDIA driver loaded, or the agent's container has none of "
        "its devices: it needs RuntimeClass nvidia or components/driver-root)"
    )
    node.error = 0
    node.write()
    assert len(vendor.scan().cards) == 1


def test_a_driver_that_is_replaced_under_the_library(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    """What this process has loaded never works again; one that never saw it work need not begin anew."""
    node = nvml_node(1)
    assert not vendor.scan().outdated
    node.error = LIBRARY_MISMATCH
    node.write()
    reading = vendor.scan()
    assert (reading.problem != "", reading.outdated) == (True, True)
    fresh = NvidiaReadings()
    assert not fresh.scan().outdated
    fresh.close()
    node.error = DRIVER_NOT_LOADED
    node.write()
    assert not vendor.scan().outdated


@pytest.mark.parametrize(
    "change",
    [{"memory_bytes": 2**64 - 1}, {"name": "\x07\x1b[31m" * 8}, {"uuid": "x y"}, {"cc": "a.b"}, {"pci": "zz"},
     {"util": 2**32 - 1, "power_mw": 2**32 - 1}],
)  # fmt: skip
def test_garbage_is_passed_on(nvml_node: MakeNode, vendor: NvidiaReadings, change: dict[str, Any]) -> None:
    node = nvml_node(2)
    for name, value in change.items():
        setattr(node.cards[0], name, value)
    node.write()
    reading = vendor.scan()
    assert len(reading.cards) == 2
    vendor.sample(reading.cards[0].uuid)
    vendor.faults()


# --- the monitor, over time ----------------------------------------------------------------------


class Watched:
    """A monitor whose changes can be waited for."""

    def __init__(self, vendor: NvidiaReadings) -> None:
        self.changed = threading.Condition()
        self.ahead_s = 0.0
        """Of the time."""
        self.monitor = Monitor(
            vendor,
            probe_interval_s=0.05,
            rescan_interval_s=0.2,
            recovery_s=lambda: 0.3,
            on_change=self._note,
            clock=lambda: time.monotonic() + self.ahead_s,
        )

    def _note(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def until(self, check: Callable[[], bool], timeout_s: float = 30.0) -> None:
        deadline = time.monotonic() + timeout_s
        with self.changed:
            while not check():
                assert self.changed.wait(deadline - time.monotonic()), self.monitor.observation


@pytest.fixture
def watched(fake_nvml: None) -> Iterator[Watched]:
    watched = Watched(NvidiaReadings())
    yield watched
    watched.monitor.stop()


def test_cards_come_go_fall_ill_and_recover(nvml_node: MakeNode, watched: Watched) -> None:
    node = nvml_node(2)
    first, second = node.cards
    watched.monitor.start()
    watched.until(lambda: len(watched.monitor.observation.reading.cards) == 2)

    first.fail_with_xid(79)
    node.write()
    watched.until(lambda: watched.monitor.observation.ill == {first.uuid: "XID 79"})
    assert watched.monitor.observation.error_codes == {first.uuid: 79}
    watched.until(lambda: watched.monitor.observation.ill == {})

    node.cards = [first]
    node.write()
    watched.until(lambda: second.uuid in watched.monitor.observation.ill)
    watched.until(lambda: watched.monitor.observation.ill == {second.uuid: "the driver no longer lists it"})
    assert {card.uuid for card in watched.monitor.observation.reading.cards} == {first.uuid, second.uuid}

    node.cards = [first, second, node.cards[0].h20(3)]
    node.write()
    watched.until(lambda: len(watched.monitor.observation.reading.cards) == 3)
    watched.until(lambda: watched.monitor.observation.ill == {})

    node.error = DRIVER_NOT_LOADED
    node.write()
    watched.until(lambda: len(watched.monitor.observation.ill) == 3)
    node.error = 0
    node.write()
    watched.until(lambda: watched.monitor.observation.ill == {})


def test_a_card_that_was_taken_out_is_forgotten_with_what_was_wrong_with_it(
    nvml_node: MakeNode, watched: Watched
) -> None:
    """While any card is ill cards are counted more often, which opens the driver's library anew each time."""
    node = nvml_node(2)
    first, second = node.cards
    second.fail_with_xid(79)
    node.write()
    watched.monitor.start()
    watched.until(lambda: watched.monitor.observation.ill == {second.uuid: "XID 79"})
    node.cards = [first]
    node.write()
    watched.until(lambda: watched.monitor.observation.ill == {second.uuid: "the driver no longer lists it"})
    watched.ahead_s = FORGET_S
    watched.until(lambda: [card.uuid for card in watched.monitor.observation.reading.cards] == [first.uuid])
    assert watched.monitor.observation.ill == {}
    assert watched.monitor.observation.error_codes == {}
