"""Live copies of what reviews look at: queues, namespaces, PodGroups, Jobs' metadata, priority classes.

It keeps what nodes offer of each model. Only warnings go by that, so no review waits for it.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from vc_egpu.core.environments.needs import NO_FACTS
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PRIORITY_CLASSES,
    QUEUES,
    VOLCANO_JOBS,
    Resource,
)
from vc_egpu.kube.watch import Change, ChangeKind, Reflector, key_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_in
from vc_egpu.volcano.words.resource_names import asked_in
from vc_egpu.webhook.protocol.context import QueueTree
from vc_egpu.webhook.protocol.offers import Offers, cards_of, facts_of, offers_of
from vc_egpu.webhook.reviews.jobs.tasks import asks_for_cards

Json = dict[str, Any]
_KEPT_METADATA: Final = ("namespace", "name", "uid", "resourceVersion")
_KEPT_ANNOTATIONS: Final = (names.PRIORITY, names.QUEUE_NAME, names.ROLLED_BACK, names.CHOICE)
_KEPT_CHARS: Final = names.LONGEST_OBJECT_NAME + 1
"""Characters of an annotation that are kept. A longer name is invalid anyway, and still is when it is cut
here. Reviews only look whether a roll-back is noted."""


def slim(document: Json, spec_fields: tuple[str, ...] = ()) -> Json:
    """Keep identity, maker, the annotations that matter, and the named fields of spec. A Job's template is
    large, and a user may create hundreds of objects of a megabyte each."""
    metadata = document.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept = {key: metadata[key] for key in _KEPT_METADATA if key in metadata}
    if maker := controller_in(metadata):
        kept["ownerReferences"] = [maker]
    kept["annotations"] = {
        key: str(annotations[key])[:_KEPT_CHARS] for key in _KEPT_ANNOTATIONS if key in annotations
    }
    spec = document.get("spec") or {}
    return {"metadata": kept, "spec": {key: spec[key] for key in spec_fields if key in spec}}


def slim_group(document: Json) -> Json:
    """Keep a PodGroup's queue as well, and one name in its needs that shows that it asks for cards."""
    needs = (document.get("spec") or {}).get("minResources") or {}
    shown = asked_in(needs)
    kept = slim(document, ("queue",))
    return {**kept, "spec": {**kept["spec"], "minResources": {} if shown is None else {shown: needs[shown]}}}


def slim_job(document: Json) -> Json:
    """Keep a Volcano Job's queue as well, and whether it asks for cards: only such Jobs were checked."""
    kept = slim(document, ("queue",))
    return {**kept, "spec": {**kept["spec"], "asks": asks_for_cards(document)}}


def slim_node(document: Json) -> Json:
    """Keep what a Node offers of each model, and its software: the annotation that says so has kilobytes."""
    metadata = document.get("metadata") or {}
    told = cards_of(metadata.get("annotations") or {})
    kept = {key: metadata[key] for key in ("name", "resourceVersion") if key in metadata}
    facts = facts_of(told, metadata.get("labels") or {})
    return {"metadata": kept, "offers": offers_of(told), "facts": facts}


class Caches:
    """Started once; the maps are live and read from any thread."""

    def __init__(self, api: ApiConnection) -> None:
        self.namespaces: dict[str, Json] = {}
        self.pod_groups: dict[tuple[str, str], Json] = {}
        self.jobs: dict[tuple[str, str], Json] = {}
        self.priority_classes: dict[str, Json] = {}
        self.offers = Offers()
        self._queues: dict[str, Json] = {}
        self._tree = QueueTree({})
        self._lock = threading.Lock()
        self._reflectors = [
            self._by_name(api, QUEUES, self._queues, lambda doc: doc, self._queues_changed),
            self._by_name(api, NAMESPACES, self.namespaces, slim),
            self._by_name(api, PRIORITY_CLASSES, self.priority_classes, lambda doc: doc),
            self._by_key(api, POD_GROUPS, self.pod_groups, slim_group),
            self._by_key(api, VOLCANO_JOBS, self.jobs, slim_job),
        ]
        self._nodes = Reflector(api.metadata_only(), NODES, self._node_changed, transform=slim_node)

    @property
    def queues(self) -> QueueTree:
        """The queues as of now."""
        return self._tree

    def start(self) -> "Caches":
        """Begin to list and watch."""
        for reflector in (*self._reflectors, self._nodes):
            reflector.start()
        return self

    def stop(self) -> None:
        """End all watches."""
        for reflector in (*self._reflectors, self._nodes):
            reflector.stop()

    def unsynced(self) -> list[str]:
        """Which kinds have not been listed yet; empty once reviews can be answered."""
        return [reflector.resource.plural for reflector in self._reflectors if not reflector.synced.is_set()]

    def _queues_changed(self) -> None:
        with self._lock:
            self._tree = QueueTree(dict(self._queues))

    def _node_changed(self, change: Change) -> None:
        node, found = key_of(change.object)[1], change.object
        gone = change.kind is ChangeKind.DELETED
        self.offers.put(node, {} if gone else found.get("offers") or {}, found.get("facts") or NO_FACTS)

    @staticmethod
    def _by_name(
        api: ApiConnection,
        resource: Resource,
        store: dict[str, Json],
        transform: Callable[[Json], Json],
        changed: Callable[[], None] = lambda: None,
    ) -> Reflector:
        def on_change(change: Change) -> None:
            _, name = key_of(change.object)
            if change.kind is ChangeKind.DELETED:
                store.pop(name, None)
            else:
                store[name] = change.object
            changed()

        return Reflector(api, resource, on_change, transform=transform)

    @staticmethod
    def _by_key(
        api: ApiConnection,
        resource: Resource,
        store: dict[tuple[str, str], Json],
        transform: Callable[[Json], Json],
    ) -> Reflector:
        def on_change(change: Change) -> None:
            if change.kind is ChangeKind.DELETED:
                store.pop(key_of(change.object), None)
            else:
                store[key_of(change.object)] = change.object

        return Reflector(api, resource, on_change, transform=transform)
