"""The CEL expressions that say what is ours, for the webhook configurations and the admission policies."""

from collections.abc import Iterable
from typing import Final

from vc_egpu.volcano import room
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.resource_names import PER_CARD

RESERVED: Final = tuple(sorted(names.RESERVED_MODEL_WORDS))


def quoted(values: Iterable[str]) -> str:
    """A CEL list of strings."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"


def _is_managed_name(variable: str) -> str:
    """True for a resource name in which a model stands; most names are known by one look not to be such."""
    shared = quoted(names.SHARED_PREFIX + word for word in RESERVED)
    native = quoted(names.NATIVE_PREFIX + word for word in RESERVED)
    return (
        f"({variable}.startsWith('{names.RESOURCE_PREFIX}') && "
        f"({variable}.startsWith('{names.SHARED_PREFIX}') && !({variable} in {shared}) || "
        f"{variable}.startsWith('{names.NATIVE_PREFIX}') && !({variable} in {native}) || "
        f"{variable}.startsWith('{names.MIG_PREFIX}') || {variable} == '{names.ANY_MODEL}'))"
    )


def asks_for_cards(spec: str) -> str:
    """True if a container of this pod spec (an optional value) names a model in limits or requests."""
    containers = f"({spec}.?containers.orValue([]) + {spec}.?initContainers.orValue([]))"
    amounts = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"
    return f"{containers}.exists(c, {amounts}.exists(m, m.exists(k, {_is_managed_name('k')})))"


def has_label(metadata: str) -> str:
    """True if the managed label is there, whatever its value."""
    return f"'{names.MANAGED_LABEL}' in {metadata}.?labels.orValue({{}})"


def own_bytes(annotations: str) -> str:
    """Bytes of these annotations (a CEL map of strings), but for those that no user writes."""
    skipped = quoted(sorted((*room.WRITTEN_BY_US, names.LAST_APPLIED)))
    sizes = f"size(bytes(k)) + size(bytes({annotations}[k]))"
    return f"{annotations}.filter(k, !(k in {skipped})).map(k, {sizes}).sum()"


def has_gate(pod: str) -> str:
    """True if our gate holds this pod back."""
    return f"{pod}.spec.?schedulingGates.orValue([]).exists(g, g.name == '{names.GATE}')"


def is_direct(pod: str) -> str:
    """True if no other program than ours binds this pod."""
    return f"{pod}.spec.?schedulerName.orValue('') == '{names.SCHEDULER_DIRECT}'"


def waits_for_us(pod: str) -> str:
    """True if nothing can start this new pod before the admission layer has let it go."""
    return f"({has_gate(pod)} || {is_direct(pod)})"


def has_any_annotation(metadata: str, keys: Iterable[str]) -> str:
    """True if one of these annotations is there."""
    return f"{quoted(keys)}.exists(a, a in {metadata}.?annotations.orValue({{}}))"


WRITTEN_BY_US: Final = (names.REQUEST, names.CARDS, names.PLAN)


def asks_per_card(spec: str) -> str:
    """True if a limit per card stands in a container of this pod spec."""
    per_card = quoted(sorted(PER_CARD))
    limits = "c.?resources.?limits.orValue({})"
    containers = f"({spec}.?containers.orValue([]) + {spec}.?initContainers.orValue([]))"
    spelled = f"{limits}.exists(k, k.startsWith('{names.MIG_PREFIX}'))"
    return f"{containers}.exists(c, {per_card}.exists(k, k in {limits}) || {spelled})"


POD_IS_OURS: Final = " || ".join(
    (
        has_label("object.metadata"),
        has_any_annotation("object.metadata", WRITTEN_BY_US),
        waits_for_us("object"),
        asks_for_cards("object.?spec"),
    )
)
"""A new pod that the webhook has to see. A pod that brings only our gate, or our
name as its scheduler, would be in a gang unchecked."""

POD_IS_ANOTHERS_MEMBER: Final = (
    f"'{names.GROUP_NAME}' in object.metadata.?annotations.orValue({{}}) && !({POD_IS_OURS})"
)
"""A new pod that asks for nothing of ours and belongs to a gang; Volcano Jobs' own carry the label."""

POD_IS_APPLIED_AGAIN: Final = f"{has_label('oldObject.metadata')} && {asks_per_card('object.?spec')}"
"""A pod of ours that comes again with the limits that were taken out."""

POD_WAS_OR_IS_OURS: Final = (
    "[object, oldObject].exists(o, "
    + " || ".join((has_label("o.metadata"), has_any_annotation("o.metadata", WRITTEN_BY_US)))
    + ")"
)
"""An update of a pod that is managed, or that the update makes look so."""


_TEMPLATE_ASKS: Final = (
    "[t.?template.?spec.?containers.orValue([]), t.?template.?spec.?initContainers.orValue([])]"
    ".exists(l, type(l) == list && l.exists(c, "
    "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"
    f".exists(m, type(m) == map && m.exists(k, {_is_managed_name('k')}))))"
)
JOB_IS_OURS: Final = (
    "[object, oldObject].exists(o, o != null && [o.?spec.?tasks.orValue([])]"
    ".exists(s, type(s) == list && s.exists(t, "
    f"t.?template.?metadata.?labels[?'{names.MANAGED_LABEL}'].hasValue() || {_TEMPLATE_ASKS})))"
)
"""A Job with a task that asks for cards or carries the label, before or after.

In a Job any value may stand in place of a list or a map, such as the null of an empty ``limits:``. A
condition that fails on it would refuse Jobs that do not concern us.
"""
