"""A context on a card, made in a process of its own, against the fake driver."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from contract.node.conftest import NATIVE
from fakes.nvml_state import FakeNode
from vc_egpu_node.cards.monitor import Monitor
from vc_egpu_node.cards.trials import Trials
from vc_egpu_node.vendors.base import UntoldError
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings
from vc_egpu_node.vendors.nvidia.trial import ContextTrial

MakeNode = Callable[[int], FakeNode]


def trial_on(node: FakeNode, **more: str) -> ContextTrial:
    libraries = {"LD_LIBRARY_PATH": str(NATIVE / "build"), "FAKE_NVML_STATE": str(node.path)}
    return ContextTrial(environment={**os.environ, **libraries, **more})


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_a_card_in_order_takes_a_context_and_has_it_no_more(nvml_node: MakeNode) -> None:
    node = nvml_node(2)
    trial = trial_on(node)
    assert [trial(card.uuid) for card in node.cards] == ["", ""]
    readings = NvidiaReadings()
    readings.scan()
    assert [readings.processes(card.uuid) for card in node.cards] == [(), ()]
    readings.close()


@pytest.mark.parametrize(
    ("call", "code", "name"),
    [
        ("cuInit", 3, "CUDA_ERROR_NOT_INITIALIZED"),
        ("cuDevicePrimaryCtxRetain", 46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        ("cuInit", 100, "CUDA_ERROR_NO_DEVICE"),
        ("cuDeviceGet", 101, "CUDA_ERROR_INVALID_DEVICE"),
        ("cuInit", 802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    ],
)
def test_what_a_broken_driver_answers(nvml_node: MakeNode, call: str, code: int, name: str) -> None:
    node = nvml_node(1)
    trial = trial_on(node, FAKE_CUDA_FAULTS=f"{call}:1:9:{code}")
    assert trial(node.cards[0].uuid) == f"programs cannot use it: {call} answers {name} ({code})"


def test_a_fabric_that_is_not_up(nvml_node: MakeNode) -> None:
    node = nvml_node(1)
    node.cards[0].fabric = "2:0"
    node.write()
    said = trial_on(node)(node.cards[0].uuid)
    assert said == "programs cannot use it: cuInit answers CUDA_ERROR_SYSTEM_NOT_READY (802)"


def test_a_driver_that_crashes_ends_the_trial_and_nothing_else() -> None:
    crash = ContextTrial(program("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    assert crash("GPU-1") == "making a CUDA context on it ends the program with signal 11"


def test_a_driver_that_hangs_is_given_up_in_time() -> None:
    began_s = time.monotonic()
    hang = ContextTrial(program("import time; time.sleep(600)"), answer_s=0.5)
    assert hang("GPU-1") == "making a CUDA context on it did not end within 0.5 s"
    assert time.monotonic() - began_s < 5
    assert hang("GPU-1") == "making a CUDA context on it did not end within 0.5 s"


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "print('nonsense')"])
def test_a_trial_that_fails_by_itself_says_nothing_of_the_card(text: str) -> None:
    with pytest.raises(UntoldError):
        ContextTrial(program(text))("GPU-1")


def test_a_container_without_the_driver_says_nothing_of_the_card(tmp_path: Path) -> None:
    with pytest.raises(UntoldError, match="has no CUDA driver"):
        ContextTrial(environment={"LD_LIBRARY_PATH": str(tmp_path)})("GPU-1")
    with pytest.raises(UntoldError, match="no process can be started"):
        ContextTrial(("/nonexistent",))("GPU-1")


def test_what_a_trial_finds_makes_the_card_ill_until_it_finds_it_well(nvml_node: MakeNode) -> None:
    node = nvml_node(2)
    broken = trial_on(node, FAKE_CUDA_FAULTS="cuInit:1:9:802")
    whole = trial_on(node)
    first, second = (card.uuid for card in node.cards)
    ways = {first: broken, second: whole}
    now_s = [0.0]
    clock = lambda: now_s[0] + time.monotonic()  # noqa: E731
    trials = Trials(
        lambda uuid: ways[uuid](uuid),
        interval_s=3600.0,
        cards=lambda: dict.fromkeys(ways, True),
        count=lambda _: None,
        clock=clock,
    )
    monitor = Monitor(
        NvidiaReadings(),
        probe_interval_s=0.01,
        rescan_interval_s=60.0,
        recovery_s=lambda: 60.0,
        on_change=lambda: None,
        clock=clock,
    )
    monitor.heed(lambda: trials.faults)
    trials.turn()
    monitor.turn()
    assert monitor.observation.ill == {
        first: "programs cannot use it: cuInit answers CUDA_ERROR_SYSTEM_NOT_READY (802)"
    }
    ways[first] = whole
    now_s[0] = 120.0
    trials.turn()
    monitor.turn()
    assert monitor.observation.ill == {}
    monitor.stop()
