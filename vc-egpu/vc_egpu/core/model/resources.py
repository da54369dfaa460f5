"""Names and amounts of what is counted: per model, per queue, per node.

The three typed resources of a model are spelt here, in the innermost layer, because caps are counted by them.
Every other module takes the spelling from here.
"""

import math
from collections.abc import Container, Mapping
from typing import Final

from vc_egpu.core.model.cluster import FULL_CORES_PERCENT, CardAsk, PodShape, Resources

SHARED_PREFIX: Final = "volcano.sh/vgpu-"
"""``volcano.sh/vgpu-<model>``: shares of cards of that model."""
NATIVE_PREFIX: Final = "volcano.sh/gpu-"
"""``volcano.sh/gpu-<model>``: whole cards without a library."""
MEMORY_TOTAL_SUFFIX: Final = "-memory"
CORES_TOTAL_SUFFIX: Final = "-cores"

LOW_SUFFIX: Final = "-low"
LOW_CORES_SUFFIX: Final = "-low-cores"
"""``volcano.sh/vgpu-<model>-low`` and ``-low-cores``: where a queue names these, low shares count there, and
not in the cards or the cores of the model. Words that end so are never models."""

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL: Final = "ephemeral-storage"
PODS: Final = "pods"

AMOUNT_LIMIT: Final = 1 << 48
"""Larger amounts are taken as this: 256 TiB of memory, and sums of 32,768 of them still fit 63 bits."""

PARTS_PREFIX: Final = "card-parts/"
"""Before the name of a model's resource: what is counted there in millionths of a card. Ours alone; no object
of the API server names it."""
MICROCARDS: Final = 1_000_000
"""One card in those units."""

PERMILLE: Final = 1000
_NOISE: Final = 1e-6
"""1.15 in floating point is a little less than that."""

ShapeKey = tuple[object, ...]


def clamp(amount: int) -> int:
    """Within 0 and :data:`AMOUNT_LIMIT`: a negative request frees nothing, a huge one never wraps."""
    return 0 if amount < 0 else min(amount, AMOUNT_LIMIT)


def permille(ratio: float) -> int:
    """A ratio in thousandths: sums of memory are whole numbers, the same wherever they are taken.

    What is finer is cut off, since agents go by the ratio itself and refuse what is above it.
    """
    return min(max(math.floor(ratio * PERMILLE + _NOISE), 0), AMOUNT_LIMIT // PERMILLE)


def cores_at(ratio: float) -> int:
    """Cores of a card, in percent, that may be promised at this ratio."""
    return FULL_CORES_PERCENT * permille(ratio) // PERMILLE


def physical_mib(memory_mib: int, ratio_permille: int) -> int:
    """What of a share that may spill lies on the card, where memory is promised ``ratio`` times over."""
    return -(-memory_mib * PERMILLE // max(ratio_permille, PERMILLE))


def shared_resource(model: str) -> str:
    """``h20`` -> ``volcano.sh/vgpu-h20``."""
    return SHARED_PREFIX + model


def native_resource(model: str) -> str:
    """``h20`` -> ``volcano.sh/gpu-h20``."""
    return NATIVE_PREFIX + model


def slot_resource(ask: CardAsk) -> str:
    """The kubelet resource whose slots this ask takes."""
    return native_resource(ask.model) if ask.native else shared_resource(ask.model)


def is_model_key(resource: str) -> bool:
    """Whether ``resource`` names a model itself, not its memory or cores counter."""
    if resource.startswith(NATIVE_PREFIX):
        return True
    return resource.startswith(SHARED_PREFIX) and not resource.endswith(
        (MEMORY_TOTAL_SUFFIX, CORES_TOTAL_SUFFIX, LOW_SUFFIX)
    )


def model_of(resource: str) -> str | None:
    """The model in a typed resource's name, or None if it is another resource."""
    if resource.startswith(NATIVE_PREFIX):
        return resource.removeprefix(NATIVE_PREFIX)
    if not resource.startswith(SHARED_PREFIX):
        return None
    name = resource.removeprefix(SHARED_PREFIX)
    return name.removesuffix(MEMORY_TOTAL_SUFFIX).removesuffix(CORES_TOTAL_SUFFIX).removesuffix(LOW_SUFFIX)


def is_low_key(resource: str) -> bool:
    """Whether it counts low shares alone."""
    return resource.startswith(SHARED_PREFIX) and resource.endswith((LOW_SUFFIX, LOW_CORES_SUFFIX))


def low_part(resource: str) -> str | None:
    """The key under which low shares of this resource may count instead; None: they always count in it."""
    if not resource.startswith(SHARED_PREFIX) or resource.endswith((MEMORY_TOTAL_SUFFIX, LOW_SUFFIX)):
        return None
    if resource.endswith(CORES_TOTAL_SUFFIX):
        shared = resource.removesuffix(CORES_TOTAL_SUFFIX)
        return None if shared.endswith(LOW_SUFFIX) else shared + LOW_CORES_SUFFIX
    return resource + LOW_SUFFIX


def low_parts(amounts: Mapping[str, int]) -> dict[str, int]:
    """What these amounts count under the keys of low shares, if all of it is low."""
    return {low: amount for resource, amount in amounts.items() if (low := low_part(resource)) is not None}


def counted(resource: str, amounts: Mapping[str, int], capability: Container[str]) -> int:
    """What counts of these amounts under a key in a queue with this capability.

    Low shares do not count in the cards and cores of a model, where the queue names their own key.
    """
    amount, low = amounts.get(resource, 0), low_part(resource)
    return amount - amounts.get(low, 0) if low is not None and low in capability else amount


def amounts(shape: PodShape) -> dict[str, int]:
    """What one pod of this shape counts in its queue, by resource name; zero amounts are left out."""
    total: dict[str, int] = {}
    for ask in shape.asks:
        add_to(total, slot_resource(ask), ask.cards)
        if not ask.native:
            shared = shared_resource(ask.model)
            add_to(total, shared + MEMORY_TOTAL_SUFFIX, ask.cards * clamp(ask.memory_mib))
            add_to(total, shared + CORES_TOTAL_SUFFIX, ask.cards * ask.cores_percent)
    requests = shape.requests
    add_to(total, CPU, clamp(requests.cpu_milli))
    add_to(total, MEMORY, clamp(requests.memory_bytes))
    add_to(total, EPHEMERAL, clamp(requests.ephemeral_bytes))
    add_to(total, PODS, 1)
    for name, amount in requests.scalars.items():
        add_to(total, name, clamp(amount))
    return total


def microcards(memory_mib: int, cores_percent: int, card_mib: int) -> int:
    """The larger one of two parts of a card, or of several cards: of their memory and of their compute.

    ``card_mib``: memory of one card; 0 where it is not known, then compute alone counts. Rounded down, so
    that shares which fill what a queue deserves never add up to more.
    """
    by_memory = memory_mib * MICROCARDS // card_mib if card_mib > 0 else 0
    return max(by_memory, cores_percent * MICROCARDS // FULL_CORES_PERCENT)


def parts(shape: PodShape, card_mib: Mapping[str, int]) -> dict[str, int]:
    """Millionths of cards that one pod of this shape takes, by :data:`PARTS_PREFIX` and resource.

    ``card_mib``: memory of one card by model.
    """
    total: dict[str, int] = {}
    for ask in shape.asks:
        part = microcards(clamp(ask.memory_mib), ask.cores_percent, card_mib.get(ask.model, 0))
        each = MICROCARDS if ask.whole or ask.native else part
        add_to(total, PARTS_PREFIX + slot_resource(ask), ask.cards * each)
    return total


def add_to(total: dict[str, int], resource: str, amount: int) -> None:
    """Add in place; a key whose amount is zero does not stay."""
    value = total.get(resource, 0) + amount
    if value:
        total[resource] = value
    else:
        total.pop(resource, None)


def _requests_key(requests: Resources) -> ShapeKey:
    return (
        requests.cpu_milli,
        requests.memory_bytes,
        requests.ephemeral_bytes,
        requests.pods,
        tuple(sorted(requests.scalars.items())),
    )


def shape_key(shape: PodShape) -> ShapeKey:
    """A hashable value that is equal exactly for equal shapes, whatever the order of their mappings."""
    return (
        shape.asks,
        _requests_key(shape.requests),
        shape.node_selector,
        shape.affinity_terms,
        shape.tolerations,
        shape.host_ports,
        shape.use_cards,
        shape.avoid_cards,
        shape.use_models,
        shape.avoid_models,
        shape.card_policy,
        shape.node_policy,
        shape.neighbours,
        shape.prefers,
        shape.runtime_s,
        shape.options,
        shape.choice,
        shape.mixes,
        shape.takes_soonest,
        shape.needs,
    )


def parts_of(shape: PodShape) -> int:
    """How much there is to a shape. Most have a dozen parts, but makers of pods may write as many as fit."""
    named = sum(1 + len(requirement.values) for term in shape.affinity_terms for requirement in term)
    named += sum(map(len, shape.needs.ways))
    named += sum(len(way) for option in shape.options if option.needs for way in option.needs.ways)
    named += sum(1 + len(r.values) for _, term in shape.prefers for r in term)
    return named + sum(
        map(
            len,
            (
                shape.asks,
                shape.requests.scalars,
                shape.node_selector,
                shape.tolerations,
                shape.host_ports,
                shape.use_cards,
                shape.avoid_cards,
                shape.use_models,
                shape.avoid_models,
                shape.neighbours.avoids,
                shape.neighbours.selected_by,
                shape.neighbours.spreads,
                shape.neighbours.needs,
                shape.neighbours.likes,
                shape.options,
            ),
        )
    )
