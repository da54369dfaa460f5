"""When the controller writes and when it rests, as the lease goes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.jobs.running import running
from vc_egpu.jobs.controller import Controller
from vc_egpu.jobs.main import follow


class Noted(Controller):
    """Remembers when it was told what."""

    said: tuple[str, ...] = ()

    def lead(self) -> None:
        self.said += ("lead",)
        super().lead()

    def rest(self) -> None:
        self.said += ("rest",)
        super().rest()


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Noted]:
    with running(Noted, tmp_path) as found:
        yield found


def listed(controller: Noted) -> Noted:
    controller.start()
    assert controller.wait_synced(60)
    return controller


def test_nobody_leads_before_all_is_listed(controller: Noted) -> None:
    assert follow(controller, 5, None) is None
    assert follow(listed(controller), 5, None) == 5
    assert controller.said == ("lead",)


def test_a_leadership_is_begun_once_and_ended_once(controller: Noted) -> None:
    led = None
    for epoch in (None, 5, 5, None, None):
        led = follow(listed(controller) if epoch and led is None else controller, epoch, led)
    assert controller.said == ("lead", "rest")
    assert not controller.leading


def test_a_leadership_that_follows_at_once_is_another_one(controller: Noted) -> None:
    """The process was stopped for a minute: what it remembers was somebody else's business meanwhile."""
    led = follow(listed(controller), 5, None)
    assert follow(controller, 7, led) == 7
    assert controller.said == ("lead", "rest", "lead")
    assert controller.leading


def test_who_is_in_the_middle_of_a_look_ends_it_before_the_next_leadership_begins(
    controller: Noted,
) -> None:
    """What it saw is of before somebody else led; under the new epoch its writes would pass the fence."""
    looking, over = threading.Event(), threading.Event()

    def look() -> None:
        with controller.pulse.busy("job team/x"):
            looking.set()
            over.wait(60)

    led = follow(listed(controller), 5, None)
    worker = threading.Thread(target=look)
    worker.start()
    looking.wait(60)
    led = follow(controller, 7, led)
    assert (led, controller.leading) == (None, False)
    over.set()
    worker.join(60)
    assert follow(controller, 7, led) == 7
    assert controller.leading
