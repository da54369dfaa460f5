"""A Job controller beside a tiny API server, ended at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.jobs.controller import Controller, Settings
from vc_egpu.kube import ApiConnection, EventRecorder

C = TypeVar("C", bound=Controller)


@contextmanager
def running_beside(kind: type[C], folder: Path) -> Iterator[tuple[C, TinyApi]]:
    """One of this class, which watches nothing yet, and its API server; ``folder`` is for its kubeconfig."""
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(folder), pool_size=12, timeout_s=30)
        recorder = EventRecorder(api, "jobs", "me")
        controller = kind(api, api, recorder, Settings())
        yield controller, server
        controller.stop()
        recorder.stop()
        api.close()


@contextmanager
def running(kind: type[C], folder: Path) -> Iterator[C]:
    """The same, where nobody asks what the API server holds."""
    with running_beside(kind, folder) as (controller, _):
        yield controller
