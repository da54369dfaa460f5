"""Full passes of the garbage collector happen where nobody waits."""

import gc
from collections.abc import Iterator

import pytest
from vc_egpu.admission.garbage_collector import FULL_S, TIDY_S, Collector


@pytest.fixture
def collector() -> Iterator[Collector]:
    found = Collector()
    yield found
    found.end()
    assert gc.get_freeze_count() == 0


@pytest.fixture
def full_passes() -> Iterator[list[int]]:
    """How many full passes there were: one entry each."""
    passes: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            passes.append(1)

    gc.callbacks.append(note)
    yield passes
    gc.callbacks.remove(note)


def busy(count: int = 300_000) -> list[list[int]]:
    """What a storm of events does to the heap."""
    return [[i] for i in range(count)]


def test_no_full_pass_falls_into_a_storm(collector: Collector, full_passes: list[int]) -> None:
    gc.collect()
    full_passes.clear()
    kept = busy()
    assert full_passes, "without the collector's help there are some"
    collector.begin()
    collector.loaded(0.0)
    full_passes.clear()
    more = busy(600_000)
    assert not full_passes
    assert len(kept) < len(more)


def test_no_pass_of_any_kind_falls_into_a_decision(collector: Collector) -> None:
    passes: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            passes.append(info["generation"])

    collector.begin()
    collector.loaded(0.0)
    gc.callbacks.append(note)
    try:
        with collector.held_off():
            kept = busy(100_000)
            assert not passes
        more = busy(100)
        assert passes == [0], "the first look comes right after it"
    finally:
        gc.callbacks.remove(note)
    with pytest.raises(ValueError, match="a decision"), collector.held_off():
        raise ValueError("a decision that fails")
    assert gc.isenabled()
    assert len(kept) > len(more)


def test_what_was_loaded_is_out_of_sight_and_what_came_later_after_the_next_quiet_moment(
    collector: Collector,
) -> None:
    collector.begin()
    kept = busy()
    collector.loaded(0.0)
    assert gc.get_freeze_count() >= len(kept)
    assert len(gc.get_objects()) < len(kept)
    more = busy()
    collector.quiet(TIDY_S - 1)
    assert len(gc.get_objects()) >= len(more)
    collector.quiet(TIDY_S)
    assert len(gc.get_objects()) < len(more)


def test_cycles_are_found_sooner_or_later(collector: Collector) -> None:
    class Ring:
        def __init__(self) -> None:
            self.me = self

    def rings() -> int:
        return sum(isinstance(found, Ring) for found in gc.get_objects())

    collector.begin()
    ring = Ring()
    collector.loaded(0.0)
    Ring()
    collector.quiet(TIDY_S)
    assert rings() == 0
    del ring  # it was put out of sight: found by the pass that looks at everything
    collector.quiet(2 * TIDY_S)
    collector.quiet(FULL_S)
    gc.unfreeze()
    assert rings() == 0


def test_the_end_of_a_leadership_leaves_nothing_behind() -> None:
    before = gc.get_threshold()
    collector = Collector()
    collector.begin()
    collector.loaded(0.0)
    assert gc.get_freeze_count() > 0
    collector.end()
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before
    collector.end()  # twice, or without a beginning: nothing happens
    assert gc.get_threshold() == before
