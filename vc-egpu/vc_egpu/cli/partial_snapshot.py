"""What a user may see of the cluster, decoded into the values that a decision takes.

The snapshot is partial. Objects that the user may not see are missing. Light pods have no containers, so
that their shape is what they ask of cards and nothing else. Plans are not read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from vc_egpu.cli import world
from vc_egpu.core.model.cluster import (
    Gang,
    Node,
    NodeName,
    Pod,
    PodShape,
    PodUid,
    Queue,
    QueueName,
    ShareClass,
    Snapshot,
    SuspensionState,
)
from vc_egpu.kube import Json
from vc_egpu.report.gangs import Condition, GangRow, gangs
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.codec.pod_status import phase_of
from vc_egpu.volcano.codec.share_codec import as_resized, asks_of, shares_of, whole_in
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, NodeCards, Request
from vc_egpu.volcano.words.model_table import ModelTable

UNKNOWN: Final = "Unknown"
"""The reason of a condition that has none."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Nodes, and what else their agents say about cards."""

    nodes: Mapping[NodeName, Node]
    inventories: Mapping[NodeName, NodeCards]
    """Nodes without an agent have none."""


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods, and how users call their phases."""

    pods: Mapping[PodUid, Pod]
    phases: Mapping[PodUid, str]


def snapshot(
    *,
    nodes: Mapping[NodeName, Node] | None = None,
    pods: Mapping[PodUid, Pod] | None = None,
    gangs: Mapping[str, Gang] | None = None,
    queues: Mapping[QueueName, Queue] | None = None,
) -> Snapshot:
    """These objects as a snapshot; the others are not known."""
    return Snapshot(0, nodes or {}, pods or {}, gangs or {}, queues or {})


def nodes_of(documents: Iterable[Json], table: ModelTable) -> Nodes:
    """Nodes in the order of their names. A card of a model that the table lacks has its driver's memory."""
    nodes: dict[NodeName, Node] = {}
    inventories: dict[NodeName, NodeCards] = {}
    for document in sorted(documents, key=world.name):
        inventory = world.inventory_of(document)
        found = cluster_codec.node(document, table, inventory or NodeCards(), unlisted=True)
        nodes[found.name] = found
        if inventory is not None:
            inventories[found.name] = inventory
    return Nodes(nodes, inventories)


def pods_of(documents: Iterable[Json]) -> Pods:
    """Pods, whole or light, by UID."""
    pods: dict[PodUid, Pod] = {}
    phases: dict[PodUid, str] = {}
    for document in documents:
        word = world.phase(document)
        found = _pod(document, word)
        pods[found.uid], phases[found.uid] = found, word
    return Pods(pods, phases)


def _pod(document: Json, word: str) -> Pod:
    metadata, spec = document["metadata"], document.get("spec") or {}
    annotations = world.annotations(document)
    shape = _asked(annotations.get(names.REQUEST))
    cards = world.cards_of(document)
    if cards is not None and names.RESIZED in annotations:
        shape = replace(shape, asks=as_resized(shape.asks, cards))
    checked = world.checked_queue(document)
    return Pod(
        uid=PodUid(metadata["uid"]),
        namespace=metadata["namespace"],
        name=metadata["name"],
        shape=shape,
        phase=phase_of(document),
        node=spec.get("nodeName") or (NodeName(cards.node) if cards is not None else None),
        gang=world.group_key(document) or None,
        shares=shares_of(cards, whole_in(shape.asks)) if cards is not None else (),
        plan_id=cards.plan_id if cards is not None else "",
        queue=QueueName(checked) if checked else None,
        suspend_ordered=names.SUSPEND in annotations,
        suspension=SuspensionState(word.lower()) if word in world.ON_ITS_WAY else SuspensionState.RUNNING,
        runs_as=ShareClass[cards.share_class.upper()] if cards is not None else None,
    )


@lru_cache(maxsize=8192)
def _asked(text: str | None) -> PodShape:
    """What a request asks for; nothing for garbage. Thousands of pods ask for the same."""
    try:
        request = Request.decode(text) if text is not None else Request()
    except AnnotationError:
        request = Request()
    return PodShape(asks=asks_of(request, {}))


def _gang(group: Json, members: Sequence[Json]) -> Gang:
    """With the queue and the class that it has by its members."""
    named = world.class_of(group, members)
    return replace(
        cluster_codec.group(group).gang,
        queue=QueueName(world.queue_of(group, members)),
        share_class=cluster_codec.CLASS_OF.get(named, ShareClass.UNSET),
    )


def gangs_of(groups: Iterable[Json], members: Mapping[str, Sequence[Json]]) -> dict[str, Gang]:
    """The gangs of all these PodGroups; ``members`` as :func:`vc_egpu.cli.world.members_of` sorts them."""
    return {(key := world.key(group)): _gang(group, members.get(key, ())) for group in groups}


def conditions(groups: Iterable[Json]) -> dict[str, Condition]:
    """What the admission controller wrote on PodGroups, by the key of the gang."""
    return {
        world.key(group): _condition(said) for group in groups if (said := world.condition(group)) is not None
    }


def _condition(said: Mapping[str, str]) -> Condition:
    return Condition(
        admitted=said.get("status") == "True",
        reason=said.get("reason") or UNKNOWN,
        message=said.get("message") or "",
        since=said.get("lastTransitionTime") or "",
    )


def gang_rows(groups: Sequence[Json], members: Mapping[str, Sequence[Json]]) -> tuple[GangRow, ...]:
    """One row for each of these PodGroups, in their order."""
    pods = pods_of(pod for group in groups for pod in members.get(world.key(group), ())).pods
    return gangs(snapshot(pods=pods, gangs=gangs_of(groups, members)), conditions(groups))


def is_completed(group: Json) -> bool:
    """Whether the gang is done: it holds nothing and waits for nothing, whatever was decided for it."""
    return (group.get("status") or {}).get("phase") == "Completed"
