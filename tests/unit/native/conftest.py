"""What several files about the C parts begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.native import fake_worlds, memory_worlds, time_worlds


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[fake_worlds.Machine]:
    """The fake driver alone: a card, and programs on it without the library."""
    made = fake_worlds.Machine(tmp_path)
    yield made
    made.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[time_worlds.Machine]:
    """The machine whose cards containers share by time."""
    made = time_worlds.Machine(tmp_path / "m")
    yield made
    made.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[memory_worlds.World]:
    """A container that has a part of one card's memory."""
    made = memory_worlds.World(tmp_path, [memory_worlds.Share(memory_worlds.UUIDS[0], memory_worlds.CAP)])
    yield made
    made.close()
