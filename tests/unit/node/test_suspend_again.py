"""A pod that leaves its cards more than once: nothing of an earlier time is left to it."""

from unit.node.suspend_stage import Stage
from vc_egpu_node.suspension.helper import Answer, HelperError
from vc_egpu_node.suspension.machine import ATTEMPTS, RETRY_S

LOST = HelperError("pod gone")


def test_tries_in_vain_do_not_count_against_the_next_order(stage: Stage) -> None:
    """Who is given up is ended, with all of its work."""
    stage.card.answers = [*[LOST] * (ATTEMPTS - 1), Answer(done=False, error="no", states={71: "locked"})]
    stage.order(1)
    for _ in range(ATTEMPTS):
        said = stage.look()
        stage.now_s += RETRY_S
    assert (said.state, said.reason) == ("running", "no")
    stage.card.answers = [LOST] * (ATTEMPTS - 1)
    stage.order(2)
    for _ in range(ATTEMPTS - 1):
        assert stage.look().state == "suspending"
        stage.now_s += RETRY_S
    assert stage.look().state == "suspended"


def test_nor_those_to_take_it_away_against_its_coming_back(stage: Stage) -> None:
    """An order is taken back after a minute in which nobody answered."""
    stage.card.answers = [LOST] * (ATTEMPTS - 1)
    stage.order(1)
    for _ in range(ATTEMPTS - 1):
        assert stage.look().state == "suspending"
        stage.now_s += RETRY_S
    stage.card.answers = [LOST] * (ATTEMPTS - 1)
    stage.order(None)
    for _ in range(ATTEMPTS - 1):
        assert stage.look().state == "resuming"
        stage.now_s += RETRY_S
    assert stage.look().state == "running"


def test_what_it_had_then_is_not_what_it_has_now(stage: Stage) -> None:
    """It would be told of, and be asked for as room to come back."""
    for number, mib in ((1, 6_000), (2, 2_000)):
        stage.card.mib = stage.card.free_mib = mib
        stage.order(number)
        assert stage.look().host_mib == mib
        stage.order(None)
        assert stage.look().state == "running"
    assert stage.look().host_mib == 8_000  # what it may have
