"""Who runs on a card, through the real NVML path, against the fake library."""

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest
from fakes.nvml_state import FakeNode
from vc_egpu_node.cards.monitor import Monitor
from vc_egpu_node.vendors.base import ProcessSample, UntoldError
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings

MakeNode = Callable[[int], FakeNode]


@pytest.fixture
def vendor() -> Iterator[NvidiaReadings]:
    vendor = NvidiaReadings()
    yield vendor
    vendor.close()


def test_processes_that_draw_are_seen_and_counted_once(nvml_node: MakeNode, vendor: NvidiaReadings) -> None:
    node = nvml_node(1)
    card = node.cards[0]
    card.processes = [(1, 900, 70), (2, 300, 5), (3, 500, 10)]
    card.kinds = {2: "G", 3: "CG"}
    node.write()
    vendor.scan()
    seen = {one.pid: one for one in vendor.processes(card.uuid)}
    assert seen == {
        1: ProcessSample(1, 900, 70),
        2: ProcessSample(2, 300, 5),
        3: ProcessSample(3, 500, 10),
    }


@pytest.mark.parametrize(
    "driver", ["470.256.02", "535.54.03", "535.86.10", "535.98", "535.104.05", "580.65.06"]
)
def test_processes_are_read_as_each_driver_lists_them(
    nvml_node: MakeNode, vendor: NvidiaReadings, driver: str
) -> None:
    """The first drivers of 535 have one field more in a record, under the same name; 470 has an older one."""
    node = nvml_node(1)
    node.driver = driver
    node.cards[0].processes = [(4000 + n, 100 * n, n) for n in range(1, 7)]
    node.write()
    vendor.scan()
    assert vendor.processes(node.cards[0].uuid) == tuple(
        ProcessSample(4000 + n, 100 * n, n) for n in range(1, 7)
    )


def test_a_driver_whose_list_has_no_name_that_we_know_does_not_tell(
    nvml_node: MakeNode, vendor: NvidiaReadings
) -> None:
    """Nobody would see programs that take more than they may: that is not a card without programs."""
    node = nvml_node(1)
    node.driver = "418.226.00"
    node.cards[0].processes = [(4242, 900, 70)]
    node.write()
    vendor.scan()
    with pytest.raises(UntoldError, match="nvmlDeviceGetComputeRunningProcesses"):
        vendor.processes(node.cards[0].uuid)


@pytest.mark.parametrize(("code", "tells"), [(999, False), (15, False), (7, False), (3, True)])
def test_a_list_that_cannot_be_read_is_not_an_empty_one(
    nvml_node: MakeNode, vendor: NvidiaReadings, code: int, tells: bool
) -> None:
    """Who takes it for one believes that memory has left the card. A card without such lists (3) has none."""
    node = nvml_node(1)
    node.cards[0].processes = [(4242, 900, 70)]
    node.write()
    vendor.scan()
    node.cards[0].error = code
    node.write()
    if tells:
        assert vendor.processes(node.cards[0].uuid) == ()
    else:
        with pytest.raises(UntoldError):
            vendor.processes(node.cards[0].uuid)
    with pytest.raises(UntoldError):
        vendor.processes("GPU-gone")


def test_a_list_that_grew_while_it_was_read_is_read_again(
    nvml_node: MakeNode, vendor: NvidiaReadings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library takes room for twice as many, and more may come: a burst of programs hides nobody."""
    node = nvml_node(1)
    node.cards[0].processes = [(4242, 900, 70)]
    node.write()
    vendor.scan()
    whole = pynvml.nvmlDeviceGetComputeRunningProcesses
    grows = iter([True, True, False])

    def read(handle: Any) -> Any:
        if next(grows):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        return whole(handle)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", read)
    assert vendor.processes(node.cards[0].uuid) == (ProcessSample(4242, 900, 70),)


def test_what_a_card_told_last_stands_while_it_tells_nothing(
    nvml_node: MakeNode, vendor: NvidiaReadings
) -> None:
    node = nvml_node(2)
    first, second = node.cards
    first.processes, second.processes = [(1, 900, 70)], [(2, 100, 0)]
    node.write()
    monitor = Monitor(
        vendor, probe_interval_s=0.01, rescan_interval_s=60, recovery_s=lambda: 60, on_change=lambda: None
    )
    monitor.turn()
    assert monitor.observation.untold == frozenset()
    first.error, second.processes = 999, []
    node.write()
    monitor.turn()
    seen = monitor.observation
    assert (seen.untold, seen.looks) == (frozenset({first.uuid}), 2)
    assert seen.processes == {first.uuid: (ProcessSample(1, 900, 70),), second.uuid: ()}
    first.error, first.processes = 0, []
    node.write()
    monitor.turn()
    assert (monitor.observation.untold, monitor.observation.processes[first.uuid]) == (frozenset(), ())


def test_utilisation_of_a_process_that_ends_may_be_anything(
    nvml_node: MakeNode, vendor: NvidiaReadings
) -> None:
    node = nvml_node(1)
    node.cards[0].processes = [(4242, 900, 2**32 - 1)]
    node.write()
    vendor.scan()
    assert vendor.processes(node.cards[0].uuid) == (ProcessSample(4242, 900, 100),)


def test_processes_are_read_more_often_than_cards(nvml_node: MakeNode, fake_nvml: None) -> None:
    node = nvml_node(1)
    card = node.cards[0]
    seen: queue.Queue[tuple[ProcessSample, ...]] = queue.Queue()
    monitor = Monitor(
        NvidiaReadings(),
        probe_interval_s=60,
        rescan_interval_s=60,
        recovery_s=lambda: 0.3,
        on_change=lambda: None,
    )
    monitor.read_processes(0.05, lambda: seen.put(monitor.observation.processes[card.uuid]))
    monitor.start()
    assert seen.get(timeout=30) == ()
    card.processes = [(4242, 900, 70)]
    node.write()
    while seen.get(timeout=30) != (ProcessSample(4242, 900, 70),):
        pass
    card.fail_with_xid(79)
    node.write()
    while not monitor.observation.ill:
        seen.get(timeout=30)
    while monitor.observation.looks <= 2:  # the event may have come before the third look
        seen.get(timeout=30)
    assert monitor.observation.looks > 2
    monitor.stop()
