"""Sums of quantities: what a pod requests the scheduler's way. The arithmetic under the codecs."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from vc_egpu.core.cluster import Resources
from vc_egpu.volcano.quantity import parse_scaled
from vc_egpu.volcano.resource_names import classify

MAX_AMOUNT: Final = 1 << 62
"""Amounts saturate here, so that sums over a cluster stay exact in 64-bit arithmetic."""


@lru_cache(maxsize=8192)
def _scaled(text: str, scale: int) -> int:
    return parse_scaled(text, scale)


def units(value: Any, *, scale: int = 1) -> int:
    """Whole units of a quantity times ``scale``, rounded up as the scheduler does, within 0 and 2^62.

    Raises :class:`vc_egpu.volcano.quantity.QuantityError`.
    """
    return max(0, min(_scaled(str(value), scale), MAX_AMOUNT))


@lru_cache(maxsize=1024)
def is_ours(resource: str) -> bool:
    """Whether a resource is a share, a native card or one of their counters."""
    return classify(resource).is_managed


def resources(amounts: Mapping[str, Any], *, pods: int = 0) -> Resources:
    """A list of quantities by resource name as the decision counts them; ours are left out."""
    scalars: dict[str, int] = {}
    cpu = memory = ephemeral = 0
    for name, amount in amounts.items():
        if name == "cpu":
            cpu = units(amount, scale=1000)
        elif name == "memory":
            memory = units(amount)
        elif name == "ephemeral-storage":
            ephemeral = units(amount)
        elif name == "pods":
            pods = units(amount)
        elif not is_ours(name):
            scalars[name] = units(amount)
    return Resources(cpu, memory, ephemeral, pods, scalars)


def pod_requests(spec: Mapping[str, Any]) -> Resources:
    """What the scheduler sets aside for a pod: containers and sidecars together, or its greediest init
    container beside the sidecars started before it, whichever is more, and the overhead. Pod-level
    requests, where given, replace the sum for cpu and memory."""
    total = _sum(_requests(container) for container in spec.get("containers") or ())
    init_containers = spec.get("initContainers")
    if init_containers:
        total = _beside_init(total, init_containers)
    pod_level = (spec.get("resources") or {}).get("requests")
    if pod_level:
        level = resources(pod_level)
        total = Resources(
            level.cpu_milli if "cpu" in pod_level else total.cpu_milli,
            level.memory_bytes if "memory" in pod_level else total.memory_bytes,
            total.ephemeral_bytes,
            0,
            {**total.scalars, **level.scalars},
        )
    overhead = spec.get("overhead")
    if overhead:
        total = _plus(total, resources(overhead))
    return Resources(total.cpu_milli, total.memory_bytes, total.ephemeral_bytes, 1, total.scalars)


def _beside_init(total: Resources, init_containers: Iterable[Mapping[str, Any]]) -> Resources:
    """The containers' ``total`` with their sidecars, or the greediest moment before they begin."""
    sidecars = Resources()
    peak = Resources()
    for container in init_containers:
        request = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = _plus(sidecars, request)
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _plus(sidecars, request))
    return _max(_plus(total, sidecars), peak)


def _requests(container: Mapping[str, Any]) -> Resources:
    block = container.get("resources") or {}
    limits, requests = block.get("limits") or {}, block.get("requests") or {}
    # The API server fills requests from limits; templates of Jobs have not been through it.
    return resources({**limits, **requests})


def _sum(parts: Iterable[Resources]) -> Resources:
    total = Resources()
    for part in parts:
        total = _plus(total, part)
    return total


def _plus(a: Resources, b: Resources) -> Resources:
    if a.scalars or b.scalars:
        scalars = {
            name: min(a.scalars.get(name, 0) + b.scalars.get(name, 0), MAX_AMOUNT)
            for name in {**a.scalars, **b.scalars}
        }
    else:
        scalars = {}
    return Resources(
        min(a.cpu_milli + b.cpu_milli, MAX_AMOUNT),
        min(a.memory_bytes + b.memory_bytes, MAX_AMOUNT),
        min(a.ephemeral_bytes + b.ephemeral_bytes, MAX_AMOUNT),
        0,
        scalars,
    )


def _max(a: Resources, b: Resources) -> Resources:
    scalars = {
        name: max(a.scalars.get(name, 0), b.scalars.get(name, 0)) for name in {**a.scalars, **b.scalars}
    }
    return Resources(
        max(a.cpu_milli, b.cpu_milli),
        max(a.memory_bytes, b.memory_bytes),
        max(a.ephemeral_bytes, b.ephemeral_bytes),
        0,
        scalars,
    )
