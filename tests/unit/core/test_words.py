"""Times in sentences."""

import random
from datetime import UTC, datetime

import pytest
from vc_egpu.core.model.words import utc


@pytest.mark.parametrize("moment", [0.0, 951_782_400.5, 1_709_164_800.0, 4_102_444_799.0, 253_402_300_799.0])
def test_times_are_written_as_the_api_server_does(moment: float) -> None:
    assert utc(moment) == datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_any_time_of_this_century() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        test_times_are_written_as_the_api_server_does(rng.uniform(0, 4e9))


@pytest.mark.parametrize("moment", [-5.0, 1e15])
def test_what_is_no_time_stays_within_the_calendar(moment: float) -> None:
    assert len(utc(moment)) == len("1970-01-01T00:00:00Z")
