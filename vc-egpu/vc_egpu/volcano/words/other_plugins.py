"""Which other software may offer a node's cards.

Other device plugins are known by their resources. Drivers of dynamic resource allocation (DRA) are known by
their ResourceSlices: no resource of the Node tells anything about them.

Pure. The node agent offers nothing of what others have, and ``kubectl egpu doctor`` says where both are.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.words.quantity import QuantityError, parse_whole

FOREIGN_RESOURCES: Final = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-*",
    "nvidia.com/vgpu",
    "volcano.sh/vgpu-number",
    "volcano.sh/gpu-number",
    "volcano.sh/gpu-memory",
    "aliyun.com/gpu-mem",
    "aliyun.com/gpu-count",
    "tencent.com/vcuda-core",
)
"""NVIDIA's plugin (whole, time-sliced under another name, MIG of strategy mixed) and HAMi's; an older name of
HAMi's; Volcano's two; Alibaba's; Tencent's. ``*`` stands for anything."""
FOREIGN_DRIVERS: Final = ("gpu.nvidia.com", "hami-core-gpu.project-hami.io")
"""Drivers of ResourceSlices. NVIDIA's ``compute-domain.nvidia.com`` is not one: it has channels, no cards."""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether any pattern means that name; ``*`` stands for anything."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def amount(raw: object) -> int:
    """A resource's quantity, rounded down; 1 for what cannot be read, since something is there."""
    if raw is None:
        return 0
    try:
        return parse_whole(raw)
    except QuantityError:
        return 1


def resources_of_others(amounts: Mapping[str, object], patterns: Iterable[str]) -> dict[str, int]:
    """Those of a Node's capacity or allocatable that are other plugins' and not zero, by name."""
    wanted = tuple(patterns)
    found = {name: amount(raw) for name, raw in amounts.items() if matches(name, wanted)}
    return {name: found[name] for name in sorted(found) if found[name] > 0}


def asked(spec: Mapping[str, Any]) -> set[str]:
    """Names of the extended resources that a pod's containers request, whichever plugin offers them."""
    return {
        name
        for container in containers_of(spec)
        for name, raw in ((container.get("resources") or {}).get("requests") or {}).items()
        if "/" in name and amount(raw) > 0
    }


def slim_slice(document: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a ResourceSlice: its driver and node, and how many devices.

    The whole slices of a large node are a megabyte.
    """
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    kept = ("name", "uid", "resourceVersion")
    return {
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {
            **{key: spec.get(key) for key in ("driver", "nodeName", "pool")},
            "devices": [{} for _ in spec.get("devices") or ()],
        },
    }


def devices_of_others(
    slices: Iterable[Mapping[str, Any]], drivers: Iterable[str]
) -> dict[str, dict[str, int]]:
    """Node name to driver to the number of devices that its ResourceSlices list for that node.

    A driver's newest generation of a pool counts: while it writes a new one, the old one is still there."""
    wanted = tuple(drivers)
    pools: dict[tuple[str, str, str], dict[int, int]] = {}
    for one in slices:
        spec = one.get("spec") or {}
        driver, node = str(spec.get("driver") or ""), str(spec.get("nodeName") or "")
        if not node or not matches(driver, wanted):
            continue
        pool = spec.get("pool") or {}
        generations = pools.setdefault((node, driver, str(pool.get("name") or "")), {})
        generation = amount(pool.get("generation"))
        generations[generation] = generations.get(generation, 0) + len(spec.get("devices") or ())
    found: dict[str, dict[str, int]] = {}
    for (node, driver, _pool), generations in sorted(pools.items()):
        count = generations[max(generations)]
        if count:
            of_node = found.setdefault(node, {})
            of_node[driver] = of_node.get(driver, 0) + count
    return found
