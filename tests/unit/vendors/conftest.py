"""The fake libraries are built once a run."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from vendor_nodes import BUILD, AscendNode, HygonNode

LIBRARIES = ("libnvidia-ml.so.1", "libdcmi.so", "libhydmi.so", "librocm_smi64.so", "vendor-sizes")


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    goals = [f"build/{name}" for name in LIBRARIES]
    subprocess.run(
        ["make", "-s", "-C", str(BUILD.parent), f"PYTHON={sys.executable}", *goals], check=True, timeout=300
    )


@pytest.fixture
def ascend(tmp_path: Path) -> Iterator[AscendNode]:
    """Two 910B3."""
    node = AscendNode(tmp_path, cards=2, chip="910B3")
    yield node
    node.close()


@pytest.fixture
def hygon(tmp_path: Path) -> Iterator[HygonNode]:
    """Two K100_AI, whose nodes have the numbers behind another vendor's."""
    node = HygonNode(tmp_path, cards=2, numbers={0: 1, 1: 2})
    yield node
    node.close()
