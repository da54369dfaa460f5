"""What people must know of this node: events on its Node and lines in the log, once each."""

import logging
from typing import Final

from vc_egpu.kube import EventRecorder

log: Final = logging.getLogger(__name__)


class Notices:
    """Tells of what changed, and of nothing twice. One thread calls it."""

    def __init__(self, events: EventRecorder, node: str) -> None:
        self._events = events
        self._about = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}
        self._told: dict[str, str] = {}

    def event(self, key: str, trouble: str, reason: str, recovered: str = "") -> None:
        """Trouble as an event, or its end (empty); ``recovered``: reason of an event that tells of that."""
        if trouble == self._told.get(key, ""):
            return
        self._told[key] = trouble
        if trouble:
            log.warning("%s", trouble)
            self._events.event(self._about, "Warning", reason, trouble)
        elif recovered:
            self._events.event(self._about, "Normal", recovered, f"card {key} is offered again")
