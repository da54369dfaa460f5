"""When what failed is tried again."""

import pytest
from vc_egpu.admission.execution.retries import FIRST_S, Retries
from vc_egpu.kube.wire.errors import BudgetExhausted, KubeError, TooManyRequests, Unavailable


@pytest.mark.parametrize("error", [TooManyRequests("x", retry_after_s=5), Unavailable("x", retry_after_s=5)])
def test_a_server_that_says_how_long_it_wants_is_given_that_time(error: KubeError) -> None:
    """Thousands of gangs that come back at once, several times a second, are what keeps it busy."""
    retries = Retries()
    assert retries.failed("g", error, 0.0) >= 5
    assert not retries.may_try("g", 4.9)


def test_what_a_budget_wants_is_not_for_the_gang_that_needs_the_room() -> None:
    """It looks for other victims."""
    retries = Retries()
    assert retries.failed("g", BudgetExhausted("x", retry_after_s=10), 0.0) <= FIRST_S
