"""The work: keys of objects that a worker has to look at, one queue for each kind of look."""

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from enum import StrEnum
from typing import Final

from vc_egpu.kube import Key, WorkQueue

QUEUE_SETTLE_S: Final = 0.5
"""A queue's sums are for people and for schedulers with a period of one second."""


class Look(StrEnum):
    """What a worker looks at; metrics, logs and thread names carry the value."""

    JOB = "job"
    GROUP = "podgroup"
    POD = "pod"
    """A managed pod that has no PodGroup yet."""
    QUEUE = "queue"


class Work:
    """Keys wait here only while this process leads. Thread-safe."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        most_of_a_namespace: Mapping[Look, int] | None = None,
        served: Container[Look] = frozenset(Look),
    ) -> None:
        """``most_of_a_namespace``: how many keys of one namespace are looked at at the same time.

        Namespaces have their turns one after the other, whatever waits in each. ``served``: the looks that
        workers take. No key is kept for the others.
        """
        self._served = served
        most = most_of_a_namespace or {}
        self._queues: dict[Look, WorkQueue[Key]] = {
            look: WorkQueue(clock=monotonic, lane=_namespace, most_of_a_lane=most.get(look)) for look in Look
        }
        self._leading = threading.Event()

    @property
    def leading(self) -> bool:
        """Whether this process leads, so that its workers may write."""
        return self._leading.is_set()

    def begin(self) -> None:
        """This process leads from now on."""
        self._leading.set()

    def pause(self) -> None:
        """Another process may lead from now on: workers wait before their next look."""
        self._leading.clear()

    def wait(self) -> None:
        """Wait until this process leads."""
        self._leading.wait()

    def close(self) -> None:
        """Wake all workers; they get no more keys."""
        self._leading.set()
        for queue in self._queues.values():
            queue.close()

    def queue(self, look: Look) -> WorkQueue[Key]:
        """The keys that wait for this kind of look. A queue's namespace is empty."""
        return self._queues[look]

    def ask(self, look: Look, key: Key, delay_s: float = 0.0) -> None:
        """Ask for a look at this object in ``delay_s`` seconds.

        A standby has no workers. If it kept the keys, its memory would grow with every object that ever came.
        """
        if self._leading.is_set() and look in self._served:
            self._queues[look].add_after(key, delay_s)

    def ask_for_queues(self, names: Iterable[str]) -> None:
        """Ask for a look at these queues soon; an empty name is no queue."""
        for name in names:
            if name:
                self.ask(Look.QUEUE, ("", name), QUEUE_SETTLE_S)


def _namespace(key: Key) -> str:
    return key[0]
