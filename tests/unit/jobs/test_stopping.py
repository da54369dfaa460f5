"""A leader that is told to go gives its lease back within the grace that a pod has."""

import threading
import time
from pathlib import Path
from typing import Any

from unit.jobs.running import running
from vc_egpu.jobs.controller import Controller
from vc_egpu.jobs.work import Look
from vc_egpu.kube import Key


class Hanging(Controller):
    """Each look waits for something that does not answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.looks, self.go_on = threading.Semaphore(0), threading.Event()

    def look(self, kind: Look, key: Key) -> float | None:
        self.looks.release()
        self.go_on.wait(60)
        return None


def test_workers_that_hang_in_a_write_are_not_waited_for_one_by_one(tmp_path: Path) -> None:
    """A user's webhook may not answer. Eight times two seconds were longer than the grace, and the next
    leader had to wait until the lease ran out."""
    with running(Hanging, tmp_path) as controller:
        controller.lead()
        for number in range(6):
            controller.work.ask(Look.JOB, ("mine", f"train-{number}"))
        for _ in range(6):
            assert controller.looks.acquire(timeout=30)
        began = time.monotonic()
        controller.stop()
        took_s = time.monotonic() - began
        controller.go_on.set()
        assert took_s < 8, took_s
