"""What the commands read from the cluster, before anything is made of it."""

import contextlib
import difflib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from vc_egpu.kube import ApiConnection, Json, Resource
from vc_egpu.kube.connection import PAGE_SIZE
from vc_egpu.kube.resources import BATCH_JOBS, CORE_EVENTS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS
from vc_egpu.kube.wire.errors import Forbidden, NotFound
from vc_egpu.volcano.api.conditions import condition_of
from vc_egpu.volcano.api.containers import IN_SPEC
from vc_egpu.volcano.podspec import way
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards, NodeCards
from vc_egpu.volcano.words.payer import checked_for, payer
from vc_egpu.volcano.words.resource_names import classify

_ONE_BY_ONE: Final = 32
MANAGED: Final = f"{names.MANAGED_LABEL}=true"
"""The label selector of pods that ask for cards."""


LEFT_TO_A_SCHEDULER: Final = "leftToAScheduler"
"""In the spec of a light pod: why a scheduler has to bind it; empty where we can."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects, and in words what could not be seen."""

    items: Sequence[Json]
    missing: str = ""


Transform = Callable[[Json], Json]


def list_all(
    api: ApiConnection,
    resource: Resource,
    namespace: str | None,
    *,
    label_selector: str | None = None,
    field_selector: str | None = None,
    transform: Transform | None = None,
    page_size: int = PAGE_SIZE,
) -> Listing:
    """Objects of all namespaces, or those of ``namespace`` where the user may see no more."""

    def listed(within: str | None) -> Sequence[Json]:
        return api.list(
            resource, within, label_selector=label_selector, field_selector=field_selector,
            transform=transform, page_size=page_size,
        ).items  # fmt: skip

    try:
        return Listing(listed(None))
    except Forbidden:
        if namespace is None or not resource.namespaced:
            raise
    items = listed(namespace)
    return Listing(items, f"you may list {resource.plural} in namespace {namespace} only")


def managed_pods(api: ApiConnection, namespace: str | None) -> Listing:
    """The pods that ask for cards, as far as the user may see them; a large cluster has many more others."""
    return list_all(api, PODS, namespace, label_selector=MANAGED, transform=light_pod)


MANY_PODS: Final = 1000
"""Where more pods than this ask for cards, only their metadata are read: 28,000 whole ones take gigabytes."""
_PAGE: Final = 5000
_NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"


def pods_on_cards(api: ApiConnection, namespace: str, node: str = "") -> Listing:
    """The pods that ask for cards and are not over, for a table of cards.

    With ``node`` those of that node, whole. Where there are many, their metadata alone: what they hold
    follows from it.
    """
    if node:
        on_it = f"spec.nodeName={node},{_NOT_OVER}"
        return list_all(
            api, PODS, namespace, label_selector=MANAGED, transform=light_pod, field_selector=on_it
        )
    found = list_all(
        api.metadata_only(), PODS, namespace, label_selector=MANAGED, transform=told_by_metadata,
        field_selector=_NOT_OVER, page_size=_PAGE,
    )  # fmt: skip
    return found if len(found.items) > MANY_PODS else managed_pods(api, namespace)


_OF_CARDS: Final = (
    names.REQUEST,
    names.CARDS,
    names.PRIORITY,
    names.GROUP_NAME,
    names.SUSPEND,
    names.QUEUE_NAME,
)
_IDENTITY: Final = ("name", "namespace", "uid", "deletionTimestamp")


def told_by_metadata(pod: Json) -> Json:
    """A pod as its metadata tell it: one with cards runs, one that asks and has none waits."""
    metadata = pod["metadata"]
    written = metadata.get("annotations") or {}
    kept = {name: metadata[name] for name in _IDENTITY if name in metadata}
    kept["annotations"] = {name: written[name] for name in _OF_CARDS if name in written}
    kept["labels"] = {
        name: value for name, value in (metadata.get("labels") or {}).items() if name == names.JOB_QUEUE_NAME
    }
    gated = names.CARDS not in written
    spec = {"schedulingGates": [{"name": names.GATE}]} if gated else {}
    return {"metadata": kept, "spec": spec, "status": {"phase": "Pending" if gated else "Running"}}


def light_pod(pod: Json) -> Json:
    """A pod without its containers: read by Python they are 30 KB that no table shows."""
    return _light(pod, "schedulingGates", "schedulerName", "nodeName")


def pod_with_limits(pod: Json) -> Json:
    """A pod with no more of its containers than what they ask for."""
    spec = pod.get("spec") or {}
    limits = {
        kind: [{"resources": {"limits": (one.get("resources") or {}).get("limits")}} for one in spec[kind]]
        for kind in IN_SPEC
        if spec.get(kind)
    }
    light = light_pod(pod)
    because = way.way_of(spec).because
    return {**light, "spec": {**light["spec"], **limits, LEFT_TO_A_SCHEDULER: because}}


def light_maker(maker: Json) -> Json:
    """What makes pods, without their template: Deployments keep ten ReplicaSets each."""
    return _light(maker, "replicas", "parallelism", "suspend", "schedule")


def light_node(node: Json) -> Json:
    """A node without the list of its images, which is most of it."""
    status = {key: value for key, value in (node.get("status") or {}).items() if key != "images"}
    return {**_light(node, "unschedulable", "taints"), "status": status}


def _light(document: Json, *of_spec: str) -> Json:
    document["metadata"].pop("managedFields", None)
    spec = document.get("spec") or {}
    return {**document, "spec": {key: spec[key] for key in of_spec if key in spec}}


def list_optional(
    api: ApiConnection,
    resource: Resource,
    namespace: str | None = None,
    transform: Transform | None = None,
) -> Listing:
    """Objects; none, and a word why, where the API or the right to see them is missing."""
    try:
        return Listing(api.list(resource, namespace, transform=transform).items)
    except NotFound:
        return Listing((), f"the cluster has no {resource.plural}.{resource.group}")
    except Forbidden:
        return Listing((), f"you may not list {resource.plural}")


def makers(api: ApiConnection, namespace: str | None) -> list[Json]:
    """What makes pods and says of itself how many it wants, as far as the user may see it."""
    kinds = (REPLICA_SETS, STATEFUL_SETS, BATCH_JOBS)
    return [maker for one in kinds for maker in list_optional(api, one, namespace, light_maker).items]


def events(api: ApiConnection, namespace: str | None, reasons: Iterable[str]) -> list[Json]:
    """Events of these reasons, as far as the user may see them: of others there may be a hundred thousand."""
    listed: list[Json] = []
    with contextlib.suppress(Forbidden):
        for reason in reasons:
            listed += api.list(CORE_EVENTS, namespace, field_selector=f"reason={reason}").items
    return listed


def nodes_named(api: ApiConnection, wanted: Sequence[str]) -> dict[str, Json] | None:
    """These nodes by name, as far as they exist; None where the user may not see nodes.

    A few are asked for one by one: all nodes of a large cluster are tens of megabytes.
    """
    found: dict[str, Json] = {}
    try:
        if len(wanted) > _ONE_BY_ONE:
            listed = api.list(NODES, transform=light_node).items
            return {node["metadata"]["name"]: node for node in listed}
        for name in wanted:
            try:
                found[name] = api.get(NODES, name)
            except NotFound:
                continue
    except Forbidden:
        return None
    return found


def nodes_and_pods(api: ApiConnection, namespace: str) -> tuple[Listing, Listing]:
    """All nodes, and the pods that the user may see."""
    return Listing(api.list(NODES, transform=light_node).items), managed_pods(api, namespace)


def annotations(document: Json) -> Mapping[str, str]:
    """Annotations of an object."""
    return document["metadata"].get("annotations") or {}


def labels(document: Json) -> Mapping[str, str]:
    """Labels of an object."""
    return document["metadata"].get("labels") or {}


def name(document: Json) -> str:
    """Its name."""
    return str(document["metadata"]["name"])


def key(document: Json) -> str:
    """``namespace/name``, or the name of what has no namespace."""
    metadata = document["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


def phase(pod: Json) -> str:
    """A pod's phase in one word, as a user thinks of it."""
    status = pod.get("status") or {}
    word = str(status.get("phase") or "Pending")
    if pod["metadata"].get("deletionTimestamp") and word not in {"Succeeded", "Failed"}:
        return "Terminating"
    if word == "Pending" and waits_for_us(pod):
        return "Gated"
    said = (condition(pod, names.CONDITION_SUSPENDED) or {}).get("reason", "")
    return said if word == "Running" and said in ON_ITS_WAY else word


ON_ITS_WAY: Final = frozenset({"Suspending", "Suspended", "Resuming"})
"""Reasons of the condition that say where a running pod is."""


def finished(pod: Json) -> bool:
    """Whether its shares have ended with it."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def waits_for_us(pod: Json) -> bool:
    """Whether nothing can start it before the admission layer has let it go."""
    return way.waits_for_us(pod.get("spec") or {})


def gates(pod: Json) -> tuple[str, ...]:
    """Its scheduling gates."""
    return tuple(gate["name"] for gate in (pod.get("spec") or {}).get("schedulingGates") or ())


def cards_of(pod: Json) -> Cards | None:
    """The cards a pod was given; None if none, or if the annotation is not of this pod."""
    text = annotations(pod).get(names.CARDS)
    if text is None:
        return None
    try:
        cards = Cards.decode(text)
    except AnnotationError:
        return None
    return cards if cards.pod_uid == pod["metadata"]["uid"] else None


def nearest_pod(name: str, pods: Iterable[Json]) -> str:
    """A pod with cards that may be meant: of the Job of that name, or one that is called much the same."""
    known = sorted(str(pod["metadata"]["name"]) for pod in pods if cards_of(pod) is not None)
    of_job = [pod for pod in known if pod.startswith(f"{name}-")]
    return next(iter(of_job or difflib.get_close_matches(name, known, 1)), "")


def inventory_of(node: Json) -> NodeCards | None:
    """The inventory that a node's agent wrote; None if there is none. Garbage becomes its ``problem``."""
    text = annotations(node).get(names.NODE_CARDS)
    if text is None:
        return None
    try:
        return NodeCards.decode(text)
    except AnnotationError as error:
        return NodeCards(problem=f"annotation {names.NODE_CARDS} is malformed: {error}"[:512])


def cordoned(node: Json) -> frozenset[str]:
    """UUIDs that the operator wrote on a node: cards that shall take nothing new."""
    parts = (part.strip() for part in annotations(node).get(names.CORDONED_CARDS, "").split(","))
    return frozenset(filter(None, parts))


def cordoned_strangers(node: Json, inventory: NodeCards) -> list[str]:
    """What the operator cordoned and the node has not: misspelt, or the card has been taken out."""
    return sorted(cordoned(node) - {card.uuid for card in inventory.cards})


def condition(document: Json, kind: str = names.CONDITION_ADMITTED) -> Mapping[str, str] | None:
    """One condition of an object."""
    return condition_of(document, kind)


def condition_is_true(document: Json, kind: str) -> bool:
    """Whether a condition of that type is there and holds."""
    return (condition(document, kind) or {}).get("status") == "True"


def is_ready(node: Json) -> bool:
    """Whether the kubelet says so, and the control plane has not lost it."""
    return condition_is_true(node, "Ready")


def time_of(instant: float) -> str:
    """Seconds since 1970 as the API server writes times."""
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def group_key(pod: Json) -> str:
    """``namespace/name`` of the pod's PodGroup, or an empty text."""
    group = annotations(pod).get(names.GROUP_NAME)
    return f"{pod['metadata']['namespace']}/{group}" if group else ""


def members_of(pods: Iterable[Json]) -> dict[str, list[Json]]:
    """Pods by the :func:`group_key` of their PodGroup: there may be thousands of both."""
    members: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        members[group_key(pod)].append(pod)
    return dict(members)


def checked_queue(pod: Json) -> str:
    """The queue that a pod was checked for at the door; empty where none is written on it."""
    return checked_for(annotations(pod), labels(pod))


def queue_of(group: Json, members: Iterable[Json]) -> str:
    """The queue that a gang counts to: see :mod:`vc_egpu.volcano.words.payer`."""
    named = str((group.get("spec") or {}).get("queue") or "default")
    return payer(named, (checked_queue(pod) for pod in members if not finished(pod)))


def class_of(group: Json, members: Iterable[Json]) -> str:
    """high, low or unset, as the first that names a class has it."""
    for document in (*members, group):
        named = annotations(document).get(names.PRIORITY)
        if named:
            return named
    return "unset"


def models_in(capability: Mapping[str, object]) -> list[str]:
    """Models that a queue's cap names, in order."""
    kinds = [classify(name) for name in capability]
    return sorted({kind.model for kind in kinds if kind.is_managed})
