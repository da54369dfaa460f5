"""Which pod goes first: its class, from its annotations and those of its Job and PodGroup."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from vc_egpu.volcano.words import names

ClassName = Literal["high", "unset", "low"]

PRIORITY_CLASSES: Final[Mapping[ClassName, str]] = {
    "high": names.PRIORITY_CLASS_HIGH,
    "unset": names.PRIORITY_CLASS_STANDARD,
    "low": names.PRIORITY_CLASS_LOW,
}
"""The Kubernetes PriorityClass that stands for each class."""


class PriorityError(ValueError):
    """The annotation has a value that is no class; the text names it."""


def class_of(annotations: Mapping[str, Any] | None, where: str) -> ClassName | None:
    """The class that an object names itself, or None. ``where`` is its path, for the refusal."""
    value = (annotations or {}).get(names.PRIORITY)
    if value is None:
        return None
    if value == "high":
        return "high"
    if value == "low":
        return "low"
    shown = str(value)[:63]
    raise PriorityError(
        f'{where}["{names.PRIORITY}"]: {shown!r} is no class, it must be "high", "low" or absent'
    )


def resolve(*candidates: ClassName | None) -> ClassName:
    """The first class that is named: give the template's, then the Job's, then the PodGroup's."""
    return next((candidate for candidate in candidates if candidate is not None), "unset")


def class_of_priority_class(name: str) -> ClassName | None:
    """The class that one of our own PriorityClasses stands for."""
    return next((key for key, value in PRIORITY_CLASSES.items() if value == name), None)


_YES: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
"""The spellings that Volcano reads as true; it takes all others for a no."""


def objections_to_low(annotations: Mapping[str, Any], labels: Mapping[str, Any], path: str) -> list[str]:
    """A sentence if what has class ``low`` asks Volcano not to preempt it. Volcano reads annotations first.

    ``path``: of the metadata with these annotations and labels.
    """
    for place, words in (("annotations", annotations), ("labels", labels)):
        if names.PREEMPTABLE in words:
            value = str(words[names.PREEMPTABLE])[:63]
            said = (
                f'{path}.{place}["{names.PREEMPTABLE}"]: "{value}" stays for Volcano\'s scheduler; priority '
                '"low" wins here: pods may be suspended or evicted'
            )
            return [] if value in _YES else [said]
    return []
