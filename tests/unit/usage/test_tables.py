"""Windows, names of services, minutes, prices and flags: the pure parts."""

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from vc_egpu.usage.flags import parser
from vc_egpu.usage.reports.prices import Prices, PricesError, parse, read
from vc_egpu.usage.sources.minutes import MinuteSeries, counter_hours, gauge_hours, series_of
from vc_egpu.usage.table.columns import QUEUE, USAGE
from vc_egpu.usage.table.series import SERIES
from vc_egpu.usage.table.services import kind_of, service_of
from vc_egpu.usage.table.window import Window, WindowError, calendar, index_of, moment_of, window_of

NOW = datetime(2026, 11, 27, 12, 3, tzinfo=UTC)
UID = "0a1b2c3d-1111-2222-3333-444455556666"


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("since", "until", "first", "last"),
    [
        ("8d", "", "2026-11-19T11:00", "2026-11-27T11:00"),  # the last hour ended three minutes ago only
        ("36h", "", "2026-11-25T23:00", "2026-11-27T11:00"),
        ("2w", "2026-11-20", "2026-11-06T00:00", "2026-11-20T00:00"),
        ("2026-11-01", "2026-11-02T05:30", "2026-11-01T00:00", "2026-11-02T05:00"),
        ("2026-11-26T08:00+08:00", "", "2026-11-26T00:00", "2026-11-27T11:00"),
        ("1h", "2030-01-01", "2026-11-27T10:00", "2026-11-27T11:00"),
    ],
)
def test_windows_are_whole_hours_that_are_over(since: str, until: str, first: str, last: str) -> None:
    window = window_of(since, until, NOW)
    assert (f"{window.since:%Y-%m-%dT%H:%M}", f"{window.until:%Y-%m-%dT%H:%M}") == (first, last)


@pytest.mark.parametrize(
    "since", ["", "d", "x", "-3d", "1.5d", "0h", "2027-01-01", "401d", "9" * 30 + "d", "٣d"]
)
def test_windows_that_are_none_are_refused(since: str) -> None:
    with pytest.raises(WindowError):
        window_of(since, "", NOW)


def test_an_hour_is_local_where_people_are_and_each_counts_when_clocks_change() -> None:
    berlin = Window(datetime(2026, 10, 24, 23, tzinfo=UTC), datetime(2026, 10, 25, 3, tzinfo=UTC))
    assert [hour.local_hour for hour in calendar(berlin, ZoneInfo("Europe/Berlin"))] == [1, 2, 2, 3]
    india = Window(datetime(2026, 11, 1, 20, tzinfo=UTC), datetime(2026, 11, 1, 21, tzinfo=UTC))
    (hour,) = calendar(india, ZoneInfo("Asia/Kolkata"))
    assert (hour.local_hour, hour.local_weekday, hour.utc_day) == (1, 1, "2026-11-01")


def test_hours_count_from_1970() -> None:
    assert moment_of(index_of(NOW)) == NOW.replace(minute=0)


# --- services -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gang", "pod", "service", "kind"),
    [
        (f"train-{UID}", "train-worker-0", "train", "Job"),
        (f"team/train-{UID}", "train-worker-0", "train", "Job"),
        (f"podgroup-{UID}", "chat-7d9f8b6c5b-x2x4z", "chat", "Deployment"),
        (f"podgroup-{UID}", "chat-v2-7d9f8b6c5b-x2x4z", "chat-v2", "Deployment"),
        (f"podgroup-{UID}", "db-0", "db", "StatefulSet"),
        (f"podgroup-{UID}", "nightly-29384756-x2x4z", "nightly", "Pod"),
        (f"podgroup-{UID}", "alone", "alone", "Pod"),
        ("", "db-11", "db", "StatefulSet"),
        ("nightly-29384756", "nightly-29384756-x2x4z", "nightly", "Job"),
        ("epoch-12", "epoch-12-w-0", "epoch-12", "Job"),
        ("20261126", "x", "20261126", "Job"),
    ],
)
def test_services_keep_their_names(gang: str, pod: str, service: str, kind: str) -> None:
    assert (service_of(gang, pod), kind_of(gang, pod)) == (service, kind)


# --- minutes --------------------------------------------------------------------------------------


def minutes(*pairs: tuple[int, float]) -> MinuteSeries:
    return MinuteSeries(
        {}, np.array([m for m, _ in pairs], dtype=np.int64), np.array([v for _, v in pairs], dtype=float)
    )


def test_a_gauge_has_its_highest_its_mean_and_its_minutes() -> None:
    found = gauge_hours(minutes((0, 1.0), (59, 3.0), (60, 7.0)))
    assert (found[0].highest, found[0].mean, found[0].minutes) == (3.0, 2.0, 2)
    assert (found[1].highest, found[1].minutes) == (7.0, 1)


def test_a_counter_grows_across_the_hour_and_over_a_short_gap() -> None:
    found = counter_hours(minutes((58, 10.0), (59, 40.0), (62, 220.0)))
    assert (found[0].growth, found[1].growth) == (30.0, 180.0)
    assert (found[0].highest_rate, found[1].highest_rate) == (0.5, 1.0)


def test_a_counter_that_fell_began_again() -> None:
    assert counter_hours(minutes((0, 100.0), (1, 130.0), (2, 20.0), (3, 50.0)))[0].growth == 80.0


def test_growth_over_a_long_gap_is_counted_nowhere() -> None:
    assert counter_hours(minutes((0, 0.0), (6, 360.0), (7, 420.0)))[0].growth == 60.0


def test_numbers_that_are_none_are_left_out() -> None:
    ends = [(60 * (n + 1), text) for n, text in enumerate(["1", "NaN", "+Inf", "-Inf", "1e3"])]
    found = series_of({}, ends)
    assert found.values.tolist() == [1.0, 1000.0]
    assert found.minutes.tolist() == [0, 4]


def test_nothing_is_no_hour() -> None:
    assert gauge_hours(minutes()) == {}
    assert counter_hours(minutes()) == {}


# --- columns, prices, flags -----------------------------------------------------------------------


def test_keys_are_columns_and_each_question_is_asked_once() -> None:
    for shape in (USAGE, QUEUE):
        assert set(shape.key) <= set(shape.names())
        assert len(set(shape.names())) == len(shape.names())
    assert len({series.per_minute() for series in SERIES}) == len(SERIES)


def test_prices_are_found_by_node_model_and_kind() -> None:
    document = {
        "currency": "EUR",
        "models": {"h20": {"on_demand": 3, "spot": 1, "rates": {"low": 0.2}}, "l4": {"reserved": 0.5}},
        "nodes": {"spot-*": "spot", "*": "reserved"},
        "rates": {"low": 0.5, "suspended": 0.1},
    }
    prices = parse(document)
    assert (prices.billing("spot-7"), prices.billing("x")) == ("spot", "reserved")
    rows = {(row["model"], row["billing"], row["category"]): row for row in prices.rows(["h20", "l4", "t4"])}
    assert rows["h20", "spot", "low"] == {
        "model": "h20", "billing": "spot", "category": "low", "list_price": 3.0, "contracted_price": 1.0,
        "rate": 0.2, "suspended_rate": 0.1,
    }  # fmt: skip
    assert rows["h20", "reserved", "shared"]["contracted_price"] == 3.0, (
        "on demand where nothing else is named"
    )
    assert rows["l4", "reserved", "low"]["list_price"] == 0.5
    assert rows["t4", "spot", "idle"]["list_price"] == 0.0


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([], "the file"),
        ({"model": {}}, "'model'"),
        ({"models": {"h20": {"spott": 1}}}, "'spott'"),
        ({"models": {"h20": {"spot": "1"}}}, "models.h20.spot"),
        ({"models": {"h20": {"spot": -1}}}, "models.h20.spot"),
        ({"models": {"h20": {"spot": math.nan}}}, "models.h20.spot"),
        ({"models": {"h20": {"spot": True}}}, "models.h20.spot"),
        ({"models": {7: {}}}, "models"),
        ({"nodes": {"*": "free"}}, "nodes.*"),
        ({"rates": {"high": 1}}, "'high'"),
        ({"currency": "euro"}, "currency"),
    ],
)
def test_a_fault_in_prices_is_told_with_its_place(document: object, place: str) -> None:
    with pytest.raises(PricesError, match=place.replace("*", r"\*")):
        parse(document)


def test_a_file_of_prices_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("models: {")
    for name in ("bad.yaml", "not there"):
        with pytest.raises(PricesError, match=name):
            read(tmp_path / name)


def test_without_prices_nothing_costs() -> None:
    assert {row["list_price"] for row in Prices().rows(["h20"])} == {0.0}


def test_flags_say_where_rows_come_from() -> None:
    for argv in ([], ["--folder", "x", "--prometheus", "y"], ["--folder", "x", "--host-memory-gib", "nan"]):
        with pytest.raises(SystemExit) as ended:
            parser().parse_args(argv)
        assert ended.value.code == 2


def test_a_window_has_its_hours() -> None:
    assert len(list(Window(NOW.replace(minute=0) - timedelta(hours=5), NOW.replace(minute=0)).starts())) == 5
