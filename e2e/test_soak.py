"""Some minutes of random users and troubles: see :mod:`soak`. More of it, from any seed: ``make soak``."""

import random

import pytest
from soak import __main__ as soak
from soak.ground import Ground
from stack.install import Stack

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1500)]
LENGTH_S = 240.0


@pytest.mark.parametrize("seed", [1])
def test_it_comes_to_rest_after_every_round_and_nothing_is_left(stack: Stack, seed: int) -> None:
    soak.live(Ground(stack), random.Random(seed), LENGTH_S)
