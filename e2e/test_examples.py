"""The examples of manifests/examples, step by step, exactly as their READMEs tell users to run them."""

from collections.abc import Iterator

import pytest
from rigs.player import STORIES, Player, expectations
from stack.install import ISOLATED, Stack
from stack.shared import shared_stack

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def isolated(worker_id: str) -> Iterator[Stack]:
    """The stack with the isolation library and a driver in containers, as ``make demo KEEP=1`` leaves it."""
    with shared_stack("examples", worker_id, ISOLATED) as stack:
        yield stack


@pytest.fixture
def player(request: pytest.FixtureRequest, isolated: Stack) -> Iterator[Player]:
    story = str(request.param)
    one = Player(isolated, story, expectations(story))
    try:
        yield one
    finally:
        one.clean()


@pytest.mark.parametrize("player", STORIES, indirect=True)
def test_example(player: Player) -> None:
    player.play()
