"""Options that several suites share."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    long = os.environ.get("VC_EGPU_LONG") == "1"
    parser.addoption(
        "--oracle-cases",
        type=int,
        default=10_000 if long else 500,
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
