"""Pages are made between decisions."""

import threading

import pytest
from vc_egpu.admission.decision import Precedence
from vc_egpu.admission.serving.following import Rest


def test_a_page_waits_while_a_decision_is_made() -> None:
    precedence, rest, went_on = Precedence(most_wait_s=60), Rest(), threading.Event()
    rest.precedence = precedence
    page = threading.Thread(target=lambda: (rest(), went_on.set()))
    with precedence.taken():
        page.start()
        assert not went_on.wait(0.05)
    assert went_on.wait(30)
    page.join()


def test_a_decision_that_fails_or_lasts_holds_up_no_page() -> None:
    precedence = Precedence(most_wait_s=0.001)
    with pytest.raises(ZeroDivisionError), precedence.taken():
        precedence.give_way()
        raise ZeroDivisionError
    Precedence(most_wait_s=3600).give_way()
    precedence.give_way()
