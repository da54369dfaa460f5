"""Options that several suites share."""

import os

import pytest
from hypothesis import HealthCheck, settings

LONG = os.environ.get("VC_EGPU_LONG") == "1"
# How long an example takes says something of the machine alone; the quick tests try the same ones each time.
settings.register_profile(
    "here", deadline=None, derandomize=not LONG, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("here")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--oracle-cases",
        type=int,
        default=10_000 if LONG else 500,
        help="clusters on which the core is compared with brute force (10,000 with VC_EGPU_LONG=1)",
    )
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the scenarios show now into their files; look at the diff before you commit it",
    )


@pytest.fixture(scope="session")
def oracle_cases(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--oracle-cases"))


@pytest.fixture(scope="session")
def rewrite(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--rewrite"))
