"""PyTorch as it is installed: its allocators at the cap, training beside inference in their slices.

On the fake driver it runs over a CUDA runtime of our own (`native/fake/runtime`), without NVIDIA's libraries
for matrices: those make sure of NVIDIA's driver.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu.standalone import BUILD, ON_FAKE, Node, Running, ready
from gpu.test_suspension import checkpoint, unable

PYTHON = os.environ.get("VC_EGPU_TORCH_PYTHON", sys.executable)
LOAD = Path(__file__).with_name("torch_load.py")
MEMORY = Path(__file__).with_name("torch_memory.py")
SECONDS = 10
ROOM_MIB = 2048
PIECE_MIB = 64

pytestmark = pytest.mark.skipif(
    "VC_EGPU_TORCH_PYTHON" not in os.environ and importlib.util.find_spec("torch") is None,
    reason="PyTorch is not installed here; VC_EGPU_TORCH_PYTHON names a Python that has it",
)


def _environment(node: Node, name: str, **more: str) -> dict[str, str]:
    found = node.environment(name) | more
    if ON_FAKE:  # the name that PyTorch asks for is then there already
        found["LD_PRELOAD"] += f":{BUILD / 'runtime' / 'libcudart.so.13'}"
    return found


@pytest.mark.parametrize(
    "allocator", ["backend:native", "expandable_segments:True", "backend:cudaMallocAsync"]
)
def test_the_allocator_has_its_share_and_no_more(node: Node, allocator: str) -> None:
    """It gives its cache back before it fails, and what is freed is there again."""
    said, total = _fill(node, allocator), node.context_mib + ROOM_MIB
    assert (said["total_mib"], said["capacity_mib"]) == (total, total)
    assert said["before_mib"] - 2 * PIECE_MIB < said["held_mib"] <= said["before_mib"]
    assert said["left_mib"] < 2 * PIECE_MIB
    assert said["again"]
    assert said["after_mib"] > said["before_mib"] - PIECE_MIB
    assert said["loaded"] == 64
    assert ON_FAKE or said["graph"] == 5


@pytest.mark.parametrize(
    ("allocator", "spills"), [("backend:native", True), ("expandable_segments:True", False)]
)
def test_what_has_no_room_on_the_card_spills(node: Node, allocator: str, spills: bool) -> None:
    """Plain allocations do; virtual memory cannot lie on the host, and ends with the part on the card."""
    said = _fill(node, allocator, physical_mib=node.context_mib + ROOM_MIB // 2)
    room = ROOM_MIB if spills else ROOM_MIB // 2
    assert said["capacity_mib"] == node.context_mib + ROOM_MIB
    assert room - 3 * PIECE_MIB < said["held_mib"] <= room


def _fill(node: Node, allocator: str, physical_mib: int | None = None) -> dict[str, Any]:
    node.add("a", node.context_mib + ROOM_MIB, physical_mib=physical_mib)
    ran = subprocess.run(
        [PYTHON, MEMORY], env=_environment(node, "a", PYTORCH_CUDA_ALLOC_CONF=allocator),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return said


def _start(node: Node, name: str, mode: str, **more: str) -> Running:
    process = subprocess.Popen(
        [PYTHON, LOAD, mode, str(SECONDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=_environment(node, name, **more), start_new_session=True,
    )  # fmt: skip
    one = Running(process, None)
    node.running.append(one)
    ready(process)
    return one


def test_inference_has_its_time_beside_training(node: Node) -> None:
    node.add("high", 8192, share_class="high")
    node.add("low", 16_384, share_class="low")
    (alone,) = node.together([_start(node, "high", "serve")])
    beside, training = node.together([_start(node, "high", "serve"), _start(node, "low", "train")])
    assert (beside["total_mib"], training["total_mib"]) == (8192, 16_384)
    assert beside["p50_ms"] < 2 * alone["p50_ms"] + 5
    assert training["steps"] > 10


def test_a_hard_share_holds_training_back(node: Node) -> None:
    """Alone on the card: the part of the steps that an unlimited one does."""
    node.add("all", 16_384)
    node.add("part", 16_384, 30)
    long = {"FAKE_CUDA_KERNEL_NS": "500000"}  # on the fake driver: the card is what it waits for
    (whole,) = node.together([_start(node, "all", "train", **long)])
    (part,) = node.together([_start(node, "part", "train", **long)])
    assert 0.15 < part["steps"] / whole["steps"] < 0.45


@pytest.mark.skipif(os.geteuid() != 0, reason="the driver lets only root take memory away from others")
def test_suspended_training_goes_on(node: Node) -> None:
    """Its memory leaves the card while its process waits in a call, and comes back under it."""
    node.add("a", 16_384, share_class="low")
    before = node.used_mib()
    train = _start(node, "a", "train")
    during = node.used_mib()
    train.begin()
    answer = checkpoint(node, "suspend", train.process.pid)
    if why := unable(answer):
        pytest.skip(why)
    assert answer["ok"], answer
    assert answer["states"] == {str(train.process.pid): "checkpointed"}
    assert node.settle(before + 8) <= before + 8 < during
    answer = checkpoint(node, "resume", train.process.pid)
    assert answer["ok"], answer
    assert train.result(90)["steps"] > 10
