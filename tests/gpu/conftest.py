"""Run by `make test-gpu` alone: what is measured here would be disturbed by other tests beside it."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from gpu.standalone import ON_FAKE, Node, machine, why_not

HERE: Final = Path(__file__).parent
BEGAN_S: Final = time.monotonic()
BUDGET_S: Final = float(os.environ.get("VC_EGPU_GPU_BUDGET_S") or ("inf" if ON_FAKE else "420"))
"""Of one command; no test begins later."""
TEST_S: Final = 300 if ON_FAKE else 120
"""A program that hangs costs so much, and its own test alone."""
LONG: Final = "test_random_programs_stay_within_their_cap"
WANTED: Final = os.environ.get("VC_EGPU_GPU") == "1"


def pytest_report_header() -> list[str]:
    """What all figures below are of."""
    return machine() if WANTED else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What tells least in the most time comes last."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S))
    items.sort(key=lambda item: HERE in item.path.parents and LONG in item.name)


@pytest.fixture(scope="session")
def reachable() -> None:
    """Skips where nothing can be measured, and says why."""
    if not WANTED:
        pytest.skip("measured on a card that nobody else uses: run `make test-gpu`")
    if why := why_not():
        pytest.skip(why)


@pytest.fixture
def node(reachable: None) -> Iterator[Node]:
    """A card, and nobody on it yet."""
    if time.monotonic() - BEGAN_S > BUDGET_S:
        pytest.skip(f"not tried: {BUDGET_S:.0f} s are over (VC_EGPU_GPU_BUDGET_S, or -k for this one alone)")
    made = Node()
    yield made
    made.close()
