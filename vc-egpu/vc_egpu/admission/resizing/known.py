"""What nodes' agents answer about resizes, and what of a pod is being written: it counts from now on.

Wishes and notes stand on the pods, answers on the nodes: a new leader knows all of it from the API server.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vc_egpu.core.model.cluster import CardAsk, NodeName, PodPhase, PodUid, Share
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.resizing.notes import NodeResizes, ResizeReport
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError

Shares = tuple[tuple[str, Share], ...]

logger = logging.getLogger(__name__)


class Resizes:
    """One thread owns it."""

    def __init__(self) -> None:
        self._texts: dict[NodeName, str] = {}
        self._said: dict[NodeName, Mapping[str, ResizeReport]] = {}
        self._sent: dict[PodUid, Shares | None] = {}
        """By pod that is written to: the shares that count from now on; None: those it has."""

    # --- nodes -----------------------------------------------------------------------------------

    def put(self, document: Mapping[str, Any]) -> set[PodUid]:
        """A node is there, or changed; the pods about which it says something else now."""
        metadata = document["metadata"]
        name = NodeName(metadata["name"])
        text = str((metadata.get("annotations") or {}).get(names.NODE_RESIZES) or "")
        if self._texts.get(name, "") == text:
            return set()
        self._texts[name] = text
        said: Mapping[str, ResizeReport] = {}
        try:
            said = NodeResizes.decode(text).pods if text else {}
        except AnnotationError as error:
            logger.warning("node %s: annotation %s is malformed: %s", name, names.NODE_RESIZES, error)
        before, self._said[name] = self._said.get(name, {}), said
        return {PodUid(uid) for uid in before.keys() | said.keys() if before.get(uid) != said.get(uid)}

    def remove(self, name: NodeName) -> None:
        """A node is gone."""
        self._texts.pop(name, None)
        self._said.pop(name, None)

    def about(self, decoded: DecodedPod) -> ResizeReport | None:
        """What the pod's own node says about it; no other node is heard."""
        node = decoded.pod.node
        return self._said.get(node, {}).get(decoded.pod.uid) if node is not None else None

    # --- pods ------------------------------------------------------------------------------------

    def send(self, uid: PodUid, shares: Shares | None) -> None:
        """A write to the pod begins, after which it has these shares and no wish."""
        self._sent[uid] = shares

    def sent(self, uid: PodUid) -> None:
        """The write is over, well or badly: what stands on the pod counts again."""
        self._sent.pop(uid, None)

    def is_sending(self, uid: PodUid) -> bool:
        """Whether a write to the pod is under way."""
        return uid in self._sent

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self._sent.pop(uid, None)

    def enter(self, decoded: DecodedPod) -> DecodedPod:
        """The pod with what is being written; the same one where nothing is."""
        words, pod = decoded.words, decoded.pod
        if words is None or pod.phase is not PodPhase.PLACED:
            return decoded
        shares, asks, resize = words.shares, words.shape.asks, words.resize
        if pod.uid in self._sent:
            shares, resize = self._sent[pod.uid] or shares, ()
            sizes = {name: (share.memory_mib, share.cores_percent, share.whole) for name, share in shares}
            asks = tuple(_sized(ask, sizes) for ask in asks)
        if (shares, asks, resize) == (pod.shares, pod.shape.asks, pod.resize):
            return decoded
        fresh = replace(pod, shares=shares, shape=replace(pod.shape, asks=asks), resize=resize)
        return replace(decoded, pod=fresh)


def _sized(ask: CardAsk, sizes: Mapping[str, tuple[int, int, bool]]) -> CardAsk:
    if ask.native or ask.slice or ask.container not in sizes:
        return ask
    memory_mib, cores, whole = sizes[ask.container]
    if (memory_mib, cores, whole) == (ask.memory_mib, ask.cores_percent, ask.whole):
        return ask
    return replace(ask, memory_mib=memory_mib, cores_percent=cores, whole=whole)
