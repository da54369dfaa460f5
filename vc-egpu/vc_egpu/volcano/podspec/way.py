"""Which way a pod goes to its node: by our own Binding, or by gate, pin and a scheduler. Pure.

*Direct*: the admission layer binds the pod, and the Binding carries its cards. That is right only where the
decision looks at all that a scheduler would look at. So the fields of a pod spec that are known to be
harmless, or to be part of the decision, stand in a list. Each other field sends the pod by a scheduler, and
so does a field that Kubernetes gets tomorrow.

*By a scheduler*: the pod carries our gate. Its plan pins it to its node, and the scheduler binds it there.
The scheduler looks at the rest: volumes that are to be bound, claims for devices.

The webhook writes the choice into the pod (``schedulerName``). Later readers read it there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from vc_egpu.volcano.words import names


class Way(StrEnum):
    """How a pod reaches its node."""

    DIRECT = "direct"
    SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True)
class Choice:
    """The way of one pod. ``because`` is empty for the direct way: nothing speaks against it."""

    way: Way
    because: str = ""


DIRECT: Final = Choice(Way.DIRECT)

_DECIDED: Final = frozenset(
    {
        "affinity",
        "containers",
        "initContainers",
        "nodeSelector",
        "overhead",
        "priority",
        "priorityClassName",
        "resources",
        "schedulerName",
        "schedulingGates",
        "tolerations",
        "topologySpreadConstraints",
        "volumes",
    }
)
"""What the decision reads, or what :func:`way_of` looks at more closely."""
_HARMLESS: Final = frozenset(
    {
        "activeDeadlineSeconds",
        "automountServiceAccountToken",
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostUsers",
        "hostname",
        "hostnameOverride",
        "imagePullSecrets",
        "os",
        "preemptionPolicy",
        "readinessGates",
        "restartPolicy",
        "runtimeClassName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "setHostnameAsFQDN",
        "shareProcessNamespace",
        "subdomain",
        "terminationGracePeriodSeconds",
    }
)
"""What no scheduler looks at. A RuntimeClass shows in overhead, tolerations and node selector."""
_PLAIN_VOLUMES: Final = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret"}
)
"""Volumes that are there on each node, or that only the kubelet looks at."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SELECTS: Final = frozenset({"labelSelector", "matchLabelKeys", "topologyKey"})
_TERM: Final = _SELECTS | {"namespaces", "namespaceSelector", "mismatchLabelKeys"}
_CONSTRAINT: Final = _SELECTS | {
    "maxSkew",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "whenUnsatisfiable",
}
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
"""What selectors of labels may say."""


def way_of(spec: Mapping[str, Any], *, by_scheduler: bool = False) -> Choice:
    """The way of a pod with this spec, as the API server shows it.

    ``by_scheduler``: the operator wants a scheduler to bind all pods (setting ``binder``).
    """
    if by_scheduler:
        return _sent("the operator's setting is binder: scheduler")
    for reason in (*_volumes(_entries(spec.get("volumes"))), *unread_rules(spec)):
        return _sent(reason)
    unknown = sorted(key for key, value in spec.items() if value and key not in _DECIDED | _HARMLESS)
    if unknown:
        return _sent(f"spec.{unknown[0][:63]} is left to a scheduler")
    return DIRECT


def _sent(because: str) -> Choice:
    return Choice(Way.SCHEDULER, because)


def _volumes(volumes: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for volume in volumes:
        kinds = sorted(key for key, value in volume.items() if key != "name" and value is not None)
        other = [kind for kind in kinds if kind not in _PLAIN_VOLUMES]
        if other:
            yield f"volume {str(volume.get('name'))[:63]!r} ({other[0][:63]}) may have a node of its own"


def unread_rules(spec: Mapping[str, Any]) -> Iterable[str]:
    """Rules between pods that have a word in them which :mod:`.neighbours` does not read."""
    affinity = _object(spec.get("affinity"))
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in _entries(_object(affinity.get(kind)).get(_REQUIRED)):
            yield from _unread(f"spec.affinity.{kind}", term, _TERM)
    for constraint in _entries(spec.get("topologySpreadConstraints")):
        if constraint.get("whenUnsatisfiable") != "ScheduleAnyway":
            yield from _unread("spec.topologySpreadConstraints", constraint, _CONSTRAINT)


def _unread(path: str, rule: Mapping[str, Any], known: frozenset[str]) -> Iterable[str]:
    selectors = (_object(rule.get(key)) for key in ("labelSelector", "namespaceSelector"))
    operators = {
        str(one.get("operator")) for each in selectors for one in _entries(each.get("matchExpressions"))
    }
    words = [f".{key[:63]}" for key, value in sorted(rule.items()) if value and key not in known]
    words += [f" with the operator {one[:63]!r}" for one in sorted(operators - _OPERATORS)]
    if not rule.get("topologyKey"):
        words.append(" without a topologyKey")
    if words:
        yield f"{path}{words[0]} is a rule between pods that is left to a scheduler"


def _object(value: object) -> Mapping[str, Any]:
    """The value if it is an object. What a review shows may be anything: the API server refuses it later."""
    return value if isinstance(value, Mapping) else {}


def _entries(value: object) -> Iterable[Mapping[str, Any]]:
    """The objects of a list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else ()


def is_direct(spec: Mapping[str, Any]) -> bool:
    """Whether this pod goes the direct way: the webhook wrote our own name as its scheduler's."""
    return spec.get("schedulerName") == names.SCHEDULER_DIRECT


def waits_for_us(spec: Mapping[str, Any]) -> bool:
    """Whether nothing can start this pod before the admission layer has let it go.

    It carries our gate, or no other program binds it. A pod that is bound waits for nothing.
    """
    if spec.get("nodeName"):
        return False
    gates = spec.get("schedulingGates") or ()
    return is_direct(spec) or any(gate.get("name") == names.GATE for gate in gates)
