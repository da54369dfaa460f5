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

import pytest
from gpu.standalone import BUILD, ON_FAKE, Node, Running

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
    total = node.context_mib + ROOM_MIB
    node.add("a", total)
    ran = subprocess.run(
        [PYTHON, MEMORY], env=_environment(node, "a", PYTORCH_CUDA_ALLOC_CONF=allocator),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert (said["total_mib"], said["capacity_mib"]) == (total, total)
    assert said["before_mib"] - 2 * PIECE_MIB < said["held_mib"] <= said["before_mib"]
    assert said["left_mib"] < 2 * PIECE_MIB
    assert said["again"]
    assert said["after_mib"] > said["before_mib"] - PIECE_MIB
    assert said["loaded"] == 64
    assert ON_FAKE or said["graph"] == 5


def _start(node: Node, name: str, mode: str) -> Running:
    process = subprocess.Popen(
        [PYTHON, LOAD, mode, str(SECONDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=_environment(node, name), start_new_session=True,
    )  # fmt: skip
    one = Running(process, None)
    node.running.append(one)
    assert process.stdout
    line = process.stdout.readline()
    assert line == "ready\n", f"{line!r} {process.stderr.read() if process.stderr else ''}"
    return one


def test_inference_has_its_time_beside_training(node: Node) -> None:
    node.add("high", 8192, share_class="high")
    node.add("low", 16_384, share_class="low")
    (alone,) = node.together([_start(node, "high", "serve")])
    beside, training = node.together([_start(node, "high", "serve"), _start(node, "low", "train")])
    assert (beside["total_mib"], training["total_mib"]) == (8192, 16_384)
    assert beside["p50_ms"] < 2 * alone["p50_ms"] + 5
    assert training["steps"] > 10
