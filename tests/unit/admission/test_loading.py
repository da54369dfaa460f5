"""How long the first lists of a leadership are waited for."""

import math
from collections.abc import Iterable

import pytest
from vc_egpu.admission.intake.loading import SILENCE_S, NotSyncedError, wait_for


class Slow:
    """Lists of which a page arrives at each of these moments; they are complete with the last one."""

    def __init__(self, pages_at: Iterable[float]) -> None:
        self.now = 1000.0
        self._pages_at = [1000.0 + at for at in pages_at]

    def clock(self) -> float:
        return self.now

    def missing(self) -> list[str]:
        return ["pods"] if self.now < self._pages_at[-1] else []

    def silent_s(self) -> float:
        return min((self.now - at for at in self._pages_at if at <= self.now), default=math.inf)

    def wait(self, timeout_s: float) -> None:
        self.now += 10.0


def test_a_list_of_many_pages_is_waited_for_to_its_end() -> None:
    heard: list[float] = []
    slow = Slow(range(60, 1000, 60))
    wait_for(slow, lambda: False, heard.append, slow.clock)
    assert not slow.missing()
    assert all(slow.now - at < SILENCE_S for at in heard[-1:])  # the probe sees that it is alive


@pytest.mark.parametrize("pages", [(10_000,), (60, 120, 10_000)])
def test_a_list_of_which_nothing_comes_any_more_is_given_up(pages: tuple[float, ...]) -> None:
    slow = Slow(pages)
    with pytest.raises(NotSyncedError, match="nothing of the list of pods in 120 s"):
        wait_for(slow, lambda: False, lambda _: None, slow.clock)
    assert slow.now < 1000 + max((0.0, *pages[:-1])) + SILENCE_S + 20


def test_nobody_waits_under_a_lease_that_is_lost() -> None:
    slow = Slow([1000])
    wait_for(slow, lambda: slow.now > 1100, lambda _: None, slow.clock)
    assert slow.missing()
