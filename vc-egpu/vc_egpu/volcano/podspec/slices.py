"""Slices of fixed size at the door: which template a part of a card becomes, and what is refused. Pure.

Cards that are cut have sizes of their own. An ask is rounded up to the smallest one that has enough of
both, and is charged as that. The user is told so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.core.environments import backends
from vc_egpu.core.layouts.table import Template
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest
from vc_egpu.volcano.words.model_table import GpuModel, LayoutRow, ModelTable, TemplateRow
from vc_egpu.volcano.words.resource_names import PER_CARD, classify


class SliceAskError(ValueError):
    """The ask is refused; the text says number and limit."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a pod's annotations say of slices."""

    template: str = ""
    """Exactly this one."""
    hardware: bool = False
    """A slice that the card itself keeps apart."""


UNCUT: Final = Cut()


def cut_of(annotations: Mapping[str, Any]) -> Cut:
    """Read them. Raises :class:`SliceAskError`."""
    isolation = isolation_of(annotations)
    template = str(annotations.get(names.SLICE) or "")[:63]
    if template and isolation in {"driver", "none", "mps"}:
        raise SliceAskError(
            f"{names.ISOLATION} is {isolation!r}, and {names.SLICE} is {template!r}: the card keeps a slice "
            "apart; leave one of the two out"
        )
    return Cut(template, isolation == "hardware")


def isolation_of(annotations: Mapping[str, Any]) -> str:
    """What is to keep the pod's containers apart from others; empty: whatever there is. Raises
    :class:`SliceAskError`."""
    isolation = str(annotations.get(names.ISOLATION) or "")
    if isolation and isolation not in backends.ASKS:
        known = f"{', '.join(backends.ASKS[:-1])} or {backends.ASKS[-1]}"
        raise SliceAskError(f"{names.ISOLATION} is {isolation[:63]!r}, it must be {known}")
    return isolation


def spelled_out(limits: Mapping[str, Any], cut: Cut) -> tuple[dict[str, Any], Cut]:
    """``volcano.sh/mig-<slice>-<model>: 1`` as an ask for the model, and for that slice. Other limits stay as
    they are. Raises :class:`SliceAskError`."""
    spelled = {name: kind for name in limits if (kind := classify(name)).kind == "mig"}
    if not spelled:
        return dict(limits), cut
    name, kind = next(iter(spelled.items()))
    if len(spelled) > 1:
        raise SliceAskError(f"{' and '.join(sorted(spelled))}: a container takes one slice")
    amounts = sorted(PER_CARD & limits.keys())
    if amounts:
        raise SliceAskError(f"{name} has a size: leave {', '.join(amounts)} out")
    if cut.template and cut.template != kind.slice:
        raise SliceAskError(f"{name}, and {names.SLICE} is {cut.template}: leave the annotation out")
    shared = names.shared_resource(kind.model)
    others = {each: raw for each, raw in limits.items() if each != name}
    if str(others.get(shared, limits[name])) != str(limits[name]):
        raise SliceAskError(f"{name}: {limits[name]}, and {shared}: {others[shared]}; leave the second out")
    return {**others, shared: limits[name]}, Cut(kind.slice, hardware=True)


def rounded(ask: ContainerRequest, row: GpuModel, table: ModelTable, cut: Cut) -> ContainerRequest:
    """The ask as a slice, where it has to be one; else as it is. Raises :class:`SliceAskError`."""
    named = bool(cut.template)
    layout = table.layout_of(row)
    if layout is None:
        if named or cut.hardware:
            what = f"{names.SLICE}: {cut.template}" if named else f"{names.ISOLATION}: hardware"
            raise SliceAskError(f"{what}: cards of model {row.name} are not cut into slices")
        return ask
    if cut.hardware and ask.whole and not ask.native and not named:
        raise SliceAskError(f"{names.ISOLATION}: hardware needs a size: name {names.SLICE} or a memory")
    sliced = named or cut.hardware or not row.stack
    if not sliced or ask.native or (ask.whole and not named):
        return ask
    if ask.cards > 1:
        raise SliceAskError(
            f"{ask.cards} cards, and a part of each: a container takes one slice, or whole cards of "
            f"{row.name}"
        )
    template = _named(cut.template, ask, layout, row) if named else _smallest(ask, layout, row)
    return ask.model_copy(
        update={
            "memory_mib": template.memory_mib,
            "cores_percent": template.cores_percent,
            "whole": False,
            "slice": template.name,
            "asked_mib": None if ask.whole else ask.memory_mib,
            "asked_cores": None if ask.whole else ask.cores_percent,
        }
    )


def _named(name: str, ask: ContainerRequest, layout: LayoutRow, row: GpuModel) -> TemplateRow | Template:
    template = next((one for one in layout.templates if one.name == name), None)
    if template is None:
        known = ", ".join(one.name for one in layout.templates)
        raise SliceAskError(f"{names.SLICE}: {name!r} is no slice of model {row.name}; these are: {known}")
    less = ask.memory_mib > template.memory_mib or ask.cores_percent > template.cores_percent
    if less and not ask.whole:
        raise SliceAskError(
            f"{names.SLICE}: {name} has {template.memory_mib} MiB and {template.cores_percent} cores, and "
            f"{ask.memory_mib} MiB and {ask.cores_percent} cores are asked for; leave the limits out"
        )
    return template


def _smallest(ask: ContainerRequest, layout: LayoutRow, row: GpuModel) -> TemplateRow | Template:
    found = layout.layout(row.layout).rounded(ask.memory_mib, ask.cores_percent)
    if found is None:
        largest = layout.templates[-1]
        raise SliceAskError(
            f"{ask.memory_mib} MiB and {ask.cores_percent} cores: the largest slice of a {row.name} is "
            f"{largest.name} ({largest.memory_mib} MiB, {largest.cores_percent} cores); ask for the whole "
            "card"
        )
    return found


def announced(name: str, ask: ContainerRequest) -> str:
    """The sentence on what an ask became; empty where nothing was rounded."""
    if ask.slice is None or ask.asked_mib is None:
        return ""
    if (ask.asked_mib, ask.asked_cores) == (ask.memory_mib, ask.cores_percent):
        return ""
    cores = f" and {ask.asked_cores} cores" if ask.asked_cores else ""
    return (
        f"container {name!r} gets a slice {ask.slice} of a {ask.model}: {ask.memory_mib} MiB and "
        f"{ask.cores_percent} cores, for the {ask.asked_mib} MiB{cores} that it asks for; that is what its "
        "queue is charged"
    )
