"""What is kept of API objects in memory: all that our processes read of them, and nothing else.

A controller that looks at a whole cluster has every pod and node in memory. It has no use for most of an
object: environments, mounts, probes, images. A pod of 6 KB of JSON, read as it comes, is 34 KB of Python
objects. 60,000 such pods would not fit into 2 GiB. As kept here, a pod is 3 KB. What pods of one controller
have in common (their containers, that is) is kept once.

The functions take documents as the API server writes them and return new ones of the same shape. They take
their own results as well. Code that begins to read another field adds the field here. The tests change each
field of a full object to see that none is missing.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from vc_egpu.volcano import room
from vc_egpu.volcano.api.containers import IN_SPEC, IN_STATUS, containers_of, waiting_of
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.codec.pod_codec import is_managed, takes_room
from vc_egpu.volcano.needs.nvidia import LONGEST_VALUE, is_word
from vc_egpu.volcano.podspec.neighbours import keeping_away
from vc_egpu.volcano.podspec.plugin_ports import MOST_ARGUMENTS, PLUGINS_WITH_PORTS
from vc_egpu.volcano.podspec.sums import RESIZE_PENDING, is_over
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.resource_names import asked_in

Json = dict[str, Any]

_IDENTITY: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
)
_CONTAINER: Final = ("name", "resources", "restartPolicy")
_OF_A_TASK: Final = (*_CONTAINER, "image")
_PORT: Final = ("hostIP", "protocol", "hostPort")
_TAKES: Final = ("resources", "overhead")
"""What says how much of its node a pod takes, apart from its containers."""
_WISHES: Final = ("tolerations", "nodeSelector", "priority", "schedulerName")
_OF_ONE: Final = (
    "nodeName",
    "affinity",
    "topologySpreadConstraints",
    "schedulingGates",
    "activeDeadlineSeconds",
)
"""What pods of one controller do not have in common."""
_OF_TEMPLATES: Final = ("hostNetwork", "runtimeClassName")
"""What the API server has not yet made into ports, overhead, tolerations and the like."""
_GIVEN: Final = ("name", "resources", "allocatedResources")
_SHARED_SPECS: Final = 8192
_SHARED_BYTES: Final = 4096
"""Most have some hundred. A larger one goes with its pod: else a tenant could fill memory with dead pods."""


@lru_cache(maxsize=_SHARED_SPECS)
def _shared(text: bytes) -> Json:
    """The same object for the same text: no caller changes what was read."""
    document: Json = orjson.loads(text)
    return document


def of(plural: str, document: Json) -> Json:
    """What is kept of an object of this kind.

    A malformed object is kept whole, and its reader says what is wrong. Templates of Jobs can hold anything.
    """
    keep = _KINDS.get(plural)
    try:
        return keep(document) if keep is not None else document
    except (KeyError, TypeError, ValueError, AttributeError):
        return document


def pod(document: Document) -> Json:
    """A pod. For a foreign pod: how far it is, and while it takes room on a node, what, and next to whom."""
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    kept = _some(metadata, _IDENTITY)
    resized = _resized(spec, status)
    if not is_managed(metadata, spec):
        # A tenant may make thousands of pods that no node takes, with a megabyte of requests each.
        takes = (
            _common(spec, _TAKES, _CONTAINER if resized else _CONTAINER[1:])
            if takes_room(spec, status)
            else {}
        )
        if takes:
            kept |= _alike(_some(metadata, ("labels",)))
            takes = {**takes, **_alike(keeping_away(spec))}
        return {
            "metadata": kept,
            "spec": {**takes, **_some(spec, ("nodeName",))},
            "status": _foreign_status(status) | (resized if takes else {}),
        }
    kept |= _some(metadata, ("labels", "ownerReferences"))
    # What its alternatives ask for stands in its request: the webhook alone reads what they run.
    for key in (names.LAST_APPLIED, names.ALTERNATIVES):
        kept |= room.without({**metadata, **kept}, key)
    claims = [v for volume in spec.get("volumes") or () if (v := _claiming(volume))]
    wishes = _common(spec, (*_TAKES, *_WISHES), _CONTAINER)
    return {
        "metadata": kept,
        "spec": {**wishes, **_some(spec, _OF_ONE), **({"volumes": claims} if claims else {})},
        "status": _managed_status(status, resized),
    }


def _claiming(volume: Document) -> Document | None:
    """A volume that leads to a claim. If the claim is made for the pod alone, only that fact is kept."""
    if "ephemeral" in volume:
        return {"name": volume["name"], "ephemeral": {}}
    return volume if "persistentVolumeClaim" in volume else None


def node(document: Document) -> Json:
    """A node: what it offers, and what our agents say about it."""
    metadata, spec, status = document["metadata"], document.get("spec") or {}, document.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return {
        "metadata": {
            **_some(metadata, (*_IDENTITY, "labels")),
            "annotations": {
                k: v for k, v in annotations.items() if k.startswith(f"{names.DOMAIN}/") or k == names.STAYS
            },
        },
        "spec": _some(spec, ("taints", "unschedulable")),
        "status": {
            **_some(status, ("allocatable",)),
            "conditions": [
                _some(c, ("type", "status")) for c in status.get("conditions") or () if c["type"] == "Ready"
            ],
        },
    }


def job(document: Document) -> Json:
    """A Volcano Job: what its pods will ask for, and whether it has begun.

    A foreign Job is kept without its tasks: no check has limited how much they hold.
    """
    metadata, spec = document["metadata"], document["spec"]
    tasks = [_task(task) for task in spec.get("tasks") or ()]
    if not any(names.MANAGED_LABEL in (task["template"]["metadata"].get("labels") or {}) for task in tasks):
        tasks = []
    state = (document.get("status") or {}).get("state") or {}
    return {
        "metadata": _some(metadata, _IDENTITY),
        "spec": {**_some(spec, ("queue",)), **_plugins(spec, tasks), "tasks": tasks},
        "status": {"state": _some(state, ("phase",))},
    }


def _plugins(spec: Document, tasks: Iterable[Document]) -> Json:
    """The plugins that open ports, where these are ports of the node."""
    if not any(task["template"]["spec"].get("hostNetwork") for task in tasks):
        return {}
    plugins = spec.get("plugins") or {}
    kept = {name: (plugins[name] or [])[:MOST_ARGUMENTS] for name in PLUGINS_WITH_PORTS if name in plugins}
    return {"plugins": kept} if kept else {}


def pod_group(document: Document) -> Json:
    """A PodGroup. One name of the resources that it needs is kept: the name shows that it asks for cards."""
    spec = document["spec"]
    needs = spec.get("minResources") or {}
    shown = asked_in(needs)
    kept = {} if shown is None else {shown: needs[shown]}
    return {**document, "spec": {**spec, **({"minResources": kept} if needs else {})}}


def volume(document: Document) -> Json:
    """A PersistentVolume: where it can be used."""
    spec = document.get("spec") or {}
    return {"metadata": _some(document["metadata"], _IDENTITY), "spec": _some(spec, ("nodeAffinity",))}


def claim(document: Document) -> Json:
    """A PersistentVolumeClaim: the volume that it is bound to."""
    spec = document.get("spec") or {}
    return {"metadata": _some(document["metadata"], _IDENTITY), "spec": _some(spec, ("volumeName",))}


def runtime_class(document: Document) -> Json:
    """A RuntimeClass: what pods get that name it."""
    kept = _some(document, ("overhead", "scheduling"))
    return {"metadata": _some(document["metadata"], _IDENTITY), **kept}


def namespace(document: Document) -> Json:
    """A namespace: its labels, by which rules between pods select it."""
    return {"metadata": _some(document["metadata"], (*_IDENTITY, "labels"))}


def _task(task: Document) -> Json:
    template = task.get("template") or {}
    metadata = template.get("metadata") or {}
    return {
        **_some(task, ("name", "replicas")),
        "template": {
            "metadata": _some(metadata, ("labels", "annotations")),
            "spec": {
                **_common(template.get("spec") or {}, (*_TAKES, *_WISHES, *_OF_TEMPLATES), _OF_A_TASK),
                **_some(template.get("spec") or {}, ("affinity", "topologySpreadConstraints")),
            },
        },
    }


def _common(spec: Document, keys: Iterable[str], keep: tuple[str, ...]) -> Json:
    """The part of a spec that many pods share, once for all of them; ``keep``: fields of containers."""
    part = _some(spec, keys)
    for kind in IN_SPEC:
        if containers := spec.get(kind):
            part[kind] = [_container(c, keep, in_hosts_network="hostNetwork" in part) for c in containers]
    return _alike(part)


def _alike(part: Json) -> Json:
    """The same object for parts that say the same."""
    text = orjson.dumps(part)
    return _shared(text) if len(text) <= _SHARED_BYTES else _shared.__wrapped__(text)


def _container(container: Document, keys: Iterable[str], *, in_hosts_network: bool) -> Json:
    kept, ports = _some(container, keys), container.get("ports") or ()
    if "image" in kept and (said := _said(container)):
        kept["env"] = said
    if in_hosts_network:
        taken = [_some(port, (*_PORT, "containerPort")) for port in ports]
    else:
        taken = [_some(port, _PORT) for port in ports if port.get("hostPort")]
    return {**kept, "ports": taken} if taken else kept


def _said(container: Document) -> list[Json]:
    """The variables that say what the container's program needs of its node."""
    return [
        _some(entry, ("name", "value"))
        for entry in container.get("env") or ()
        if is_word(entry["name"]) and len(entry.get("value") or "") <= LONGEST_VALUE
    ]


def _foreign_status(status: Document) -> Json:
    return _some(status, ("phase", "startTime")) | _ends(status)


def _managed_status(status: Document, resized: Json) -> Json:
    kept = _some(status, ("phase", "startTime", "reason", "message"))
    if ends := _ends(status):
        return kept | ends
    kept |= resized
    for kind in IN_STATUS:
        if containers := status.get(kind):
            given = resized.get(kind) or [{}] * len(containers)
            kept[kind] = [_waiting(c) | has for c, has in zip(containers, given, strict=True)]
    ours = [c for c in status.get("conditions") or () if c["type"].startswith(f"{names.DOMAIN}/")]
    if ours:
        kept["conditions"] = ours + resized.get("conditions", [])
    return kept


def _resized(spec: Document, status: Document) -> Json:
    """For a pod that is being resized: what its node has given it. All others have what their spec says."""
    if is_over(status):
        return {}
    asked = {c.get("name"): c for c in containers_of(spec)}
    given = {key: status[key] for key in IN_STATUS if status.get(key)}
    pairs = [(one, asked.get(one.get("name"), {})) for statuses in given.values() for one in statuses]
    if not any(_is_unlike(has, asks) for has, asks in (*pairs, (status, spec))):
        return {}
    conditions = [c for c in status.get("conditions") or () if c["type"] == RESIZE_PENDING]
    return {
        **{key: [_some(one, _GIVEN) for one in statuses] for key, statuses in given.items()},
        **_some(status, _GIVEN),
        **({"conditions": conditions} if conditions else {}),
    }


def _is_unlike(has: Document, asks: Document) -> bool:
    if has.get("resources") is None:
        return False
    wanted = (asks.get("resources") or {}).get("requests") or {}
    set_aside = has.get("allocatedResources")
    return (has["resources"].get("requests") or {}) != wanted or (set_aside or wanted) != wanted


def _ends(status: Document) -> Json:
    """For a pod that is over: what says when it ended, and why."""
    if not is_over(status):
        return {}
    return _some(status, ("conditions", *IN_STATUS))


def _waiting(container: Document) -> Json:
    """Why a container does not start, where it does not."""
    waiting = waiting_of(container)
    return {"state": {"waiting": _some(waiting, ("message",))}} if waiting else {}


def _some(document: Document, keys: Iterable[str]) -> Json:
    return {key: document[key] for key in keys if key in document}


_KINDS: Final[Mapping[str, Callable[[Document], Json]]] = {
    "pods": pod,
    "nodes": node,
    "jobs": job,
    "podgroups": pod_group,
    "persistentvolumes": volume,
    "persistentvolumeclaims": claim,
    "runtimeclasses": runtime_class,
    "namespaces": namespace,
}
