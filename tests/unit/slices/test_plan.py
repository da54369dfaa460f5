"""Slices of the longer stories: ten in a row run everything that fits, and none takes longer than it may."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slices.durations import Durations
from slices.plan import LANE_S, SLICES, divide


def measured(files: list[tuple[float, list[float]]]) -> Durations:
    """Files with what their cluster takes to come up, and what each of their stories takes."""
    found = Durations()
    for number, (shared_s, stories) in enumerate(files):
        cluster = f"e2e/test_{number}.py::cluster"
        found.shared_s[cluster] = shared_s
        for place, own_s in enumerate(stories):
            story = f"e2e/test_{number}.py::test_{place}"
            found.own_s[story] = own_s
            found.uses[story] = [cluster]
    return found


SECONDS = st.floats(0, 300, allow_nan=False)


@given(st.lists(st.tuples(st.floats(0, 100), st.lists(SECONDS, min_size=1, max_size=12)), max_size=20))
def test_each_story_is_in_one_slice_or_reported(files: list[tuple[float, list[float]]]) -> None:
    durations = measured(files)
    division = divide(durations)
    there = [story for number in range(SLICES) for story in division.stories(number)]
    assert sorted([*there, *division.too_long]) == sorted(durations.own_s)
    assert all(lane.seconds(durations) <= LANE_S for lanes in division.slices for lane in lanes)


def test_what_fits_is_left_out_of_no_slice() -> None:
    durations = measured([(30, [20, 20, 20])] * 18)
    division = divide(durations)
    assert division.too_long == ()
    assert all(division.stories(number) for number in range(SLICES))


def test_stories_that_share_a_cluster_stay_together() -> None:
    division = divide(measured([(60, [10, 10, 10]), (60, [10])]))
    homes = [
        {story.partition("::")[0] for story in lane.stories} for lanes in division.slices for lane in lanes
    ]
    assert sorted(map(sorted, filter(None, homes))) == [["e2e/test_0.py"], ["e2e/test_1.py"]]


def test_a_file_that_is_too_long_is_cut_into_parts() -> None:
    division = divide(measured([(100, [100, 100, 100])]))
    assert sorted(len(division.stories(number)) for number in range(SLICES)) == [0] * 7 + [1] * 3
    assert division.too_long == ()


def test_a_story_that_is_too_long_is_reported() -> None:
    division = divide(measured([(100, [141, 10])]))
    assert division.too_long == ("e2e/test_0.py::test_0",)


def test_equal_durations_give_equal_slices() -> None:
    files: list[tuple[float, list[float]]] = [(30, [20, 50]), (10, [20] * 5), (60, [70])]
    assert divide(measured(files)) == divide(measured(files))


def test_durations_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "durations.json"
    before = measured([(30, [20, 50]), (0.2, [7])])
    before.write(path)
    after = Durations.read(path)
    assert after.own_s == before.own_s
    assert after.shared_s == {"e2e/test_0.py::cluster": 30}, "what takes a moment is not worth a row"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stories": {"a": 1}, "shared_s": {}}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "durations.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"durations|Expecting"):
        Durations.read(path)
