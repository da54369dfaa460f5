"""Stands in for the node agents' hand in suspension on simulated nodes: orders in, answers out, on the Node.

It takes no time and moves no memory; what the admission controller sees of it is what an agent writes.
"""

import threading
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from localcluster.api import wait_until
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.kube.watch import Change, ChangeKind, Reflector
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, NodeCards

from rigs.admission import Rig

HOST_MEMORY_MIB = 1_000_000
Json = dict[str, Any]


def until_known(port: int, count: int) -> None:
    """Until the controller with its metrics on this port has heard of so many shares that can be suspended.

    Watches of nodes and pods are not in step: without this a test could ask for room before the controller
    knows that nobody has to be evicted for it.
    """

    def known() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics/cards", timeout=10) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return False
        found = [line for line in lines if line.startswith("egpu_card_suspendable_sharers{")]
        return sum(float(line.rpartition(" ")[2]) for line in found) == count

    wait_until(f"{count} shares are known to be suspendable", known, 60)


@dataclass
class Suspender:
    """All simulated nodes' agents. Use as a context manager: nodes set host memory aside meanwhile."""

    rig: Rig
    host_memory_mib: int = HOST_MEMORY_MIB
    silent: bool = False
    """It does nothing about orders."""
    refuses: str = ""
    """It tries every order in vain, for this reason."""
    restore_fails: bool = False
    unable: Mapping[str, str] = field(default_factory=dict)
    """By pod's name: why it cannot be suspended."""
    _said: dict[str, dict[str, PodSuspension]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "Suspender":
        for node in self.rig.api.list(NODES).items:
            self._set_aside(node, self.host_memory_mib)
        self._watch = Reflector(self.rig.api, PODS, self._changed)
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.stop()
        for node in self.rig.api.list(NODES).items:
            self._set_aside(node, 0)
            self._write(node["metadata"]["name"], {names.NODE_SUSPENSION: None})

    def speak(self) -> None:
        """After silence: act on what stands there."""
        self.silent = False
        for pod in self.rig.api.list(PODS).items:
            self._changed(Change(ChangeKind.MODIFIED, pod))

    def _set_aside(self, node: Json, host_memory_mib: int) -> None:
        text = node["metadata"].get("annotations", {}).get(names.NODE_CARDS)
        if text is not None:
            cards = NodeCards.decode(text).model_copy(update={"host_memory_mib": host_memory_mib})
            self._write(node["metadata"]["name"], {names.NODE_CARDS: cards.encode()})

    def _changed(self, change: Change) -> None:
        metadata = change.object["metadata"]
        annotations = metadata.get("annotations") or {}
        node, uid = (change.object.get("spec") or {}).get("nodeName"), metadata["uid"]
        if names.CARDS not in annotations or not node:
            return
        if Cards.decode(annotations[names.CARDS]).share_class != "low":
            return
        with self._lock:
            said = self._said.setdefault(node, {})
            before = said.get(uid)
            if change.kind is ChangeKind.DELETED:
                said.pop(uid, None)
            else:
                said[uid] = self._answer(metadata["name"], annotations.get(names.SUSPEND), before)
            if said.get(uid) != before:
                self._write(node, {names.NODE_SUSPENSION: NodeSuspension(pods=said).encode()})

    def _answer(self, name: str, text: str | None, before: PodSuspension | None) -> PodSuspension:
        reason = self.unable.get(name, "")
        now = before or PodSuspension(suspendable=not reason, reason=reason)
        if self.silent:
            return now
        if text is not None:
            plan_id = SuspendOrder.decode(text).plan_id
            if plan_id == now.plan_id:
                return now
            done: dict[str, object] = {"plan_id": plan_id, "reason": self.refuses} if self.refuses else {
                "plan_id": plan_id, "state": SuspensionState.SUSPENDED, "host_mib": 1234
            }  # fmt: skip
            return now.model_copy(update=done)
        if now.state is SuspensionState.SUSPENDED:
            done = {"state": SuspensionState.RUNNING, "reason": "", "host_mib": 0}
            if self.restore_fails:
                done |= {"state": SuspensionState.FAILED, "reason": "restore: no memory"}
            return now.model_copy(update=done)
        return now

    def _write(self, node: str, annotations: Mapping[str, str | None]) -> None:
        with suppress(NotFound):
            self.rig.api.patch(NODES, node, {"metadata": {"annotations": dict(annotations)}})
