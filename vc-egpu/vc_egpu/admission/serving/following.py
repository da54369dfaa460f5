"""What the pages show of pods, nodes and gangs, kept from one snapshot to the next.

A snapshot shares all that did not change with the one before it, so only what changed is looked at.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from vc_egpu.admission.serving.foresight.budget import Rests
from vc_egpu.core.books.cow import Frozen
from vc_egpu.core.model.cluster import Gang, Node, NodeName, Pod, PodUid, Snapshot
from vc_egpu.report.gangs import Members
from vc_egpu.report.shares import holds

NOWHERE = NodeName("")
"""Where pods with cards are that name no node."""

_K = TypeVar("_K", bound=str)
_V = TypeVar("_V")


SLICE_S: Final = 0.003
"""The pages take the interpreter for so long at a time."""
REST_S: Final = 0.0001
"""Then they let go of it for so long. A decision that waits for it takes it, and keeps it for some time."""


MOST_WAIT_S: Final = 0.05
"""While the loop is busy, a piece of a page waits for so long at most: pages come in a storm, too."""


class Rest:
    """Called often; it waits while the loop is busy, and sleeps a moment whenever a slice is over."""

    def __init__(self, rests: Rests = lambda _timeout_s: True) -> None:
        """``rests``: waits for the loop, so that a decision does not wait for the interpreter."""
        self._rests = rests
        self._until = 0.0

    def __call__(self) -> None:
        """Between two small pieces of work."""
        self._rests(MOST_WAIT_S)
        now = time.perf_counter()
        if now >= self._until:
            time.sleep(REST_S)
            self._until = time.perf_counter() + SLICE_S


class Following:
    """One thread at a time. ``rest`` is called between two small pieces of work."""

    def __init__(self, rest: Callable[[], object] = lambda: None) -> None:
        self._rest = rest
        self._nodes: Mapping[NodeName, Node] = {}
        self._pods: Mapping[PodUid, Pod] = {}
        self._gangs: Mapping[str, Gang] = {}
        self._changed: set[NodeName] = set()
        self.pods_on: dict[NodeName, dict[PodUid, Pod]] = {}
        """Pods with cards by node."""
        self.members: dict[str, Members] = {}
        """By gang."""

    def follow(self, snapshot: Snapshot) -> None:
        """Take in a later snapshot."""
        for name, _, _ in changes(self._nodes, snapshot.nodes):
            self._changed.add(name)
        for uid, before, now in changes(self._pods, snapshot.pods):
            self._rest()
            self._pod(uid, before, now)
        renamed = {
            key
            for key, before, now in changes(self._gangs, snapshot.gangs)
            if before is None or now is None or _described(before) != _described(now)
        }
        if renamed:
            for name, pods in self.pods_on.items():
                if any(pod.gang in renamed for pod in pods.values()):
                    self._changed.add(name)
        self._nodes, self._pods, self._gangs = snapshot.nodes, snapshot.pods, snapshot.gangs

    def take_changed(self) -> tuple[NodeName, tuple[Pod, ...]] | None:
        """A node that looks otherwise than when it was taken last, and its pods with cards; None: no more."""
        if not self._changed:
            return None
        name = self._changed.pop()
        return name, tuple(self.pods_on.get(name, {}).values())

    def _pod(self, uid: PodUid, before: Pod | None, now: Pod | None) -> None:
        if before is not None:
            if before.gang is not None:
                members = self.members[before.gang]
                members.remove(before)
                if not members.living:
                    del self.members[before.gang]
            if holds(before):
                on_node = self.pods_on[before.node or NOWHERE]
                del on_node[uid]
                if not on_node:
                    del self.pods_on[before.node or NOWHERE]
                self._changed.add(before.node or NOWHERE)
        if now is not None:
            if now.gang is not None:
                self.members.setdefault(now.gang, Members()).add(now)
            if holds(now):
                self.pods_on.setdefault(now.node or NOWHERE, {})[uid] = now
                self._changed.add(now.node or NOWHERE)


def _described(gang: Gang) -> tuple[object, ...]:
    """What a share's labels say of its gang."""
    return gang.queue, gang.share_class


def changes(before: Mapping[_K, _V], now: Mapping[_K, _V]) -> Iterator[tuple[_K, _V | None, _V | None]]:
    """(key, value before, value now) of all entries that are not the same object; None: absent."""
    if isinstance(before, Frozen) and isinstance(now, Frozen):
        yield from now.changes(before)
        return
    for key, value in now.items():
        old = before.get(key)
        if old is not value:
            yield key, old, value
    for key in before:
        if key not in now:
            yield key, before[key], None
