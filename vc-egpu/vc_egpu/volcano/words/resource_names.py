"""What a resource name under ``volcano.sh/`` means: a share, a whole card, a counter, or not ours."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.quantity import is_zero

LONGEST_NAME: Final = 253 + 1 + 63
"""The limit for a resource: a domain, a slash and a word."""

Kind = Literal[
    "shared", "native", "memory-total", "cores-total", "low", "any", "mig", "per-card", "volcano", "foreign"
]

PER_CARD: Final = frozenset({names.LIMIT_MEMORY, names.LIMIT_MEMORY_PERCENTAGE, names.LIMIT_CORES})
"""What users write next to a model, per card; no node offers these and no queue counts them."""


@dataclass(frozen=True, slots=True)
class ResourceName:
    """The meaning of one name."""

    kind: Kind
    model: str = ""
    slice: str = ""
    """The template that a spelling names."""

    @property
    def is_managed(self) -> bool:
        """True where the name alone makes a pod ours: a model stands in it, or it is of any model."""
        return self.kind in {"shared", "native", "memory-total", "cores-total", "low", "any", "mig"}

    @property
    def is_counted(self) -> bool:
        """True for the cards themselves, shared or whole."""
        return self.kind in {"shared", "native"}


_TOTALS: Final[tuple[tuple[str, Kind], ...]] = (
    (names.LOW_SUFFIX + names.CORES_TOTAL_SUFFIX, "low"),
    (names.LOW_SUFFIX, "low"),
    (names.MEMORY_TOTAL_SUFFIX, "memory-total"),
    (names.CORES_TOTAL_SUFFIX, "cores-total"),
)


_BY_NAME: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(PER_CARD, "per-card"),
    names.ANY_MODEL: "any",
    names.VOLCANO_VGPU_NUMBER: "volcano",
}


@lru_cache(maxsize=4096)
def classify(resource: str) -> ResourceName:
    """Say what a resource name means; names that have nothing to do with GPUs of Volcano are ``foreign``."""
    if (kind := _BY_NAME.get(resource)) is not None:
        return ResourceName(kind)
    if resource.startswith(names.NATIVE_PREFIX):
        model = resource.removeprefix(names.NATIVE_PREFIX)
        # volcano.sh/gpu-number and gpu-memory belong to Volcano's older sharing.
        return (
            ResourceName("foreign") if model in names.RESERVED_MODEL_WORDS else ResourceName("native", model)
        )
    if resource.startswith(names.MIG_PREFIX):
        template, _, model = resource.removeprefix(names.MIG_PREFIX).partition("-")
        return ResourceName("mig", model, template) if template and model else ResourceName("foreign")
    if not resource.startswith(names.SHARED_PREFIX):
        return ResourceName("foreign")
    model = resource.removeprefix(names.SHARED_PREFIX)
    for suffix, kind in _TOTALS:
        if model.endswith(suffix):
            return ResourceName(kind, model.removesuffix(suffix))
    return ResourceName("shared", model)


def is_spelling(resource: object) -> bool:
    """Whether users write it next to a model or in its place, and the webhook takes it out of pods."""
    return isinstance(resource, str) and classify(resource).kind in {"per-card", "mig"}


def names_cards(resources: Iterable[object]) -> bool:
    """Whether a model stands in one of these names of resources.

    The names in a PodGroup or a Job can be anything. The meaning of a name is remembered, except for names
    that are too long for any resource.
    """
    return any(len(name) <= LONGEST_NAME and classify(name).is_managed for name in map(str, resources))


def asked_in(amounts: Mapping[Any, Any]) -> str | None:
    """A name in which a model stands and whose amount is not 0; None if there is none."""
    return next((name for name, raw in amounts.items() if names_cards([name]) and not is_zero(raw)), None)
