"""The Node object of this node: what it says that matters here, and what the agent writes on it."""

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from vc_egpu.kube import ApiConnection, Backoff, Change, Reflector
from vc_egpu.kube.resources import NODES
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.measured.notes import without_use
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, NodeCards
from vc_egpu.volcano.words.quantity import QuantityError, parse_whole

from vc_egpu_node.cards.inventory import NodeFacts, is_counter
from vc_egpu_node.vendors.registry import SHARED_LABELS

log = logging.getLogger(__name__)

FIELD_MANAGER: Final = "vc-egpu-node"
NFD_LABELS: Final = "nfd.node.kubernetes.io/feature-labels"
"""Annotation of node feature discovery (an instance's own has its name before that): labels that it manages.
It removes them when no labeller asks for them any more. GPU feature discovery has its labels written by it.
"""
_KEPT: Final = (*names.WRITTEN_BY_AGENTS, names.CORDONED_CARDS)
_CORDON_SPLIT: Final = re.compile(r"[,\s]+")
Json = dict[str, Any]


def slim(document: Json) -> Json:
    """What is kept of the Node: of the managed fields only which shared labels this agent owns."""
    metadata, status = document.get("metadata") or {}, document.get("status") or {}
    kept = ("name", "uid", "resourceVersion", "labels")
    annotations = metadata.get("annotations") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            **{key: metadata[key] for key in kept if key in metadata},
            "annotations": {k: v for k, v in annotations.items() if k in _KEPT},
            "ownedByUs": sorted(_labels_of_manager(metadata) - _labels_of_nfd(annotations)),
        },
        "status": {
            "runtime": (status.get("nodeInfo") or {}).get("containerRuntimeVersion"),
            **{
                key: {
                    name: amount
                    for name, amount in (status.get(key) or {}).items()
                    if "/" in name and not name.startswith("kubernetes.io/")
                }
                for key in ("capacity", "allocatable")
            },
        },
    }


def _labels_of_manager(metadata: Json) -> set[str]:
    """Labels whose last writer was this agent."""
    owned: set[str] = set()
    for entry in metadata.get("managedFields") or ():
        if entry.get("manager") == FIELD_MANAGER:
            fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
            owned |= {key.removeprefix("f:") for key in fields}
    return owned


def _labels_of_nfd(annotations: Mapping[str, str]) -> set[str]:
    """Labels that node feature discovery manages too: it writes none that has the right value already, so
    that the last writer may be this agent."""
    texts = (text for name, text in annotations.items() if name.endswith(NFD_LABELS))
    return {label for text in texts for label in text.split(",")}


def facts(document: Json) -> NodeFacts:
    """What the inventory needs to know of the (slim) Node; whose its cards are, :mod:`.others` says."""
    metadata = document["metadata"]
    cordoned = (metadata.get("annotations") or {}).get(names.CORDONED_CARDS, "")
    return NodeFacts(
        mode_label=(metadata.get("labels") or {}).get(names.NODE_MODE_LABEL, ""),
        cordoned=frozenset(part for part in _CORDON_SPLIT.split(cordoned) if part),
    )


def previous_cards(document: Json) -> NodeCards | None:
    """The inventory that the node carries, if it can be read."""
    text = (document["metadata"].get("annotations") or {}).get(names.NODE_CARDS)
    if text is None:
        return None
    try:
        return NodeCards.decode(text)
    except AnnotationError as error:
        log.warning("the node's inventory is written again, it was malformed: %s", error)
        return None


def metadata_patch(document: Json, node_cards: NodeCards, wanted_labels: Mapping[str, str]) -> Json:
    """Merge patch of annotation and labels; empty if the node says all of it already."""
    metadata = document["metadata"]
    have: Mapping[str, str] = metadata.get("labels") or {}
    ours = set(metadata["ownedByUs"])
    labels: dict[str, str | None] = {}
    for name, value in wanted_labels.items():
        foreign = name in SHARED_LABELS and name in have and name not in ours
        if have.get(name) != value and not foreign:
            labels[name] = value
    labels.update({name: None for name in _own_labels(metadata) if name not in wanted_labels})
    text = node_cards.encode()
    patch: Json = {}
    if (metadata.get("annotations") or {}).get(names.NODE_CARDS) != text:
        patch["annotations"] = {names.NODE_CARDS: text}
    if labels:
        patch["labels"] = labels
    return {"metadata": patch} if patch else {}


def status_patch(document: Json, wanted: Mapping[str, int]) -> Json:
    """Merge patch of the counters in capacity and allocatable; empty if the node says all of it already."""
    patch: Json = {}
    for key in ("capacity", "allocatable"):
        have = document["status"][key]
        changes: dict[str, str | None] = {
            name: str(amount) for name, amount in wanted.items() if not _equal(have.get(name), amount)
        }
        changes.update({name: None for name in have if is_counter(name) and name not in wanted})
        if changes:
            patch[key] = changes
    return {"status": patch} if patch else {}


def removal_patches(document: Json) -> tuple[Json, Json]:
    """Merge patches of metadata and status that take off all that the agent wrote on the (slim) Node; empty
    where nothing of it is there."""
    metadata = document["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    written = {
        "annotations": dict.fromkeys(name for name in names.WRITTEN_BY_AGENTS if name in annotations),
        "labels": dict.fromkeys(_own_labels(metadata)),
    }
    patch = {key: value for key, value in written.items() if value}
    return ({"metadata": patch} if patch else {}), status_patch(document, {})


def _own_labels(metadata: Json) -> list[str]:
    """Labels that the Node has and this agent gave it."""
    ours = set(metadata["ownedByUs"])
    return [
        name
        for name in metadata.get("labels") or {}
        if name.startswith(names.MODEL_LABEL_PREFIX)
        or name in names.AGENT_LABELS
        or (name in SHARED_LABELS and name in ours)
    ]


def _equal(raw: object, amount: int) -> bool:
    if raw is None:
        return False
    try:
        return parse_whole(raw) == amount
    except QuantityError:
        return False


class OwnNode:
    """This node's object, watched and patched."""

    def __init__(self, api: ApiConnection, name: str, on_change: Callable[[], None]) -> None:
        self._api = api
        self._name = name
        self._on_change = on_change
        self._answered: dict[str, tuple[Json, str | None]] = {}
        """By annotation: the Node as it was known when our last text was taken, and that text."""
        self.reflector = Reflector(
            api, NODES, self._changed, field_selector=f"metadata.name={name}", transform=slim
        )

    def start(self) -> None:
        """Begin to watch."""
        self.reflector.start()

    def stop(self) -> None:
        """End the watch."""
        self.reflector.stop()

    def document(self) -> Json | None:
        """The (slim) Node, or None as long as there is none."""
        return self.reflector.get(self._name)

    def write(self, node_cards: NodeCards, labels: Mapping[str, str], wanted: Mapping[str, int]) -> int:
        """Bring the Node up to date; how many calls that took. Raises :class:`KubeError`: of two writes that
        are due each is tried, whatever became of the other."""
        document = self.document()
        if document is None:
            return 0
        metadata, status = metadata_patch(document, node_cards, labels), status_patch(document, wanted)
        due = ([(metadata, None)] if metadata else []) + ([(status, "status")] if status else [])
        refused: KubeError | None = None
        for patch, subresource in due:
            try:
                self._api.patch(
                    NODES, self._name, patch, subresource=subresource, field_manager=FIELD_MANAGER
                )
            except KubeError as error:
                refused = refused or error
        if refused is not None:
            raise refused
        return len(due)

    def say_suspension(self, text: str | None) -> None:
        """Say how far pods are with being suspended; None: this agent suspends no pods. No call where the
        Node says so already, as last heard. Raises :class:`KubeError`."""
        self._say(names.NODE_SUSPENSION, text)

    def say_resizes(self, text: str | None) -> None:
        """Say how far pods are with being resized; None: none is. As :meth:`say_suspension`."""
        self._say(names.NODE_RESIZES, text)

    def say_swaps(self, text: str | None) -> None:
        """Say where pods are that take cards in turns; None: there are none. As :meth:`say_suspension`."""
        self._say(names.NODE_SWAPS, text)

    def say_use(self, text: str | None) -> None:
        """Say how busy the node was; None: nobody measures. As :meth:`say_suspension`."""
        self._say(names.NODE_USE, text)

    def _say(self, name: str, text: str | None) -> None:
        document = self.document()
        if document is None:
            return
        says = (document["metadata"].get("annotations") or {}).get(name)
        answered = self._answered.get(name)
        if answered is not None and answered[0] is document:  # nothing was heard since
            says = answered[1]
        if says != text:
            patch = {"metadata": {"annotations": {name: text}}}
            self._api.patch(NODES, self._name, patch, field_manager=FIELD_MANAGER)
            self._answered[name] = document, text

    def _changed(self, change: Change) -> None:
        old, new = change.old, change.object
        if old is None or _essence(old) != _essence(new):
            self._on_change()


class Teller:
    """Says one thing on the Node again and again. After a failure it says something new at once, and the
    same text less and less often. A policy that refuses the text here refuses it on all nodes."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """``say`` raises :class:`KubeError`."""
        self._say = say
        self._clock = clock
        self._backoff = Backoff(first_s=1.0, most_s=30.0)
        self._failed: str | None = None
        """What could not be said last."""
        self._again_s = 0.0
        self._since_s: float | None = None
        """When the Node began not to say what it should."""

    def say(self, text: str) -> None:
        """Raises :class:`KubeError` where the write failed."""
        if text != self._failed:
            self._backoff.reset()
        elif self._clock() < self._again_s:
            return
        try:
            self._say(text)
        except KubeError:
            now_s = self._clock()
            self._failed, self._again_s = text, now_s + self._backoff.next_s()
            self._since_s = now_s if self._since_s is None else self._since_s
            raise
        self._failed = self._since_s = None

    def unsaid_s(self) -> float:
        """For how long the Node has not said what it should; 0: it does."""
        since_s = self._since_s
        return 0.0 if since_s is None else self._clock() - since_s


def _essence(document: Json) -> Any:
    """The part whose change must wake the agent. The kubelet's heartbeats must not, nor what it measured."""
    metadata = document["metadata"]
    return (metadata.get("labels"), without_use(metadata.get("annotations")), document["status"])
