"""Kubelets of simulated nodes that refuse what does not fit, as real ones do.

Two programs that bind to one node may give its last cpu away twice. A kubelet takes pods in the order
in which it hears of them, and fails the one that does not fit. kwok takes all pods, so this stands in.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.watch import Change, ChangeKind, Reflector
from vc_egpu.kube.wire.errors import Conflict, Invalid, NotFound
from vc_egpu.volcano.podspec.sums import pod_requests

Json = dict[str, Any]
_REFUSAL: Final = {
    "phase": "Failed",
    "reason": "OutOfcpu",
    "message": "Pod was rejected: Node didn't have enough resource: cpu",
    "containerStatuses": None,
}


class RefusingKubelets:
    """As a context manager. ``cpu_milli``: what each node has for pods."""

    def __init__(self, api: ApiConnection, cpu_milli: Mapping[str, int]) -> None:
        self._api = api
        self._free_milli = dict(cpu_milli)
        self._taken: dict[str, tuple[str, int]] = {}
        """Pods that were taken, by UID: their node, and what they ask for."""
        self.refused: dict[str, str] = {}
        """Pods that were refused, by UID: their names."""
        self._lock = threading.Lock()
        self._watch = Reflector(api, PODS, self._changed)

    def __enter__(self) -> "RefusingKubelets":
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.stop()

    def _changed(self, change: Change) -> None:
        pod, uid = change.object, str(change.object["metadata"]["uid"])
        over = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        with self._lock:
            if change.kind is ChangeKind.DELETED or over:
                node, milli = self._taken.pop(uid, ("", 0))
                if node:
                    self._free_milli[node] += milli
                return
            takes = self._takes(pod, uid)
        if not takes:
            with suppress(NotFound):
                self._refuse(pod)

    def _takes(self, pod: Json, uid: str) -> bool:
        """Whether the pod runs, or is none of ours."""
        node = pod["spec"].get("nodeName")
        if node not in self._free_milli or uid in self._taken:
            return True
        milli = pod_requests(pod["spec"]).cpu_milli
        # kwok may have said that it runs after we refused it: then it is refused once more.
        if uid not in self.refused and milli <= self._free_milli[node]:
            self._free_milli[node] -= milli
            self._taken[uid] = (node, milli)
            return True
        self.refused[uid] = str(pod["metadata"]["name"])
        return False

    def _refuse(self, pod: Json) -> None:
        metadata = pod["metadata"]
        body = {"metadata": {"uid": metadata["uid"]}, "status": _REFUSAL}
        # Another pod has its name by now: a conflict, or a UID that may not change.
        with suppress(Conflict, Invalid):
            self._api.patch_status(PODS, metadata["name"], body, metadata["namespace"])
