"""The soak of the decision: it lives, breaks no invariant, and equal seeds give equal lives."""

import soak_sim
from bench import long_life


def live(
    decisions: int, moves_per_hour: int = 0, any_of: float = 0.0, *, emptying: bool = False
) -> soak_sim.Soak:
    soak = soak_sim.Soak(4, seed=3, moves_per_hour=moves_per_hour, any_of=any_of, emptying=emptying)
    soak.begin()
    while soak.tally.decisions < decisions:
        soak.world.engine.step()
    return soak


def test_a_short_life_breaks_nothing_and_is_repeated() -> None:
    one, other = live(120), live(120)
    assert not one.tally.violations
    assert one.born > 10
    assert one.tally.wait_ratios
    assert (one.world.now, one.tally) == (other.world.now, other.tally)
    one.world.check()


def test_a_short_life_with_moves_breaks_nothing() -> None:
    soak = live(120, moves_per_hour=100)
    assert not soak.tally.violations
    assert soak.tally.moves["left"] >= soak.tally.moves["arrived"]
    soak.world.check()


def test_a_short_life_with_two_models_breaks_nothing() -> None:
    soak = live(120, moves_per_hour=100, any_of=0.7)
    assert not soak.tally.violations
    assert set(soak.tally.choices) == {"h20", "l20"}
    soak.world.check()


def test_a_short_life_in_which_nodes_are_emptied_breaks_nothing() -> None:
    soak = live(300, moves_per_hour=100, emptying=True)
    assert not soak.tally.violations
    soak.world.check()


def test_jains_index() -> None:
    assert long_life.jain([2.0, 2.0, 2.0]) == 1.0
    assert long_life.jain([3.0, 0.0, 0.0]) == 1.0 / 3.0
    assert long_life.jain([0.0, 0.0]) == 1.0
