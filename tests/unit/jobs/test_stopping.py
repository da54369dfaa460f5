"""A leader that is told to go gives its lease back within the grace that a pod has."""

import threading
import time
from pathlib import Path

import pytest
from unit.jobs.running import running
from vc_egpu.jobs.controller import Controller


def test_workers_that_hang_in_a_write_are_not_waited_for_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whom somebody's webhook does not answer: eight times two seconds were longer than the grace, and the
    next leader had to wait until the lease ran out."""
    with running(Controller, tmp_path) as controller:
        hanging, go_on = threading.Semaphore(0), threading.Event()

        def look(_key: object) -> None:
            hanging.release()
            go_on.wait(60)

        monkeypatch.setattr(controller._job_worker, "look", look)
        controller.lead()
        for number in range(6):
            controller._job_queue.add(("mine", f"train-{number}"))
        for _ in range(6):
            assert hanging.acquire(timeout=30)
        began = time.monotonic()
        controller.stop()
        took_s = time.monotonic() - began
        go_on.set()
        assert took_s < 8, took_s
