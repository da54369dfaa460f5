"""Kernels that wait for each other, as collectives do: ranks in processes, on cards and in pods of their own.

A library that holds one rank back for good while another's kernel spins would stop them all. Nobody is judged
by the clock: all of them have to come to their end.
"""

from collections.abc import Sequence

import pytest
from children import rest_of
from unit.native.time_worlds import BUILD, FREE, HARD, HIGH, LOW, SOFT, UNSET, Box, Machine

pytestmark = pytest.mark.calm

MEET = BUILD / "programs" / "meet"
ROUNDS = 40
KERNEL_NS = 100_000
UNTIL_S = 120.0
FOR_LONG_S = 300
SHARES = [(UNSET, HARD, 30), (UNSET, SOFT, 50), (LOW, FREE, 100), (LOW, HARD, 40)]


def _all_meet(machine: Machine, ranks: Sequence[tuple[str, int]]) -> None:
    """One process a rank: (its container, the card among all). Each says how many rounds it did."""
    words = ("--rounds", ROUNDS, "--parties", len(ranks), "--key", 7, "--ns", KERNEL_NS)
    programs = [machine.start(box, *words, program=MEET, FAKE_CUDA_VISIBLE=str(card)) for box, card in ranks]
    for one in programs:
        code, out, errors = rest_of(one.process, UNTIL_S)
        assert (code, out.strip()) == (0, f"done {ROUNDS}"), errors


def _serving(machine: Machine, card: int) -> None:
    """High-priority inference on that card, at half load, until the test ends."""
    machine.start("high", "serve", FOR_LONG_S, 50, FAKE_CUDA_VISIBLE=str(card)).begin()


@pytest.mark.parametrize(("share_class", "policy", "cores"), SHARES)
def test_processes_of_a_container_on_one_card(
    machine: Machine, share_class: int, policy: int, cores: int
) -> None:
    machine.add(Box("a", policy, cores, share_class=share_class), Box("high", share_class=HIGH))
    _serving(machine, 0)
    _all_meet(machine, [("a", 0)] * 3)


@pytest.mark.parametrize(("share_class", "policy", "cores"), SHARES)
def test_ranks_of_a_pod_on_two_cards(machine: Machine, share_class: int, policy: int, cores: int) -> None:
    """High is on one of them: the hold is for both."""
    machine.add(
        Box("a", policy, cores, share_class=share_class, cards=(0, 1)),
        Box("high", share_class=HIGH, cards=(1,)),
    )
    _serving(machine, 1)
    _all_meet(machine, [("a", 0), ("a", 1)])


@pytest.mark.parametrize(("share_class", "policy", "cores"), SHARES)
def test_ranks_in_two_pods(machine: Machine, share_class: int, policy: int, cores: int) -> None:
    """Nobody tells the one on the quiet card that the other is held: its kernel spins until then."""
    machine.add(
        Box("a", policy, cores, share_class=share_class, cards=(0,)),
        Box("b", policy, cores, share_class=share_class, cards=(1,)),
        Box("high", share_class=HIGH, cards=(1,)),
    )
    _serving(machine, 1)
    _all_meet(machine, [("a", 0), ("b", 1)])


@pytest.mark.parametrize("mode", ["fifo", "slices"])
def test_two_pairs_on_two_cards(machine: Machine, mode: str) -> None:
    """Ranks of two gangs take turns on each card, each waiting for its own peer on the other card."""
    machine.mode = mode
    ranks = (("a", 0, 7), ("b", 1, 7), ("c", 0, 9), ("d", 1, 9))
    machine.add(*(Box(box, HARD, 45, cards=(card,)) for box, card, _ in ranks))
    words = ("--rounds", ROUNDS, "--parties", 2, "--ns", KERNEL_NS, "--key")
    programs = [
        machine.start(box, *words, key, program=MEET, FAKE_CUDA_VISIBLE=str(card)) for box, card, key in ranks
    ]
    for one in programs:
        code, out, errors = rest_of(one.process, UNTIL_S)
        assert (code, out.strip()) == (0, f"done {ROUNDS}"), errors
