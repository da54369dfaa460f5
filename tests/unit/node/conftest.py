"""What several files about a node begin with."""

from pathlib import Path

import pytest
from unit.node.built import ELF
from unit.node.suspend_stage import Stage
from unit.node.wall_stage import Wall
from vc_egpu_node.library import LIBRARY_NAME


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A built library."""
    (tmp_path / "built").mkdir()
    path = tmp_path / "built" / LIBRARY_NAME
    path.write_bytes(ELF + b"one")
    return path


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    """A suspender that is turned by hand."""
    return Stage(tmp_path / "suspensions")


@pytest.fixture
def wall(tmp_path: Path) -> Wall:
    """A second wall that looks when it is told to."""
    return Wall(tmp_path)
