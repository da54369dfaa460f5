"""What the demo says about a card is what the log says."""

from pathlib import Path

import pytest
from demo.curves import MS, OneCard, Phase, Request, S, held, over, requests_of, shares, sparkline
from demo.picture import draw
from fakes.cuda_log import KERNEL, LAST, Stretch, Unit


def stretch(start_ms: float, end_ms: float, enqueued_ms: float | None = None, seq: int = 0) -> Stretch:
    enqueued_ns = int((start_ms if enqueued_ms is None else enqueued_ms) * MS)
    times = (enqueued_ns, int(start_ms * MS), int(end_ms * MS))
    return Stretch(seq, *times, 1, 1, "a", 1, 1, 0, KERNEL, LAST)


def unit(seq: int, enqueued_ms: float, start_ms: float, end_ms: float) -> Unit:
    times = (int(enqueued_ms * MS), int(start_ms * MS), int(end_ms * MS))
    return Unit(seq, *times, times[2] - times[1], "a", 1, 1, 1, 0, KERNEL, True)


def test_a_stretch_counts_in_each_bucket_that_it_reaches_into() -> None:
    found = shares([stretch(0, 5), stretch(5, 15), stretch(28, 29)], 0, 30 * MS, 3)
    assert found == pytest.approx([1.0, 0.5, 0.1])


def test_stretches_before_the_window_do_not_count() -> None:
    assert shares([stretch(0, 12)], 10 * MS, 20 * MS, 1) == pytest.approx([0.2])


def test_requests_are_told_apart_by_their_kernels_however_close_they_are() -> None:
    warm_up = unit(1, 0, 0, 0.1)
    first = [unit(2 + i, 10, 11 + i, 12 + i) for i in range(3)]
    second = [unit(5 + i, 14, 14 + i, 15 + i) for i in range(3)]
    cut_off = [unit(8, 20, 20, 21)]
    # A kernel that was handed over later may begin sooner, on another stream.
    found = requests_of([*cut_off, *second, *first, warm_up], 3)
    assert found == [
        Request(10 * MS, 11 * MS, 14 * MS, 10 * MS),
        Request(14 * MS, 14 * MS, 17 * MS, 14 * MS),
    ]
    assert found[0].wait_ns == 1 * MS
    assert found[0].at_once
    assert not Request(10 * MS, 11 * MS, 14 * MS, 12 * MS).at_once


def test_training_is_held_if_it_launches_nothing_during_a_request() -> None:
    request = Request(10 * MS, 11 * MS, 15 * MS)
    assert held([stretch(9, 11), stretch(15, 17)], [request]) == 1
    assert held([stretch(9, 11), stretch(13, 15)], [request]) == 0
    # The rest of a kernel that the card had already is the card's doing.
    assert held([stretch(9, 11), stretch(12, 13, enqueued_ms=9)], [request]) == 1


@pytest.mark.parametrize(
    ("height", "rows"),
    [(1, [" ▄█"]), (2, ["  █", " ██"])],
)
def test_a_sparkline_fills_its_columns_from_below(height: int, rows: list[str]) -> None:
    assert sparkline([0, 0.5, 1], height) == rows


def test_values_out_of_range_stay_in_their_column() -> None:
    assert sparkline([-1, 2]) == [" █"]


def test_phases_are_named_above_their_columns_and_never_run_into_each_other() -> None:
    phases = [Phase("alone", 0, 10), Phase("a very long name", 10, 16), Phase("b", 16, 20)]
    line = over(phases, 20)
    assert line == "│alone    │a ver│b"


def test_the_picture_is_drawn_also_of_a_single_request(tmp_path: Path) -> None:
    training = [stretch(at, at + 2) for at in range(0, 1000, 2)]
    phases = [Phase("alone", 0, S // 2), Phase("beside", S // 2, S)]
    request = Request(500 * MS, 501 * MS, 505 * MS)
    seen = OneCard("GPU-1", training, [stretch(501, 505)], [request], phases, 0.6)
    draw(seen, 2.0, tmp_path / "new" / "card.png")
    assert (tmp_path / "new" / "card.png").read_bytes().startswith(b"\x89PNG")
