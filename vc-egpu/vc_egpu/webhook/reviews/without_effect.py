"""What is accepted and has no effect: a warning for each such field, or a refusal where its word is a must.

A field that says "must" and that nobody honours would be a promise. Where Volcano's scheduler binds, it may
honour its own fields, so there they are only told of.
"""

from typing import Final

from vc_egpu.volcano.codec.request import PodAsk
from vc_egpu.volcano.podspec.way import unread_rules
from vc_egpu.volcano.words import names
from vc_egpu.webhook.protocol.context import Settings, items, mapping
from vc_egpu.webhook.protocol.decision import Json, Refusal
from vc_egpu.webhook.protocol.offers import Offers

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
    _check_must(spec.get("networkTopology"), "spec.networkTopology")
    for task in items(spec.get("tasks")):
        path = f'spec.tasks["{str(mapping(task).get("name") or "")[:63]}"]'
        policy = str(mapping(task).get("topologyPolicy") or "none")
        if policy in _NUMA_MUSTS and not _volcano_binds(settings):
            raise Refusal(f"{path}.topologyPolicy: {policy!r} is held by nobody here; leave it out")
        if policy != "none":
            found.append(f"{path}.topologyPolicy: has no effect on the plan, cards are chosen without NUMA")
        policy_path = f"{path}.partitionPolicy"
        partitions = mapping(mapping(task).get("partitionPolicy"))
        _check_must(partitions.get("networkTopology"), f"{policy_path}.networkTopology")
        total = partitions.get("totalPartitions")
        if partitions.get("minPartitions") not in {None, 0, total}:
            found.append(
                f"{policy_path}.minPartitions: counts as so many members of the task; "
                "which partitions they are of is not looked at"
            )
    return found


def _check_must(topology: object, path: str) -> None:
    """Members share a domain of the network: a must names its tier, by number or by name."""
    said = mapping(topology)
    if not said or str(said.get("mode") or _HARD) != _HARD:  # hard is Volcano's default
        return
    number, level = said.get("highestTierAllowed"), said.get("highestTierName")
    if number is not None and level:
        raise Refusal(f"{path}: highestTierAllowed and highestTierName both name the tier; leave one out")
    if level or (isinstance(number, int) and number >= 0):
        return
    raise Refusal(
        f'{path}.highestTierAllowed: mode "{_HARD}" needs the number of a tier, such as 1 for the nearest '
        f'level, or highestTierName its name. Or write mode "{_SOFT}"'
    )


def of_pod(spec: Json, annotations: Json, path: str) -> list[str]:
    """Warnings about a pod, or a template of one. ``path``: of its object, empty for a pod itself."""
    below = f"{path}." if path else ""
    found: list[str] = []
    found += [f"{below}{words}" for words in unread_rules(spec)]
    if annotations.get(_MODE) not in {None, "hami-core"}:
        found.append(
            f'{below}metadata.annotations["{_MODE}"]: has no effect, a node\'s label '
            f"{names.NODE_MODE_LABEL} says how its cards are offered"
        )
    return found


def of_limits(ask: PodAsk, annotations: Json, offers: Offers, path: str) -> list[str]:
    """Warnings about limits of shares that no node enforces, and about memory that spills nowhere.

    ``path``: of the object, empty for a pod itself. Nothing is said of models that no node offers.
    """
    asks = [one for way in ask.ways for one in way.containers.values()]
    shares = [one for one in asks if not (one.whole or one.native or one.slice)]
    models = {one.model for one in shares}
    below = f"{path}." if path else ""
    found: list[str] = []
    open_to_all, tight = offers.never_enforced(models), offers.never_stretched(models)
    without = f"no node with {', '.join(open_to_all)} has the isolation library"
    if open_to_all:
        cores = any(one.cores_percent for one in shares)
        named = f"{names.LIMIT_MEMORY} and {names.LIMIT_CORES}" if cores else names.LIMIT_MEMORY
        found.append(f"{below}spec: {named}: counted, and nothing keeps programs to it: {without}")
    if open_to_all and annotations.get(names.CORE_POLICY) is not None:
        found.append(f'{below}metadata.annotations["{names.CORE_POLICY}"]: has no effect, {without}')
    if annotations.get(names.OVERSUBSCRIBE) == "true":
        where = f'{below}metadata.annotations["{names.OVERSUBSCRIBE}"]'
        if tight:
            found.append(f"{where}: has no effect, memoryRatio is above 1 on no node with {', '.join(tight)}")
        elif open_to_all:
            found.append(f"{where}: changes the plan, and nothing spills: {without}")
    if annotations.get(names.OVERSUBSCRIBE) == "swap":
        where = f'{below}metadata.annotations["{names.OVERSUBSCRIBE}"]'
        if open_to_all:
            found.append(f"{where}: nobody can be made to wait for a turn: {without}")
        elif tight:
            found.append(
                f"{where}: its card is for it alone, since memoryRatio is above 1 on no node with "
                f"{', '.join(tight)}"
            )
    return found


def _volcano_binds(settings: Settings) -> bool:
    return settings.scheduler_name == names.SCHEDULER_VOLCANO
