"""What is kept of each object: no more than rows are made of. Pods come as metadata alone.

A pod's metadata tell its cards, its class, its gang and its queue. What its spec and status say follows.
A pod that asks and has no cards yet is gated, and one with cards runs.
"""

import sys
from typing import Any, Final

from vc_egpu.cli import partial_snapshot, world
from vc_egpu.core.model.cluster import Pod
from vc_egpu.kube import Json
from vc_egpu.volcano.codec.suspension import SuspendOrder
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError
from vc_egpu.volcano.words.makers import controller_in

POD: Final = "decodedPod"
"""In a light pod: its value for the core. The cards annotation is not kept then."""
ORDER: Final = "decodedOrder"
MOST_MESSAGE: Final = 1024
"""Characters of a text that another user wrote."""

_NOTHING: Final[Json] = {}
_GATED: Final[Json] = {"schedulingGates": [{"name": names.GATE}]}
_RUNNING: Final[Json] = {"phase": "Running"}
_PENDING: Final[Json] = {"phase": "Pending"}
"""Shared by all pods, and never changed."""
_POD_ANNOTATIONS: Final = (names.REQUEST, names.PRIORITY, names.GROUP_NAME, names.SUSPEND, names.QUEUE_NAME)
_POD_LABELS: Final = (names.JOB_QUEUE_NAME, names.JOB_NAME, "pod-template-hash")
_NODE_ANNOTATIONS: Final = (names.NODE_CARDS, names.CORDONED_CARDS, names.NODE_SUSPENSION)
_GROUP_ANNOTATIONS: Final = (names.PRIORITY,)
_IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")


def pod(document: Json) -> Json:
    """A pod, whole or its metadata, with its decoded value under :data:`POD`."""
    light = _metadata(document, (*_POD_ANNOTATIONS, names.CARDS), _POD_LABELS)
    annotations = light["metadata"]["annotations"]
    has_cards = world.cards_of(light) is not None
    waits = names.REQUEST in annotations and not has_cards
    light["spec"] = _GATED if waits else _NOTHING
    light["status"] = _RUNNING if has_cards else _PENDING
    (found,) = partial_snapshot.pods_of([light]).pods.values()
    light[POD] = found
    light[ORDER] = _order(annotations.get(names.SUSPEND), found)
    # What is decoded is not kept as text, too; what many pods have in common is kept once.
    decoded = (names.CARDS, names.REQUEST, names.SUSPEND)
    light["metadata"]["annotations"] = {
        key: sys.intern(value) for key, value in annotations.items() if key not in decoded
    }
    light["metadata"]["namespace"] = sys.intern(light["metadata"]["namespace"])
    light["metadata"]["labels"] = light["metadata"]["labels"] or _NOTHING
    return light


def _order(text: str | None, pod: Pod) -> SuspendOrder | None:
    try:
        order = SuspendOrder.decode(text) if text is not None else None
    except AnnotationError:
        return None
    return order if order is not None and order.pod_uid == pod.uid else None


def node(document: Json) -> Json:
    """A node: its inventory, its cordons and whether it is ready."""
    light = _metadata(document, _NODE_ANNOTATIONS, ())
    light["spec"] = {"unschedulable": bool((document.get("spec") or {}).get("unschedulable"))}
    light["status"] = {"conditions": [dict(ready)] if (ready := world.condition(document, "Ready")) else []}
    for condition in light["status"]["conditions"]:
        for key in ("lastHeartbeatTime", "message"):
            condition.pop(key, None)
    return light


def group(document: Json) -> Json:
    """A PodGroup: what it asks for and what was decided."""
    light = _metadata(document, _GROUP_ANNOTATIONS, ())
    spec, status = document.get("spec") or {}, document.get("status") or {}
    light["spec"] = {key: spec[key] for key in ("queue", "minMember") if key in spec}
    kinds = (names.CONDITION_ADMITTED, names.CONDITION_SUSPENDED)
    conditions = [dict(found) for kind in kinds if (found := world.condition(document, kind))]
    for condition in conditions:
        condition["message"] = str(condition.get("message") or "")[:MOST_MESSAGE]
    light["status"] = {"phase": status.get("phase"), "conditions": conditions}
    return light


def queue(document: Json) -> Json:
    """A Queue without what tools wrote on it."""
    light = _metadata(document, (), ())
    return {**light, "spec": document.get("spec") or {}, "status": document.get("status") or {}}


def event(document: Json) -> Json:
    """An event of the admission controller."""
    light = _metadata(document, (), ())
    about = document.get("involvedObject") or {}
    series = document.get("series") or {}
    when = series.get("lastObservedTime") or document.get("eventTime") or document.get("lastTimestamp") or ""
    light["row"] = {
        "at": str(when)[:32],
        "reason": str(document.get("reason") or "")[:128],
        "warning": document.get("type") == "Warning",
        "kind": str(about.get("kind") or "")[:64],
        "namespace": str(about.get("namespace") or "")[:64],
        "name": str(about.get("name") or "")[:256],
        "message": str(document.get("message") or "")[:MOST_MESSAGE],
        "count": int(series.get("count") or document.get("count") or 1),
    }
    return light


def is_same(before: Json | None, now: Json) -> bool:
    """Whether nothing of what is kept has changed: heartbeats change the version alone."""
    return before is not None and _without_version(before) == _without_version(now)


def _without_version(light: Json) -> Json:
    metadata = {key: value for key, value in light["metadata"].items() if key != "resourceVersion"}
    return {**light, "metadata": metadata}


def _metadata(document: Json, annotations: tuple[str, ...], labels: tuple[str, ...]) -> Json:
    """The metadata of an object, and of its annotations and labels only these."""
    whole = document["metadata"]
    kept: dict[str, Any] = {key: whole[key] for key in _IDENTITY if key in whole}
    for field, wanted in (("annotations", annotations), ("labels", labels)):
        found = whole.get(field) or {}
        kept[field] = {key: found[key] for key in wanted if key in found}
    if controller := controller_in(whole):
        kept["ownerReferences"] = [
            {key: controller.get(key) for key in ("apiVersion", "kind", "name", "uid", "controller")}
        ]
    return {
        **{key: document[key] for key in ("apiVersion", "kind") if key in document},
        "metadata": kept,
    }
