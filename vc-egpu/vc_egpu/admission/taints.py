"""Our taint on nodes that are to be empty: written here and nowhere else, one node after the other.

What is to be written each decision says once more, until the node shows it. So nothing is remembered but what
the API server refused a moment ago.
"""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Protocol

from vc_egpu.core.model.cluster import Instant, NodeName
from vc_egpu.core.model.plan import Plan
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import NODES
from vc_egpu.kube.wire.errors import KubeError, LeaseLost, NotFound, Stale
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.words import names

AGAIN_S: Final = 60.0
"""A write that failed is tried again after so long."""
_TRIES: Final = 4

logger = logging.getLogger(__name__)


class Counts(Protocol):
    """What is told of each write that was made."""

    def __call__(self, *, opened: bool) -> None:
        """The node got our taint, or lost it."""
        ...


class Taints:
    """One leadership's; the loop's thread owns it. Writes run on a thread of their own."""

    def __init__(self, api: ApiConnection, counts: Counts) -> None:
        self._api = api
        self._counts = counts
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="taints")
        self._under_way: dict[NodeName, Future[bool]] = {}
        self._refused: dict[NodeName, float] = {}
        """Nodes whose last write failed, and when that is tried again."""

    def carry_out(self, plan: Plan, now: Instant, clock: float) -> None:
        """Begin what a decision asks for. ``clock``: monotonic seconds."""
        self._note(clock)
        for nodes, emptied in ((plan.empties, now), (plan.opens, None)):
            for name in nodes:
                if name not in self._under_way and name not in self._refused:
                    self._under_way[name] = self._thread.submit(self._write, name, emptied)

    def stuck(self, clock: float) -> frozenset[NodeName]:
        """Nodes for which the last write failed a moment ago."""
        self._note(clock)
        return frozenset(self._refused)

    def rests(self) -> bool:
        """Whether no write is under way."""
        return all(write.done() for write in self._under_way.values())

    def stop(self) -> None:
        """Begin no write any more."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    def _note(self, clock: float) -> None:
        for name in [name for name, write in self._under_way.items() if write.done()]:
            if not self._under_way.pop(name).result():
                self._refused[name] = clock + AGAIN_S
        self._refused = {name: until for name, until in self._refused.items() if until > clock}

    def _write(self, name: NodeName, emptied: Instant | None) -> bool:
        try:
            if write(self._api, name, emptied):
                self._counts(opened=emptied is None)
        except LeaseLost:
            return True
        except KubeError as error:
            logger.warning("node %s: the taint could not be %s: %s", name, _done(emptied), error)
            return False
        logger.info("node %s: the taint was %s", name, _done(emptied))
        return True


def _done(emptied: Instant | None) -> str:
    return "taken away" if emptied is None else "set, so that it becomes empty"


def write(api: ApiConnection, name: str, emptied: Instant | None) -> bool:
    """Give the node our taint, or (None) take it away; whether there was anything to do.

    A node that is gone needs nothing. Raises ``KubeError``.
    """
    value = str(int(emptied)) if emptied is not None else None
    try:
        return change(api, name, names.EMPTIED, value, tries=_TRIES)
    except NotFound:
        return False


def change(api: ApiConnection, name: str, key: str, value: str | None, *, tries: int) -> bool:
    """Give the node a taint, or (None) take it away; whether there was anything to do.

    All other taints stay, also those that come at the same time: agents write their Nodes, too. Raises
    ``KubeError``, and :class:`NotFound` where there is no such node.
    """
    for left in reversed(range(tries)):
        try:
            document = api.get(NODES, name)
            if cluster_codec.bears_taint(document, key) is (value is not None):
                return False
            taints = cluster_codec.taints_with(document, key, value)
            version = document["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}
            api.patch(NODES, name, body)
        except NotFound:
            raise
        except Stale:
            if not left:
                raise
        else:
            return True
    return False
