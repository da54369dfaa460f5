"""Exact sums of what pods request, all resources alike: for PodGroups' minResources, queues' status."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

from vc_egpu.volcano.api.containers import is_sidecar
from vc_egpu.volcano.words.quantity import QuantityError, parse_fraction

Amounts = dict[str, Fraction]
_NONE: Final = Fraction(0)


def of_pod(spec: Mapping[str, Any]) -> Amounts:
    """What the scheduler sets aside for a pod: containers and sidecars, or its greediest init step, and the
    overhead; and one of ``pods``. A quantity that cannot be read counts as nothing.

    One step for each quantity: a pod may name thousands of resources, some in each of its containers.
    """
    total: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        request = _of_container(container)
        if is_sidecar(container):
            _put(total, request)
        else:
            # What this step does not name is as large in the total, where no sidecar leaves.
            for name, amount in request.items():
                peak[name] = max(peak.get(name, _NONE), total.get(name, _NONE) + amount)
    for container in spec.get("containers") or ():
        _put(total, _of_container(container))
    total = _larger(total, peak)
    level = (spec.get("resources") or {}).get("requests")
    if level:
        total = {**total, **_amounts(level)}
    total = add(total, _amounts(spec.get("overhead") or {}))
    return add(total, {"pods": Fraction(1)})


def add(a: Amounts, b: Amounts) -> Amounts:
    """The sum, by resource."""
    return {name: a.get(name, Fraction(0)) + b.get(name, Fraction(0)) for name in {**a, **b}}


def times(a: Amounts, count: int) -> Amounts:
    """``count`` times ``a``."""
    return {name: value * count for name, value in a.items()}


def total(parts: Iterable[Amounts]) -> Amounts:
    """The sum of all. Pods of one template share their amounts: these are added up once."""
    alike: dict[int, list[Amounts]] = {}
    for part in parts:
        alike.setdefault(id(part), []).append(part)
    out: Amounts = {}
    for same in alike.values():
        out = add(out, times(same[0], len(same)))
    return out


def render(amounts: Amounts) -> dict[str, str]:
    """As quantities, in the order of names; cpu in milli where it is not whole, all else rounded up."""
    return {name: _render(name, value) for name, value in sorted(amounts.items())}


def _put(sums: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        sums[name] = sums.get(name, _NONE) + amount


def _render(name: str, value: Fraction) -> str:
    if name == "cpu" and value.denominator != 1:
        return f"{-((-value.numerator * 1000) // value.denominator)}m"
    return str(-((-value.numerator) // value.denominator))


def _of_container(container: Mapping[str, Any]) -> Amounts:
    block = container.get("resources") or {}
    # The API server fills requests from limits; templates of Jobs have not been through it.
    return _amounts({**(block.get("limits") or {}), **(block.get("requests") or {})})


def _amounts(quantities: Mapping[str, Any]) -> Amounts:
    out: Amounts = {}
    for name, quantity in quantities.items():
        try:
            out[name] = max(Fraction(0), parse_fraction(quantity))
        except QuantityError:
            continue
    return out


def _larger(a: Amounts, b: Amounts) -> Amounts:
    return {name: max(a.get(name, Fraction(0)), b.get(name, Fraction(0))) for name in {**a, **b}}
