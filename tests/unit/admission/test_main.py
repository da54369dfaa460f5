"""One leadership after the other: none goes on where the last one ended."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.admission.build import TABLE
from unit.kube.tiny_api import tiny_api
from vc_egpu.admission.main import EXIT_BAD_SETTINGS, Process, main
from vc_egpu.admission.settings import Settings
from vc_egpu.kube import ApiConnection, LeaderLease, LeaseTimes

ONCE = LeaseTimes(duration_s=300, renew_deadline_s=200, retry_s=100)
"""Renewed when it begins, and not again during the test."""


class Dozing(LeaderLease):
    """The lease of a process that was stopped for a while: its time ran out, and nobody took it."""

    dozes = False

    def remaining_s(self) -> float:
        return 0.0 if self.dozes else super().remaining_s()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiConnection]:
    with tiny_api() as server:
        connection = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=12, timeout_s=30)
        yield connection
        connection.close()


def test_a_leadership_that_ran_out_is_not_taken_up_again_under_its_number(api: ApiConnection) -> None:
    """Plans are numbered anew: with the old epoch an id would be given twice, and pass for the other."""
    started = threading.Event()
    lease = Dozing(api, "n", "l", "me", times=ONCE, on_started=lambda _: started.set())
    lease.start()
    try:
        assert started.wait(30)
        while not lease.is_leader():
            time.sleep(0.01)
        epoch, lease.dozes = lease.epoch, True
        settings = Settings(models=Path("/none"), namespace="n", identity="me", port=-1)
        Process(api, TABLE, settings, threading.Event()).lead(lease)
        lease.dozes = False
        assert not lease.is_leader() or lease.epoch > epoch
    finally:
        lease.stop()


def test_a_broken_model_table_keeps_nobody_from_removing_the_stack(tmp_path: Path) -> None:
    models = tmp_path / "models.yaml"
    models.write_text("models: [{name: }]")
    with tiny_api() as server:
        flags = ["--kubeconfig", str(server.kubeconfig(tmp_path)), "--models", str(models)]
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            assert main([*flags, "--drain"]) == 0
            assert main(flags) == EXIT_BAD_SETTINGS
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
