"""The machine whose cards containers share by time."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.native.time_worlds import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "m")
    yield made
    made.close()
