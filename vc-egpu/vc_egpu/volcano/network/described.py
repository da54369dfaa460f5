"""How the network is described: by HyperNodes where any exists, else by the operator's labels of nodes."""

import logging
from collections.abc import Mapping, Sequence

from vc_egpu.core.topology.network import Domain
from vc_egpu.volcano.network.hypernodes import Document, HyperNode, Tree, read_or_why
from vc_egpu.volcano.network.labels import domains_by_labels

logger = logging.getLogger(__name__)


class NetworkMap:
    """Which domains a node is in. Changes of HyperNodes count once they are taken (:meth:`take_changes`)."""

    def __init__(self, levels: Sequence[str] = ()) -> None:
        self._levels = tuple(levels)
        self._listed: dict[str, HyperNode] = {}
        self._unread: dict[str, str] = {}
        """HyperNodes of which nothing can be read, and why."""
        self._tree: Tree | None = None
        self._changed = False
        self._told: Mapping[str, tuple[str, ...]] = {}

    @property
    def problems(self) -> dict[str, tuple[str, ...]]:
        """By HyperNode that is not taken as it stands: what is wrong with it."""
        found = self._tree.problems if self._tree is not None else {}
        return found | {name: (why,) for name, why in self._unread.items()}

    def put(self, document: Document, *, deleted: bool) -> bool:
        """A HyperNode came, changed or went; whether that may say something new."""
        name = str(document["metadata"]["name"])
        before = self._listed.pop(name, None), self._unread.pop(name, None)
        if not deleted:
            found = read_or_why(document)
            if isinstance(found, HyperNode):
                self._listed[name] = found
            else:
                self._unread[name] = f"it is left out: {found}"
        now = self._listed.get(name), self._unread.get(name)
        self._changed = self._changed or before != now
        return before != now

    def take_changes(self) -> bool:
        """Count what was put since; whether anything was. What is wrong is logged once."""
        if not self._changed:
            return False
        self._changed = False
        is_any = self._listed or self._unread
        self._tree = Tree(self._listed.values()) if is_any else None
        told, self._told = self._told, self.problems
        for name, problems in self._told.items():
            if told.get(name) != problems:
                logger.warning("HyperNode %s: %s", name, "; ".join(problems))
        return True

    def domains_of(self, metadata: Document) -> tuple[Domain, ...]:
        """The domains of a node with this metadata."""
        labels = metadata.get("labels") or {}
        if self._tree is None:
            return domains_by_labels(labels, self._levels)
        return self._tree.domains_of(str(metadata["name"]), labels)
