"""What people must know: events on the Node, once each, and events on its pods."""

import logging
from typing import Any, Final

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


class PodEvents:
    """Events on pods. Thread-safe."""

    def __init__(self, events: EventRecorder) -> None:
        self._events = events

    def warn(self, namespace: str, pod: str, uid: str, reason: str, text: str) -> None:
        """A warning."""
        self.tell("Warning", pod_reference(namespace, pod, uid), reason, text)

    def tell(self, kind: str, pod: dict[str, Any], reason: str, text: str) -> None:
        """An event; ``kind`` is ``Normal`` or ``Warning``."""
        self._events.event(pod, "Warning" if kind == "Warning" else "Normal", reason, text)


def pod_reference(namespace: str, pod: str, uid: str) -> dict[str, Any]:
    """The pod, as an event names it."""
    metadata = {"namespace": namespace, "name": pod, "uid": uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
