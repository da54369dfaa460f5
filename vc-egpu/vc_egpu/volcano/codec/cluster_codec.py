"""API objects, as plain JSON documents, into the values that a decision takes.

Pods and nodes are hostile input. Whatever a tenant or a broken agent can write ends up as a ``problem`` in
words. It never becomes an exception that would stop a watch. The codec relies on what the API server itself
guarantees: types of built-in fields, and quantities that parse. Should that not hold all the same, the object
gets a problem too.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

from vc_egpu.core.environments.backends import MPS
from vc_egpu.core.layouts.table import Held, Layout, LayoutError
from vc_egpu.core.model.cluster import (
    DRAIN,
    LONGEST_CHOICE,
    OUT_OF_SERVICE,
    Card,
    CardId,
    Gang,
    Instant,
    Mode,
    Node,
    NodeName,
    PodUid,
    Queue,
    QueueName,
    Requirement,
    ShareClass,
    Taint,
)
from vc_egpu.core.topology.links import Near
from vc_egpu.core.topology.network import Domain
from vc_egpu.volcano import room
from vc_egpu.volcano.codec import gang_notes
from vc_egpu.volcano.codec.queue_limits import QueueLimits, QueueLimitsError
from vc_egpu.volcano.measured.notes import without_use
from vc_egpu.volcano.needs.nodes import environment
from vc_egpu.volcano.network.bounds import SubgroupPolicy, bound_of, policies_of
from vc_egpu.volcano.podspec.sums import resources, units
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    NEAR_LETTERS,
    AnnotationError,
    NodeCard,
    NodeCards,
    Request,
)
from vc_egpu.volcano.words.makers import controller_in
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.quantity import QuantityError, parse_seconds
from vc_egpu.volcano.words.resource_names import asked_in, classify

log = logging.getLogger(__name__)

Document = Mapping[str, Any]
Terms = tuple[tuple[Requirement, ...], ...]
ClaimTerms = Callable[[str, str], Terms]
"""(namespace, claim) to the node terms of the volume it is bound to; empty: anywhere, or unknown."""

_LONGEST_INSTANT: Final = 12
CLASS_OF: Final[Mapping[str, ShareClass]] = {"high": ShareClass.HIGH, "low": ShareClass.LOW}

_LARGE: Final = frozenset({names.PLAN, names.RESERVED})
_decode_request = lru_cache(maxsize=8192)(Request.decode)


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller of an object."""

    api_version: str
    kind: str
    name: str
    uid: str

    @property
    def is_volcano_job(self) -> bool:
        """Whether it is a Volcano Job (not a batch Job)."""
        return self.kind == "Job" and self.api_version.startswith("batch.volcano.sh/")


@dataclass(frozen=True, slots=True)
class DecodedGroup:
    """A PodGroup for the decision (without plan: that needs the inventory), and what the processes need."""

    gang: Gang
    resource_version: str
    phase: str
    plan_text: str = ""
    rolled_back: str = ""
    reserved: str = ""
    moved: str = ""
    owner: Owner | None = None
    conditions: tuple[Document, ...] = ()
    priority_class: str = ""
    problem: str = ""
    asks: bool = False
    """Its ``minResources`` name cards: true before any of its pods is there."""
    subgroups: tuple[SubgroupPolicy, ...] = ()
    """Which members are in subgroups."""
    labels: Document = field(default_factory=dict)
    """The PodGroup's own."""
    annotation_bytes: int = 0
    """All its annotations but the plan and the claim (:mod:`vc_egpu.volcano.room`): a plan ends the claim."""


def instant(text: str | None) -> Instant:
    """Seconds since the epoch of an API timestamp; 0 where there is none."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def is_single(owner: Owner | None) -> bool:
    """Whether the pods of a PodGroup of this owner are planned one by one: see :class:`Gang`."""
    return owner is None or not owner.is_volcano_job


def owner_of(metadata: Document) -> Owner | None:
    """The controller that an object names."""
    reference = controller_in(metadata)
    if not reference:
        return None
    return Owner(reference["apiVersion"], reference["kind"], reference["name"], reference["uid"])


# --- nodes ---------------------------------------------------------------------------------------


def node(
    document: Document,
    table: ModelTable,
    decoded: NodeCards | None = None,
    *,
    unlisted: bool = False,
    network: tuple[Domain, ...] = (),
) -> Node:
    """A node with its cards. Garbage in the inventory leaves a node without cards that says why.

    ``decoded``: its inventory, where the caller has decoded it. ``unlisted``: cards of models that the table
    lacks are there, too, with the memory that their driver reports. ``network``: its
    domains, see :mod:`.network`.
    """
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    taints = tuple(
        Taint(t["key"], t.get("value") or "", t.get("effect") or "") for t in spec.get("taints") or ()
    )
    ours = [taint for taint in taints if taint.key == names.EMPTIED]
    taints = tuple(taint for taint in taints if taint.key != names.EMPTIED)
    inventory = _inventory(annotations.get(names.NODE_CARDS)) if decoded is None else decoded
    if inventory.compute == MPS:
        taints = (*taints, Taint(names.MPS, inventory.mps_namespace, "NoSchedule"))
    problem = inventory.problem
    cordoned = names_in(annotations.get(names.CORDONED_CARDS, ""))
    allocatable = status.get("allocatable") or {}
    labels = metadata.get("labels") or {}
    return Node(
        name=NodeName(metadata["name"]),
        allocatable=resources(allocatable),
        labels=labels,
        taints=taints,
        unschedulable=bool(spec.get("unschedulable")),
        emptied=_since(ours[0].value) if ours else None,
        stays=annotations.get(names.STAYS) == "true",
        ready=_is_ready(status),
        lost=any(taint.key == OUT_OF_SERVICE for taint in taints),
        drained=any(taint.key == DRAIN for taint in taints),
        mode=Mode.NATIVE if inventory.mode == "native" else Mode.SHARED,
        cards=tuple(
            card
            for entry in inventory.cards
            if (card := _card(entry, inventory, table, cordoned, unlisted=unlisted)) is not None
        ),
        core_ratio=inventory.core_ratio,
        memory_ratio=inventory.memory_ratio,
        ratio_class=CLASS_OF[inventory.ratio_class] if inventory.ratio_class else None,
        host_memory_mib=inventory.host_memory_mib,
        max_sharers=inventory.max_sharers,
        problem=problem,
        slots=_slots(allocatable),
        created=instant(metadata.get("creationTimestamp")),
        environment=environment(inventory, labels),
        network=network,
    )


def _inventory(text: str | None) -> NodeCards:
    """What the agent wrote; garbage becomes its ``problem``."""
    if text is None:
        return NodeCards()
    try:
        return NodeCards.decode(text)
    except AnnotationError as error:
        # Not validated: the words may be longer than an agent's.
        return NodeCards.model_construct(problem=f"annotation {names.NODE_CARDS} is malformed: {error}")


def bears_our_taint(document: Document) -> bool:
    """Whether the node is to be empty."""
    return bears_taint(document, names.EMPTIED)


def bears_taint(document: Document, key: str) -> bool:
    """Whether the node has a taint of this key."""
    return any(taint.get("key") == key for taint in taints_of(document))


def taints_of(document: Document) -> list[Document]:
    """All taints of a node."""
    return list((document.get("spec") or {}).get("taints") or ())


def taints_with(document: Document, key: str, value: str | None) -> list[Document]:
    """The node's taints with this one, which keeps pods away, or (None) without it."""
    others = [taint for taint in taints_of(document) if taint.get("key") != key]
    if value is None:
        return others
    return [*others, {"key": key, **({"value": value} if value else {}), "effect": "NoSchedule"}]


def _since(value: str) -> float:
    """The instant in our taint; 0, which is long ago, where somebody wrote something else."""
    return float(value) if len(value) <= _LONGEST_INSTANT and value.isdecimal() else 0.0


def says_the_same(before: Document, now: Document) -> bool:
    """Whether two versions of a node differ only in what no decision reads (heartbeats, images).

    What it was measured to use is read apart.
    """
    old, new = before["metadata"], now["metadata"]
    return (
        without_use(old.get("annotations")) == without_use(new.get("annotations"))
        and old.get("labels") == new.get("labels")
        and before.get("spec") == now.get("spec")
        and (before.get("status") or {}).get("allocatable") == (now.get("status") or {}).get("allocatable")
        and _is_ready(before.get("status") or {}) is _is_ready(now.get("status") or {})
    )


def _is_ready(status: Document) -> bool:
    return any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())


def held_by_agent(document: Document) -> Mapping[CardId, tuple[PodUid, ...]]:
    """UIDs of pods whose shares the node's agent still holds, by card; empty where nothing can be read."""
    text = ((document["metadata"].get("annotations")) or {}).get(names.NODE_CARDS)
    if text is None:
        return {}
    try:
        cards = NodeCards.decode(text).cards
    except AnnotationError:
        return {}
    return {CardId(card.uuid): tuple(PodUid(uid) for uid in card.held) for card in cards if card.held}


def _card(
    entry: NodeCard, inventory: NodeCards, table: ModelTable, cordoned: frozenset[str], *, unlisted: bool
) -> Card | None:
    model = table.get(entry.model)
    if model is None and not unlisted:
        return None
    memory_mib = model.memory_mib if model is not None else entry.memory_mib
    usable = entry.healthy and entry.offered and entry.uuid not in cordoned and entry.memory_mib >= memory_mib
    links = {CardId(peer): count for peer, count in entry.links.items()}
    try:
        layout = entry.layout.layout(f"of {entry.model}") if entry.layout is not None else None
    except LayoutError as error:
        log.warning("card %s takes nothing: %s", entry.uuid, error)
        layout, usable = None, False
    return Card(
        CardId(entry.uuid),
        entry.index,
        entry.model,
        memory_mib,
        usable,
        links,
        entry.switch_links,
        entry.link_mb_s,
        _ways(entry, inventory),
        layout,
        _foreign(entry, layout),
        entry.stack,
        model.group_of(entry.index, entry.group) if model is not None else entry.group,
        entry.module,
        entry.isolation if inventory.compute != MPS else MPS,
        model.rule if model is not None else None,
    )


def _foreign(entry: NodeCard, layout: Layout | None) -> tuple[Held, ...]:
    """Slices that no pod of ours has. Those of an adopted layout are what it is made of, and are free."""
    if layout is None or entry.layout is None or not (layout.placed or entry.layout.made):
        return ()
    return tuple(Held(one.template, one.start) for one in entry.slices if not one.owner)


def _ways(entry: NodeCard, inventory: NodeCards) -> dict[CardId, Near]:
    """The ways over PCIe to the other cards of the node, as far as the agent tells them."""
    ways = {}
    for peer in inventory.cards if entry.near else ():
        letter = entry.near[peer.index : peer.index + 1]
        if letter in NEAR_LETTERS and peer is not entry:
            ways[CardId(peer.uuid)] = NEAR_LETTERS[letter]
    return ways


def _slots(allocatable: Document) -> dict[str, int]:
    return {name: units(amount) for name, amount in allocatable.items() if classify(name).is_counted}


def names_in(text: str) -> frozenset[str]:
    """The parts of a comma list."""
    if not text:
        return frozenset()
    return frozenset(part for part in (piece.strip() for piece in text.split(",")) if part)


def node_terms(selector: Document | None) -> Terms:
    """A node selector's terms; empty terms match nothing and are left out, as Kubernetes does."""
    terms = []
    for term in (selector or {}).get("nodeSelectorTerms") or ():
        requirements = tuple(
            Requirement(e["key"], e["operator"], tuple(e.get("values") or ()), on_field)
            for key, on_field in (("matchExpressions", False), ("matchFields", True))
            for e in term.get(key) or ()
        )
        if requirements:
            terms.append(requirements)
    return tuple(terms)


def share_class(annotations: Document) -> ShareClass | None:
    """The class an annotation names; None: it names none."""
    return CLASS_OF.get(str(annotations.get(names.PRIORITY, "")))


# --- PodGroups and queues ------------------------------------------------------------------------


def group(document: Document) -> DecodedGroup:
    """A PodGroup. Its gang has neither plan nor members' class yet: the mirror knows those."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    owner = owner_of(metadata)
    min_member = int(spec.get("minMember") or 1)
    policies = policies_of(spec.get("subGroupPolicy"))
    gang = Gang(
        key=f"{metadata['namespace']}/{metadata['name']}",
        uid=metadata["uid"],
        queue=QueueName(spec.get("queue") or "default"),
        share_class=share_class(annotations) or ShareClass.UNSET,
        priority_value=0,
        min_member=max(1, min_member),
        created=instant(metadata.get("creationTimestamp")),
        min_task_member={task: int(count) for task, count in (spec.get("minTaskMember") or {}).items()},
        single=is_single(owner),
        victim_at=gang_notes.decode_victim_at(annotations.get(names.VICTIM_AT, "")),
        bound=bound_of(spec.get("networkTopology")),
        subgroups={policy.name: policy.bound for policy in policies},
        choice=str(annotations.get(names.CHOICE, ""))[:LONGEST_CHOICE],
        restartable=annotations.get(names.RESTARTABLE) == "true",
    )
    return DecodedGroup(
        gang=gang,
        resource_version=metadata["resourceVersion"],
        phase=status.get("phase") or "",
        plan_text=annotations.get(names.PLAN, ""),
        rolled_back=annotations.get(names.ROLLED_BACK, ""),
        reserved=annotations.get(names.RESERVED, ""),
        moved=annotations.get(names.MOVED, ""),
        owner=owner,
        conditions=tuple(status.get("conditions") or ()),
        priority_class=spec.get("priorityClassName") or "",
        asks=asked_in(spec.get("minResources") or {}) is not None,
        subgroups=policies,
        labels=metadata.get("labels") or {},
        annotation_bytes=room.size({k: v for k, v in annotations.items() if k not in _LARGE}),
    )


def queue(document: Document) -> Queue:
    """A queue. Raises ``ValueError`` for a quantity that is none."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    return Queue(
        name=QueueName(metadata["name"]),
        parent=QueueName(spec["parent"]) if spec.get("parent") else None,
        open=(status.get("state") or "Open") == "Open",
        capability=amounts(spec.get("capability")),
        deserved=amounts(spec.get("deserved")),
        guarantee=amounts((spec.get("guarantee") or {}).get("resource")),
        weight=int(spec.get("weight") or 1),
        priority=int(spec.get("priority") or 0),
        reclaimable=spec.get("reclaimable") is not False,
        fifo=spec.get("dequeueStrategy") == "fifo",
        preempts_within=(metadata.get("annotations") or {}).get(names.PREEMPT_WITHIN_QUEUE) != "false",
        min_runtime_s=_span_s(metadata, names.MIN_RUNTIME),
        most_mib=_most_mib(metadata),
    )


def _most_mib(metadata: Document) -> int | None:
    """The most memory of one share; None where no such limit is set, or garbage."""
    text = (metadata.get("annotations") or {}).get(names.QUEUE_LIMITS)
    try:
        return QueueLimits.decode(text).max_memory_mib_per_card if text is not None else None
    except QueueLimitsError:
        return None


def _span_s(metadata: Document, name: str) -> float | None:
    """The span of time in this annotation; None where there is none, or garbage."""
    text = (metadata.get("annotations") or {}).get(name)
    try:
        return parse_seconds(text) if text is not None else None
    except QuantityError:
        return None


def amounts(quantities: Document | None) -> dict[str, int]:
    """Quantities by resource name in whole units; cpu in thousandths."""
    return {
        name: units(value, scale=1000 if name == "cpu" else 1) for name, value in (quantities or {}).items()
    }
