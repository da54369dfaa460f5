"""Options that several suites share."""

import os

import pytest
import seeds
from hypothesis import HealthCheck, settings

LONG = os.environ.get("VC_EGPU_LONG") == "1"
# How long an example takes says something of the machine alone. The seed of the run repeats every example, so
# no database of failed ones is kept.
settings.register_profile(
    "here", deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("here")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads its option
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seeds.RUN)


def pytest_report_header() -> str:
    return seeds.again()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Quiet runs have no header."""
    if exitstatus:
        terminalreporter.write_line(seeds.again())


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
