"""Sums of quantities: what a pod requests the scheduler's way. The arithmetic under the codecs."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from vc_egpu.core.model.cluster import Resources
from vc_egpu.core.model.resources import CPU, EPHEMERAL, MEMORY, PODS
from vc_egpu.volcano.api.containers import is_sidecar, statuses_of
from vc_egpu.volcano.podspec.node_wishes import MOST_RESOURCES
from vc_egpu.volcano.words.names import RESOURCE_PREFIX
from vc_egpu.volcano.words.quantity import parse, parse_scaled
from vc_egpu.volcano.words.resource_names import classify

Document = Mapping[str, Any]
Sums = dict[str, int]
"""By resource: thousandths of cpu, whole units of all others."""
_EVERYWHERE: Final = frozenset({CPU, MEMORY, EPHEMERAL, PODS})
"""What every node has, whatever it offers besides."""
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


def is_ours(resource: str) -> bool:
    """Whether a resource is a share, a native card or one of their counters."""
    return resource.startswith(RESOURCE_PREFIX) and classify(resource).is_managed


def resources(amounts: Mapping[str, Any], *, pods: int = 0) -> Resources:
    """A list of quantities by resource name as the decision counts them; ours are left out."""
    counted = _counted(amounts)
    return _as_resources(counted, pods=counted.get(PODS, pods))


def _counted(amounts: Mapping[str, Any]) -> Sums:
    return {
        name: units(amount, scale=1000 if name == CPU else 1)
        for name, amount in amounts.items()
        if name in _EVERYWHERE or not is_ours(name)
    }


def _as_resources(counted: Sums, *, pods: int) -> Resources:
    scalars = {name: amount for name, amount in counted.items() if name not in _EVERYWHERE}
    get = counted.get
    return Resources(get(CPU, 0), get(MEMORY, 0), get(EPHEMERAL, 0), pods, scalars)


def only_offered(takes: Resources, offered: Container[str]) -> Resources:
    """The same without the other resources that no node offers, where a pod names very many.

    A pod may name tens of thousands. Each would be booked on its node and counted in its queue, and nothing
    is ever given out of them.
    """
    if len(takes.scalars) <= MOST_RESOURCES:
        return takes
    kept = {name: amount for name, amount in takes.scalars.items() if name in offered}
    return replace(takes, scalars=kept)


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
    total: Sums = {}
    for container in spec.get("containers") or ():
        _add(total, _requests(container, has))
    init_containers = spec.get("initContainers")
    if init_containers:
        _add_init(total, init_containers, has)
    pod_level = _of_the_pod(spec.get("resources") or {}, total)
    if pod_level:
        level = _counted(pod_level) if has.pod is None else _most(_counted(pod_level), has.pod, has)
        total |= {name: amount for name, amount in level.items() if name not in _EVERYWHERE}
        total |= {name: level.get(name, 0) for name in (CPU, MEMORY) if name in pod_level}
    _add(total, _counted(spec.get("overhead") or {}))
    return _as_resources(total, pods=1)


def _of_the_pod(block: Document, total: Sums) -> Document:
    """Pod-level requests. Where no container requests a resource, the pod's limit is its request.

    The API server fills that in, but templates of Jobs have not been through it.
    """
    given = (block.get("limits") or {}).items()
    limits = {name: n for name, n in given if name in {EPHEMERAL, PODS} or not total.get(name)}
    return {**limits, **(block.get("requests") or {})}


def _add_init(total: Sums, init_containers: Iterable[Document], has: Given) -> None:
    """Make the containers' ``total`` one with their sidecars, or the greediest moment before they begin."""
    sidecars: Sums = {}
    peak: Sums = {}
    for container in init_containers:
        if is_sidecar(container):
            request = _requests(container, has)
            _add(sidecars, request)
            _raise(peak, {name: sidecars[name] for name in request})
        else:
            request = _requests(container, NOTHING_GIVEN)
            _raise(peak, {name: sidecars.get(name, 0) + amount for name, amount in request.items()})
    _add(total, sidecars)
    _raise(total, peak)


def _requests(container: Document, has: Given) -> Sums:
    block = container.get("resources") or {}
    limits, requests = block.get("limits") or {}, block.get("requests") or {}
    # The API server fills requests from limits; templates of Jobs have not been through it.
    asked = _counted({**limits, **requests})
    has_now = has.containers.get(container["name"]) if has.containers else None
    return asked if has_now is None else _most(asked, has_now, has)


def _most(asked: Sums, has_now: tuple[Document, Document], has: Given) -> Sums:
    running, set_aside = has_now
    most = _counted(running)
    _raise(most, _counted(set_aside))
    if not has.infeasible:
        _raise(most, asked)
    return most


# In place: a sum of 400 containers with names of their own, made new for each, took half a minute.


def _add(total: Sums, more: Sums) -> None:
    for name, amount in more.items():
        total[name] = min(total.get(name, 0) + amount, MAX_AMOUNT)


def _raise(most: Sums, other: Sums) -> None:
    """Have at least as much as the other of everything."""
    for name, amount in other.items():
        most[name] = min(max(most.get(name, 0), amount), MAX_AMOUNT)
