"""What usual work is, learned from the pods that come, are placed and end.

An :class:`Experience` is a value: :func:`seen`, :func:`placed` and :func:`ended` give the next one. Old pods
count less and less. The classes of its :attr:`Experience.mix` change at 50, 100, 200 pods and so on, later
every 2,000 pods. So what was worked out for them serves for a while.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.core.model.cluster import FULL_CORES_PERCENT, PodShape, Requirement, Toleration
from vc_egpu.core.model.policy import Mix, PodClass

FIRST_AT: Final = 50
AT_MOST_EVERY: Final = 2000
HALF_LIFE_PODS: Final = 4000
"""A pod counts half once so many others have come."""
CHURN_HALF_LIFE_PODS: Final = 2000
LONGEST_S: Final = 6 * 3600.0
"""A pod's time on its cards counts up to this: a few that stay for months would outweigh all others."""
ENDS_THAT_TELL: Final = 200
"""From so many ended pods on, demand is judged by time on cards, before that by cards asked for."""
MOST_CLASSES: Final = 400
_CHURN_STEPS: Final = 100


Where = tuple[tuple[tuple[str, str], ...], tuple[tuple[Requirement, ...], ...], tuple[Toleration, ...]]
"""What pods ask of nodes: node selector, affinity terms, tolerations."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What pods of one class have in common."""

    cpu_milli: int
    cards: int
    memory_mib: int
    cores_percent: int
    model: str
    whole: bool
    native: bool
    where: Where

    @property
    def amount(self) -> int:
        """What one pod counts in sums of card memory, in MiB; whole cards by the memory asked for."""
        return self.cards * self.memory_mib


@dataclass(frozen=True, slots=True)
class Count:
    """What is known of one class."""

    pods: float = 0.0
    """Seen, old ones less."""
    held_s: float = 0.0
    """Seconds that ended pods held their cards, old ones less."""


@dataclass(frozen=True, slots=True)
class Experience:
    """All that was learned."""

    pods: int = 0
    """Seen in all."""
    ends: int = 0
    relearn_at: int = FIRST_AT
    counts: Mapping[Kind, Count] = field(default_factory=dict)
    scale: float = 1.0
    """What one pod counts that comes now: it grows, instead of all counts becoming less."""
    placed_mib: float = 0.0
    """Card memory placed lately, and given back."""
    released_mib: float = 0.0
    mix: Mix = field(default_factory=Mix)


def kind_of(shape: PodShape) -> Kind:
    """The class of a pod. One with several asks counts as if all its cards were as the largest."""
    where = (shape.node_selector, shape.affinity_terms, shape.tolerations)
    cpu = shape.requests.cpu_milli
    if not shape.asks:
        return Kind(cpu, 0, 0, 0, "", whole=False, native=False, where=where)
    large = max(shape.asks, key=lambda ask: (ask.memory_mib, ask.cores_percent, ask.cards, ask.model))
    cards = sum(ask.cards for ask in shape.asks)
    cores = min(large.cores_percent, FULL_CORES_PERCENT)
    whole = any(ask.whole for ask in shape.asks)
    return Kind(cpu, cards, large.memory_mib, cores, large.model, whole, large.native, where)


def seen(before: Experience, shapes: Iterable[PodShape]) -> Experience:
    """Pods have come, whether they find a place or not."""
    kinds = [kind_of(shape) for shape in shapes]
    if not kinds:
        return before
    counts, scale = dict(before.counts), before.scale
    for kind in kinds:
        scale *= _GROWTH
        known = counts.get(kind, Count())
        counts[kind] = Count(known.pods + scale, known.held_s)
    fade = 0.5 ** (len(kinds) / CHURN_HALF_LIFE_PODS)
    now = replace(
        before,
        pods=before.pods + len(kinds),
        counts=counts,
        scale=scale,
        placed_mib=before.placed_mib * fade,
        released_mib=before.released_mib * fade,
    )
    return _relearned(now) if now.pods >= now.relearn_at else now


_GROWTH: Final = float(2 ** (1 / HALF_LIFE_PODS))


def placed(before: Experience, shapes: Iterable[PodShape]) -> Experience:
    """Pods got their cards."""
    more = sum(kind_of(shape).amount for shape in shapes)
    return _with_churn(replace(before, placed_mib=before.placed_mib + more)) if more else before


def ended(before: Experience, shape: PodShape, held_s: float) -> Experience:
    """A pod gave its cards back after so many seconds."""
    kind = kind_of(shape)
    if not kind.amount:
        return before
    counts = dict(before.counts)
    known = counts.get(kind, Count())
    seconds = min(max(0.0, held_s), LONGEST_S) * before.scale
    counts[kind] = Count(known.pods, known.held_s + seconds)
    return _with_churn(
        replace(
            before,
            ends=before.ends + 1,
            counts=counts,
            released_mib=before.released_mib + kind.amount,
        )
    )


def _with_churn(now: Experience) -> Experience:
    churn = min(1.0, now.released_mib / now.placed_mib) if now.placed_mib else 0.0
    churn = round(churn * _CHURN_STEPS) / _CHURN_STEPS
    return now if churn == now.mix.churn else replace(now, mix=replace(now.mix, churn=churn))


def _relearned(now: Experience) -> Experience:
    most = sorted(now.counts.items(), key=lambda entry: -entry[1].pods)[:MOST_CLASSES]
    counts = {
        kind: Count(count.pods / now.scale, count.held_s / now.scale) for kind, count in most if count.pods
    }
    by_time = now.ends >= ENDS_THAT_TELL and any(count.held_s for count in counts.values())
    pods = sum(count.pods for count in counts.values())
    classes = tuple(
        PodClass(
            kind.cpu_milli,
            kind.cards,
            kind.memory_mib,
            kind.cores_percent,
            kind.model,
            kind.whole,
            kind.native,
            PodShape(node_selector=kind.where[0], affinity_terms=kind.where[1], tolerations=kind.where[2]),
            frequency=count.pods / pods,
            hold_s=count.held_s / count.pods if by_time else 1.0,
        )
        for kind, count in counts.items()
    )
    later = now.pods * 2 if now.pods < AT_MOST_EVERY else now.pods + AT_MOST_EVERY
    return replace(now, counts=counts, scale=1.0, relearn_at=later, mix=Mix(classes, now.mix.churn))
