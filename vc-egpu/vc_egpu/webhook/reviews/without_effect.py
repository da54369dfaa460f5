"""What is accepted and has no effect: a warning for each such field, or a refusal where its word is a must.

A field that says "must" and that nobody honours would be a promise. Where Volcano's scheduler binds, it may
honour its own fields, so there they are only told of.
"""

from collections.abc import Iterator
from typing import Final

from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.context import Settings, items, mapping
from vc_egpu.webhook.protocol.decision import Json, Refusal

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT: Final = "soft"
_HARD: Final = "hard"
_NUMA_MUSTS: Final = frozenset({"restricted", "single-numa-node"})
_MODE: Final = "volcano.sh/vgpu-mode"


def of_queue(spec: Json, stored: Json, settings: Settings) -> list[str]:
    """Warnings about fields of a Queue that are new in this edit. Raises :class:`Refusal`."""
    found: list[str] = []
    if spec.get("extendClusters") and spec.get("extendClusters") != stored.get("extendClusters"):
        found.append("spec.extendClusters: has no effect, the queue counts in this cluster alone")
    affinity = mapping(spec.get("affinity"))
    if affinity and affinity != mapping(stored.get("affinity")):
        for key in ("nodeGroupAffinity", "nodeGroupAntiAffinity"):
            if mapping(affinity.get(key)).get(_REQUIRED) and not _volcano_binds(settings):
                raise Refusal(
                    f"spec.affinity.{key}.{_REQUIRED}: nothing holds the queue's pods to it here; "
                    "use nodeSelector or nodeAffinity on the pods"
                )
        found.append("spec.affinity: has no effect on the plan; use nodeSelector or nodeAffinity on the pods")
    return found


def of_job(spec: Json, settings: Settings) -> list[str]:
    """Warnings about fields of a Job with cards. Raises :class:`Refusal`."""
    found: list[str] = []
    _levels(mapping(spec.get("networkTopology")), "spec.networkTopology")
    for task in items(spec.get("tasks")):
        path = f'spec.tasks["{str(mapping(task).get("name") or "")[:63]}"]'
        policy = str(mapping(task).get("topologyPolicy") or "none")
        if policy in _NUMA_MUSTS and not _volcano_binds(settings):
            raise Refusal(f"{path}.topologyPolicy: {policy!r} is held by nobody here; leave it out")
        if policy != "none":
            found.append(f"{path}.topologyPolicy: has no effect on the plan, cards are chosen without NUMA")
        found += _of_partitions(
            mapping(mapping(task).get("partitionPolicy")).get("networkTopology"),
            f"{path}.partitionPolicy.networkTopology",
            settings,
        )
    return found


def _levels(topology: Json, path: str) -> None:
    """Members of a gang share a domain of the network: a must needs the number of its tier."""
    if not topology or str(topology.get("mode") or _HARD) != _HARD:  # hard is Volcano's default
        return
    number = topology.get("highestTierAllowed")
    if not isinstance(number, int) or number < 1:
        raise Refusal(
            f'{path}.highestTierAllowed: mode "{_HARD}" needs the number of a tier, from 1 on (1 is the '
            f'nearest level, such as a rack); names of tiers are not read. Or write mode "{_SOFT}"'
        )


def _of_partitions(topology: object, path: str, settings: Settings) -> Iterator[str]:
    if not mapping(topology):
        return
    mode = str(mapping(topology).get("mode") or _HARD)
    if mode != _SOFT and not _volcano_binds(settings):
        raise Refusal(f'{path}.mode: "{mode[:63]}" is held by nobody here; leave it out, or write "{_SOFT}"')
    yield f"{path}: has no effect on the plan, partitions are placed as the Job is"


def of_pod(spec: Json, annotations: Json, path: str) -> list[str]:
    """Warnings about a pod, or a template of one. ``path``: of its object, empty for a pod itself."""
    below = f"{path}." if path else ""
    found: list[str] = []
    if mapping(mapping(spec.get("affinity")).get("nodeAffinity")).get(_PREFERRED):
        where = f"{below}spec.affinity.nodeAffinity.{_PREFERRED}"
        found.append(f"{where}: has no effect, the pod goes to the node of its plan")
    if annotations.get(_MODE) not in {None, "hami-core"}:
        found.append(
            f'{below}metadata.annotations["{_MODE}"]: has no effect, a node\'s label '
            f"{names.NODE_MODE_LABEL} says how its cards are offered"
        )
    return found


def _volcano_binds(settings: Settings) -> bool:
    return settings.scheduler_name == names.SCHEDULER_VOLCANO
