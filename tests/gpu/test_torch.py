"""PyTorch as it is installed: training beside inference, both in their slices."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu.standalone import ON_FAKE, Node, Running

PYTHON = os.environ.get("VC_EGPU_TORCH_PYTHON", sys.executable)
LOAD = Path(__file__).with_name("torch_load.py")
SECONDS = 10

pytestmark = [
    pytest.mark.skipif(ON_FAKE, reason="PyTorch needs a card that computes"),
    pytest.mark.skipif(
        "VC_EGPU_TORCH_PYTHON" not in os.environ and importlib.util.find_spec("torch") is None,
        reason="PyTorch is not installed here; VC_EGPU_TORCH_PYTHON names a Python that has it",
    ),
]


def _start(node: Node, name: str, mode: str) -> Running:
    process = subprocess.Popen(
        [PYTHON, LOAD, mode, str(SECONDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=node.environment(name), start_new_session=True,
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
