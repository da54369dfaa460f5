"""Pauses after moves that were given up."""

import pytest
from vc_egpu.core.model.cluster import Move
from vc_egpu.core.moving import pauses


def test_the_pause_doubles_up_to_an_hour() -> None:
    assert [pauses.pause_s(count) for count in (0, 1, 2, 3, 7, 99)] == [0, 60, 120, 240, 3600, 3600]


@pytest.mark.parametrize(("now", "rests"), [(1000.0, True), (1119.0, True), (1120.0, False), (100.0, False)])
def test_a_gang_rests_after_the_second_move_that_was_given_up(now: float, *, rests: bool) -> None:
    stays = Move(900.0, whom="ns/large").give_up(940.0).give_up(1000.0)
    assert pauses.rests(stays, now) is rests, "an instant far in the future is of a wrong clock"


def test_what_was_given_up_long_ago_counts_no_more() -> None:
    stays = Move(0.0).give_up(0.0)
    assert pauses.given_up(stays, 7199.0) == 1
    assert pauses.given_up(stays, 7200.0) == 0


def test_a_move_that_was_made_makes_no_pause() -> None:
    assert not pauses.rests(None, 10.0)
    assert not pauses.rests(Move(5.0, whom="ns/large"), 10.0)
