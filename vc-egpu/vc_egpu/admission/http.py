"""Probes, metrics, and a read-only view for the command line."""

from collections.abc import Callable

from vc_egpu.admission.loop import Loop
from vc_egpu.admission.settings import Settings
from vc_egpu.kube.connection import ApiConnection


class Server:
    """Not there yet."""

    def __init__(self, api: ApiConnection, settings: Settings, loop: Callable[[], Loop | None]) -> None:
        self._loop = loop

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End."""
