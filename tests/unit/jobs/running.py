"""A Job controller next to a tiny API server; the test's end stops both."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.jobs.controller import Controller, Settings
from vc_egpu.kube import ApiConnection, EventRecorder

C = TypeVar("C", bound=Controller)
NO_WORKERS = Settings(job_workers=0, group_workers=0, queue_workers=0, look_s=60.0)
"""For a controller whose looks the test takes itself, each to its end."""


class Clock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def running_beside(
    kind: type[C], folder: Path, settings: Settings | None = None, **clocks: Clock
) -> Iterator[tuple[C, TinyApi, EventRecorder]]:
    """A controller of this class that watches nothing yet, its API server, and what it says its events to.

    ``folder`` is for its kubeconfig.
    """
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(folder), pool_size=12, timeout_s=30)
        recorder = EventRecorder(api, "jobs", "me")
        controller = kind(api, api, recorder, settings or Settings(), **clocks)
        yield controller, server, recorder
        controller.stop()
        recorder.stop()
        api.close()


@contextmanager
def running(kind: type[C], folder: Path, settings: Settings | None = None, **clocks: Clock) -> Iterator[C]:
    """The controller alone, for tests that do not ask what the API server holds."""
    with running_beside(kind, folder, settings, **clocks) as (controller, _, _):
        yield controller
