"""A leader that makes no progress says so at ``/healthz`` and is restarted: meanwhile another one leads."""

import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.jobs.running import Clock, running
from unit.kube.tiny_api import tiny_api
from vc_egpu.jobs import main
from vc_egpu.jobs.controller import Controller, Settings
from vc_egpu.jobs.health import STUCK_S, Pulse
from vc_egpu.jobs.work import Look
from vc_egpu.kube import Key, LeaderLease, Reflector, WorkQueue
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.server import GetServer


def test_a_step_that_takes_long_is_told() -> None:
    clock = Clock()
    watched = Pulse(clock)
    with watched.busy("job mine/train"):
        clock.now += STUCK_S
        assert watched.trouble() == ""
        clock.now += 1
        assert watched.trouble() == "job mine/train: no step in 301 s"
        watched.got_on()
        assert watched.trouble() == ""
    clock.now += 2 * STUCK_S
    assert watched.trouble() == "", "nobody is busy"


def test_who_gets_on_does_not_hide_who_does_not() -> None:
    clock = Clock()
    watched = Pulse(clock)
    holding, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with watched.busy("queue mine"):
            holding.set()
            go_on.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(30)
    with watched.busy("job mine/train"):
        clock.now += STUCK_S + 1
        watched.got_on()
        assert watched.trouble().startswith("queue mine")
    go_on.set()
    thread.join()


class Hanging(Controller):
    """Each look takes as long as the test wants."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.go_on = threading.Event()

    def look(self, kind: Look, key: Key) -> float | None:
        self.go_on.wait(60)
        return None


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Hanging]:
    """A controller that may lead and for whom a fifth of a second is long."""
    with running(Hanging, tmp_path, Settings(stuck_s=0.2)) as controller:
        controller.start()
        assert controller.wait_synced(60)
        yield controller


def eventually(controller: Controller, word: str) -> None:
    end = time.monotonic() + 30
    while word not in controller.trouble():
        assert time.monotonic() < end, controller.trouble()
        time.sleep(0.01)


def test_a_look_that_hangs(listed: Hanging) -> None:
    listed.lead()
    assert listed.trouble() == ""
    listed.work.ask(Look.JOB, ("mine", "train"))
    eventually(listed, "job mine/train: no step")
    listed.go_on.set()


def test_a_worker_that_ended(listed: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    take = WorkQueue.get

    def fails_for_queues(queue: WorkQueue[Any]) -> Any:
        return 1 // 0 if threading.current_thread().name == "queue-0" else take(queue)

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(WorkQueue, "get", fails_for_queues)
    listed.lead()
    eventually(listed, "threads that ended: queue-0")
    listed.stop()
    assert listed.trouble() == ""


def test_a_watch_that_has_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Controller, tmp_path) as controller:
        assert controller.trouble() == "", "it was made just now"

        def unanswered_s(reflector: Reflector) -> float:
            return STUCK_S + 1 if reflector.resource is PODS else 0.0

        monkeypatch.setattr(Reflector, "unanswered_s", unanswered_s)
        assert controller.trouble() == "watches: no answer in 300 s: pods"


def test_the_page_says_so_where_it_leads_and_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controller, "trouble", lambda _self: "stuck")
    leading = False
    monkeypatch.setattr(LeaderLease, "start", lambda self: self)
    monkeypatch.setattr(LeaderLease, "is_leader", lambda _self: leading)
    ends: list[Any] = []
    monkeypatch.setattr(main, "when_told_to_end", ends.append)
    ports: list[int] = []

    def server(address: tuple[str, int], ask: object) -> object:
        made = GetServer(("127.0.0.1", 0), ask)  # type: ignore[arg-type]
        ports.append(made.port)
        return made

    monkeypatch.setattr(main, "GetServer", server)
    answers: list[int] = []

    def look(*_: object) -> None:
        """Called at each turn of the process."""
        nonlocal leading
        answers.append(health_of(ports[0]))
        if leading:
            ends[0](signal.SIGTERM)
        leading = True

    monkeypatch.setattr(main, "follow", look)
    with tiny_api() as api:
        assert main.main(["--kubeconfig", str(api.kubeconfig(tmp_path))]) == 0
    assert answers == [200, 503]


def health_of(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
