"""A live copy that is watched: what it was told, in order."""

import queue
from collections.abc import Callable
from typing import Any

from vc_egpu.kube import Change, Reflector

PATH = "/api/v1/namespaces/n/configmaps"


def config_map(name: str, value: str = "1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", **metadata}, "data": {"v": value}}


class Seen:
    """Changes as they arrive: ``next()`` is ("ADDED", "a")."""

    def __init__(self) -> None:
        self.changes: queue.Queue[Change] = queue.Queue()

    def next(self, timeout_s: float = 30.0) -> tuple[str, str]:
        change = self.changes.get(timeout=timeout_s)
        return change.kind.value, change.object["metadata"]["name"]

    def nothing(self) -> bool:
        return self.changes.empty()


Start = Callable[..., tuple[Reflector, Seen]]
