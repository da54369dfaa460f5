"""Run by `make test-gpu` alone: what is measured here would be disturbed by other tests beside it."""

import os
from collections.abc import Iterator

import pytest
from gpu.standalone import Node, why_not


@pytest.fixture(scope="session")
def reachable() -> None:
    """Skips where nothing can be measured, and says why."""
    if os.environ.get("VC_EGPU_GPU") != "1":
        pytest.skip("measured on a card that nobody else uses: run `make test-gpu`")
    if why := why_not():
        pytest.skip(why)


@pytest.fixture
def node(reachable: None) -> Iterator[Node]:
    """A card, and nobody on it yet."""
    made = Node()
    yield made
    made.close()
