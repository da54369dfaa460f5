"""Virtual time: events happen in order, and the clock stands where the story left it."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.sim.engine import Engine


@given(st.lists(st.floats(0, 1e6, allow_nan=False), max_size=50))
def test_events_happen_in_order_of_time_then_of_making(moments: list[float]) -> None:
    engine, seen = Engine(), list[tuple[float, int]]()
    for number, moment in enumerate(moments):
        engine.at(moment, partial(seen.append, (moment, number)))
    engine.run()
    assert seen == sorted((moment, number) for number, moment in enumerate(moments))
    assert engine.now == max(moments, default=0.0)


def test_time_stands_where_it_was_let_run_to() -> None:
    engine, seen = Engine(), list[float]()
    for moment in (1.0, 2.0, 3.0):
        engine.at(moment, lambda: seen.append(engine.now))
    engine.run(until=2.0)
    assert (seen, engine.now, engine.next_at) == ([1.0, 2.0], 2.0, 3.0)
    engine.advance(0.5)
    assert (engine.now, engine.next_at) == (2.5, 3.0)
    assert engine.step()
    assert not engine.step()


def test_an_event_may_bring_others() -> None:
    engine, seen = Engine(), list[float]()

    def again() -> None:
        seen.append(engine.now)
        if engine.now < 3:
            engine.after(1, again)

    engine.after(1, again)
    engine.run()
    assert seen == [1, 2, 3]


def test_what_is_cancelled_does_not_happen() -> None:
    engine, seen = Engine(), list[str]()
    engine.at(1, lambda: seen.append("one")).cancel()
    engine.at(2, lambda: seen.append("two"))
    engine.run()
    assert seen == ["two"]


def test_time_does_not_go_back() -> None:
    engine = Engine(now=5)
    with pytest.raises(ValueError, match="has passed"):
        engine.at(4, lambda: None)
    with pytest.raises(ValueError, match="does not go back"):
        engine.advance(-1)
