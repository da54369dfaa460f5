"""Which slice this run is, and which of the collected stories it keeps: the pytest side of the slices."""

import subprocess
from pathlib import Path
from typing import Final

import pytest

from slices.durations import Durations
from slices.plan import SLICES, divide

ROOT: Final = Path(__file__).parents[2]
UNKNOWN_S: Final = 60.0
"""What a new story is taken to need until ``make test-long`` has measured it; a long one waits for that."""


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def slice_of_this_commit() -> int:
    """The slice of this commit: from the number of commits, or in a shallow clone from the commit's id."""
    if _git("rev-parse", "--is-shallow-repository") == "false":
        return int(_git("rev-list", "--count", "HEAD") or 0) % SLICES
    return int((_git("rev-parse", "HEAD") or "0")[:8], 16) % SLICES


def slice_of(config: pytest.Config) -> int | None:
    """The slice that ``--slice`` names; None where all stories are to run. Raises ``pytest.UsageError``."""
    wanted = config.getoption("slice")
    if wanted is None:
        return None
    if wanted == "commit":
        return slice_of_this_commit()
    if not wanted.isdecimal() or int(wanted) >= SLICES:
        raise pytest.UsageError(
            f"--slice: {wanted!r} is neither 'commit' nor a number from 0 to {SLICES - 1}"
        )
    return int(wanted)


def header(config: pytest.Config) -> str | None:
    """Which slice runs, and how to run it again."""
    number = slice_of(config)
    if number is None:
        return None
    return f"slice {number} of {SLICES} of the longer stories (again: make test-slice SLICE={number})"


def keep(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave only the stories of the slice among the collected ones."""
    number = slice_of(config)
    if number is None:
        return
    measured = Durations.read()
    here = Durations({}, measured.shared_s, measured.uses)
    for item in items:
        known_s = measured.own_s.get(item.nodeid)
        if known_s is not None or item.get_closest_marker("long") is None:
            here.own_s[item.nodeid] = UNKNOWN_S if known_s is None else known_s
    kept = set(divide(here).stories(number))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]
