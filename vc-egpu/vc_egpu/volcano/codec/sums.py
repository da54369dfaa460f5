"""Sums of quantities: what a pod requests the scheduler's way. The arithmetic under the codecs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from vc_egpu.core.model.cluster import Resources
from vc_egpu.volcano.api.containers import is_sidecar, statuses_of
from vc_egpu.volcano.words.quantity import parse, parse_scaled
from vc_egpu.volcano.words.resource_names import classify

Document = Mapping[str, Any]
RESIZE_PENDING: Final = "PodResizePending"
MAX_AMOUNT: Final = 1 << 62
"""Amounts saturate here, so that sums over a cluster stay exact in 64-bit arithmetic."""


@lru_cache(maxsize=8192)
def _scaled(text: str, scale: int) -> int:
    # The API server allows as many cores as bytes: in thousandths these are more than MAX_AMOUNT.
    return MAX_AMOUNT if parse(text).value * scale > MAX_AMOUNT else parse_scaled(text, scale)


def units(value: Any, *, scale: int = 1) -> int:
    """Whole units of a quantity times ``scale``, rounded up as the scheduler does, within 0 and 2^62.

    Raises :class:`vc_egpu.volcano.words.quantity.QuantityError`.
    """
    return max(0, _scaled(str(value), scale))


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


@dataclass(frozen=True, slots=True)
class Given:
    """What a pod's node has given it, as far as its status tells: it can be resized while it runs."""

    containers: Mapping[str, tuple[Document, Document]] = field(default_factory=dict)
    """By name: the requests it runs with, and those that the node has set aside."""
    pod: tuple[Document, Document] | None = None
    """The same of pod-level requests."""
    infeasible: bool = False
    """Its node cannot grant what its spec asks for now."""


NOTHING_GIVEN: Final = Given()


def is_over(status: Document) -> bool:
    """Whether a pod has run to its end, well or badly: it takes nothing any more."""
    return status.get("phase") in {"Succeeded", "Failed"}


def given(status: Document) -> Given:
    """For :func:`pod_requests`; a pod that is over has nothing."""
    if is_over(status):
        return NOTHING_GIVEN
    containers = {
        str(one.get("name")): _both(one) for one in statuses_of(status) if one.get("resources") is not None
    }
    level = _both(status) if status.get("resources") is not None else None
    if not containers and level is None:
        return NOTHING_GIVEN
    pending = next((c for c in status.get("conditions") or () if c["type"] == RESIZE_PENDING), None)
    return Given(containers, level, pending is not None and pending.get("reason") == "Infeasible")


def _both(status: Document) -> tuple[Document, Document]:
    return (status["resources"].get("requests") or {}, status.get("allocatedResources") or {})


def pod_requests(spec: Document, has: Given = NOTHING_GIVEN) -> Resources:
    """What the scheduler sets aside for a pod: the larger of two amounts, and the overhead.

    One amount is its containers and sidecars together. The other is its greediest init container with the
    sidecars started before it. Pod-level requests, where given, replace the sum for cpu and memory. While a
    pod is being resized, the most counts of what it asks for, has and is about to have. A request that its
    node cannot grant does not count.
    """
    total = _sum(_requests(container, has) for container in spec.get("containers") or ())
    init_containers = spec.get("initContainers")
    if init_containers:
        total = _with_init(total, init_containers, has)
    pod_level = _of_the_pod(spec.get("resources") or {}, total)
    if pod_level:
        level = resources(pod_level) if has.pod is None else _most(resources(pod_level), has.pod, has)
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


def _of_the_pod(block: Document, total: Resources) -> Document:
    """Pod-level requests. Where no container requests a resource, the pod's limit is its request.

    The API server fills that in, but templates of Jobs have not been through it.
    """
    requested = {"cpu": total.cpu_milli, "memory": total.memory_bytes, **total.scalars}
    limits = {name: n for name, n in (block.get("limits") or {}).items() if not requested.get(name)}
    return {**limits, **(block.get("requests") or {})}


def _with_init(total: Resources, init_containers: Iterable[Document], has: Given) -> Resources:
    """The containers' ``total`` with their sidecars, or the greediest moment before they begin."""
    sidecars = Resources()
    peak = Resources()
    for container in init_containers:
        if is_sidecar(container):
            request = _requests(container, has)
            sidecars = _plus(sidecars, request)
            peak = _max(peak, sidecars)
        else:
            peak = _max(peak, _plus(sidecars, _requests(container, NOTHING_GIVEN)))
    return _max(_plus(total, sidecars), peak)


def _requests(container: Document, has: Given) -> Resources:
    block = container.get("resources") or {}
    limits, requests = block.get("limits") or {}, block.get("requests") or {}
    # The API server fills requests from limits; templates of Jobs have not been through it.
    asked = resources({**limits, **requests})
    has_now = has.containers.get(container["name"]) if has.containers else None
    return asked if has_now is None else _most(asked, has_now, has)


def _most(asked: Resources, has_now: tuple[Document, Document], has: Given) -> Resources:
    running, set_aside = (resources(one) for one in has_now)
    most = _max(running, set_aside)
    return most if has.infeasible else _max(asked, most)


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
