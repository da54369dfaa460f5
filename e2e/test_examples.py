"""The examples of manifests/examples, step by step, exactly as their READMEs tell users to run them."""

from collections.abc import Iterator

import pytest
from rigs.player import STORIES, Player, expectations
from stack.install import ISOLATED, Stack
from stack.shared import shared_stack

pytestmark = pytest.mark.cluster
EXPECTED = {story: expectations(story) for story in STORIES}
ON_THE_LIBRARY = [story for story in STORIES if EXPECTED[story].get("isolation")]


@pytest.fixture(scope="module")
def isolated(worker_id: str) -> Iterator[Stack]:
    """The stack with the isolation library and a driver in containers, as ``make demo KEEP=1`` leaves it."""
    with shared_stack("examples", worker_id, ISOLATED) as stack:
        yield stack


def play(stack: Stack, story: str) -> None:
    player = Player(stack, story, EXPECTED[story])
    try:
        player.play()
    finally:
        player.clean()


@pytest.mark.parametrize("story", [story for story in STORIES if story not in ON_THE_LIBRARY])
def test_example(stack: Stack, story: str) -> None:
    play(stack, story)


@pytest.mark.parametrize("story", ON_THE_LIBRARY)
def test_example_on_the_library(isolated: Stack, story: str) -> None:
    play(isolated, story)
