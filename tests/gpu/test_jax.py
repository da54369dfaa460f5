"""JAX as it is installed: what it takes in advance is a part of the share, not of the card.

On the fake driver as PyTorch does it (`test_torch.py`); nothing is computed there.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu.standalone import BUILD, ON_FAKE, Node

PYTHON = os.environ.get("VC_EGPU_JAX_PYTHON", sys.executable)
MEMORY = Path(__file__).with_name("jax_memory.py")
ROOM_MIB = 3072
PIECE_MIB = 64

pytestmark = pytest.mark.skipif(
    "VC_EGPU_JAX_PYTHON" not in os.environ and importlib.util.find_spec("jax") is None,
    reason="JAX is not installed here; VC_EGPU_JAX_PYTHON names a Python that has it",
)


@pytest.mark.parametrize("fraction", [0.75, 0.9, None], ids=["default", "more", "as it is needed, plainly"])
def test_what_is_taken_in_advance_is_of_the_share(node: Node, fraction: float | None) -> None:
    total = node.context_mib + ROOM_MIB
    node.add("a", total)
    environment = node.environment("a") | {"JAX_PLATFORMS": "cuda", "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1"}
    if fraction is None:
        environment["XLA_PYTHON_CLIENT_ALLOCATOR"] = "platform"
    elif fraction != 0.75:
        environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(fraction)
    if ON_FAKE:
        environment["LD_PRELOAD"] += f":{BUILD / 'runtime' / 'libcudart.so.13'}"
    ran = subprocess.run(
        [PYTHON, MEMORY], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["error"] == "RESOURCE_EXHAUSTED"
    assert said["limit_mib"] == pytest.approx(total * (fraction or 1), abs=1)
    room = min(said["limit_mib"], ROOM_MIB)
    libraries_mib = 256 if ON_FAKE else 1024  # what NVIDIA's take for themselves
    assert room - libraries_mib < said["held_mib"] <= room
