"""What nodes were measured to use lately, as their agents say. It goes into the decision's state.

News of it asks for no decision: it makes no place, and a better one later is no reason to look again.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model.cluster import NodeName, PodUid
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.measured import notes
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError

_NOTHING: Final[Mapping[PodUid, int]] = {}

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Said:
    text: str
    pods: Mapping[PodUid, int]
    before: Mapping[PodUid, int]
    """What the note before this one said: a pod that ended is in it for the last time."""


class NodeUses:
    """One thread owns it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._said: dict[NodeName, _Said] = {}

    def put(self, document: Document) -> None:
        """A node is there, or changed; it has been entered into the state."""
        name = NodeName(document["metadata"]["name"])
        text = str((document["metadata"].get("annotations") or {}).get(names.NODE_USE) or "")
        known = self._said.get(name)
        if (known.text if known is not None else "") == text:
            return
        found: notes.Told | None = None
        try:
            found = notes.told(text) if text else None
        except AnnotationError as error:
            logger.warning("node %s: annotation %s is malformed: %s", name, names.NODE_USE, error)
        pods = found.pods if found is not None else _NOTHING
        self._said[name] = _Said(text, pods, known.pods if known is not None else _NOTHING)
        self._state.set_measured(name, found.node if found is not None else None)

    def remove(self, name: NodeName) -> None:
        """A node is gone."""
        self._said.pop(name, None)

    def of(self, node: NodeName | None, uid: PodUid) -> int | None:
        """What a pod used of each of its cards as last told, of a hundred points; None: nobody says."""
        said = self._said.get(node) if node is not None else None
        return said.pods.get(uid, said.before.get(uid)) if said is not None else None
