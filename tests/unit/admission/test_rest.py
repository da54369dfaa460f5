"""Pages are made while the loop rests, or little by little."""

import threading

from vc_egpu.admission.serving.following import MOST_WAIT_S, Rest


def test_a_piece_of_a_page_waits_for_the_loop() -> None:
    resting, went_on = threading.Event(), threading.Event()
    rest = Rest(lambda _timeout_s: resting.wait(60))

    def make_page() -> None:
        rest()
        went_on.set()

    page = threading.Thread(target=make_page)
    page.start()
    assert not went_on.wait(0.05)
    resting.set()
    assert went_on.wait(30)
    page.join()


def test_it_waits_for_no_longer_than_its_bound() -> None:
    asked: list[float] = []

    def never(timeout_s: float) -> bool:
        asked.append(timeout_s)
        return False

    Rest(never)()
    assert asked == [MOST_WAIT_S]
