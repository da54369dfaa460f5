"""A cluster that would fill the disk is not started, and says what it wants."""

from __future__ import annotations

from pathlib import Path

import pytest
from localcluster import room
from localcluster.errors import LocalClusterError

PLACE = Path("/state")


def test_every_real_node_wants_its_room() -> None:
    assert room.shortage(1700, 2, PLACE) is None
    said = room.shortage(1699, 2, PLACE)
    assert said is not None
    assert "/state has 1699 MiB left, and 2 real nodes want 1700" in said
    assert room.shortage(1699, 1, PLACE) is None


def test_a_build_from_nothing_is_told_how_much_it_wants() -> None:
    """Not refused: what it fetches and compiles may be there from other work."""
    assert room.build_shortage(8000, PLACE) is None
    said = room.build_shortage(7999, PLACE)
    assert said is not None
    assert "/state has 7999 MiB left, and a build from nothing wants 8000" in said


def test_the_disk_is_asked_before_its_folder_is_there(tmp_path: Path) -> None:
    room.ensure(0, tmp_path / "not" / "yet")
    with pytest.raises(LocalClusterError, match="VC_EGPU_STATE"):
        room.ensure(1 << 40, tmp_path / "not" / "yet")
