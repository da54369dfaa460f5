"""What a half of a pair changes in an object as it is now, and the way back. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.cli.pairing.pairs import HALF_PERCENT, Half
from vc_egpu.cli.sizing.change import (
    INIT,
    PROPER,
    Change,
    containers_in,
    hindrance,
    limits_of,
    manifest_of,
    patch_of,
    requests_of,
    templates_in,
)
from vc_egpu.cli.sizing.objects import Json
from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.quantity import QuantityError, parse_whole

_SIZES: Final = (names.LIMIT_MEMORY, names.LIMIT_MEMORY_PERCENTAGE, names.LIMIT_CORES)
Values = dict[str, str | None]
"""By key; None: it was not there, or goes."""


@dataclass(frozen=True, slots=True)
class Record:
    """What the annotation of a half says."""

    other: str
    container: str
    limits: Mapping[str, tuple[str | None, str | None]]
    annotations: Mapping[str, tuple[str | None, str | None]]
    """By key: before and after; None: absent."""

    def text(self) -> str:
        """As JSON."""
        said = {"with": self.other, "container": self.container, "limits": self.limits,
                "annotations": self.annotations}  # fmt: skip
        return json.dumps(said, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Changed:
    """What becomes of one object."""

    patch: Json | None
    """A strategic merge patch for the object as it was read; None: nothing changes."""
    why: str = ""
    """Why it changes nothing."""
    is_paired: bool = False
    """It is this pair's half already."""
    cores_percent: int | None = None
    manifest: Json | None = None
    """The object for a new one, where templates cannot change."""
    hinders: bool = False
    """Whether the pair cannot be."""


def change(live: Json, half: Half) -> Changed:
    """What one half changes."""
    told = annotations_of(live).get(names.PAIRED)
    if told is not None:
        return _as_it_is(live, half, record_of(told))
    of = half.partner
    found = [container for container in containers_in(live) if container.get("name") == of.container]
    if not found:
        return Changed(None, f"it has no container {of.container} any more", hinders=True)
    limits = limits_of(found[0])
    if reason := hindrance(limits, half.proposal(None)):
        return Changed(None, reason, hinders=True)
    cores = _cores(limits) if half.splits_cores else None
    wanted: Values = dict(half.annotations)
    if cores is not None:
        wanted[names.CORE_POLICY] = "soft"
    template = _template(live)
    there = annotations_of(template)
    annotations = {key: (there.get(key), value) for key, value in wanted.items() if there.get(key) != value}
    sizes = _sizes(limits, half.memory_mib, cores)
    if not annotations and not sizes:
        return Changed(None, "it has all that the pair needs")
    record = Record(half.other, of.container, sizes, annotations)
    new = {key: after for key, (_, after) in sizes.items() if after is not None}
    made = [Change(half.proposal(cores), new or None)]
    if of.kind == "Job":
        return Changed(None, cores_percent=cores, manifest=_manifest(live, made, wanted, of.container))
    patch = patch_of(live, made)
    _say(patch, record.text(), {key: after for key, (_, after) in annotations.items()})
    return Changed(patch, cores_percent=cores)


def blind_patch(half: Half) -> Json:
    """The patch for an object that the user may not read. Nothing of it can be taken back by the command."""
    limits: dict[str, str] = {}
    said: Values = dict(half.annotations)
    if half.memory_mib is not None:
        limits[names.LIMIT_MEMORY] = str(half.memory_mib)
    if half.splits_cores:
        limits[names.LIMIT_CORES], said[names.CORE_POLICY] = str(HALF_PERCENT), "soft"
    spec = {PROPER: [{"name": half.partner.container, "resources": {"limits": limits}}]} if limits else {}
    return {"spec": {"template": {"metadata": {"annotations": said}, "spec": spec}}}


def undo(live: Json) -> tuple[Json | None, str]:
    """The patch that takes a half back, and what the user has changed since, which stays."""
    record = record_of(annotations_of(live).get(names.PAIRED))
    if record is None:
        return None, "what is written on it cannot be read: change it by hand"
    stays: list[str] = []
    there = annotations_of(_template(live))
    back = _back(there, record.annotations, stays)
    containers: dict[str, list[Json]] = {}
    for container in containers_in(live):
        if container.get("name") != record.container:
            continue
        limits = _back(limits_of(container), record.limits, stays)
        requests = requests_of(container)
        if limits:
            resources: Json = {"limits": {**limits, **_totals(limits_of(container))}}
            if any(key in requests for key in _SIZES):
                resources["requests"] = {**limits, **_totals(requests)}
            containers.setdefault(_list_of(live, container), []).append(
                {"name": record.container, "resources": resources}
            )
    patch: Json = {
        "metadata": {
            **{key: live["metadata"][key] for key in ("uid", "resourceVersion")},
            "annotations": {names.PAIRED: None},
        },
        "spec": {"template": {"metadata": {"annotations": back}, "spec": containers}},
    }
    return patch, f"you changed since, and it stays: {', '.join(sorted(stays))}" if stays else ""


def record_of(text: object) -> Record | None:
    """What is written on an object; None: nobody of ours wrote it."""
    try:
        said = json.loads(str(text))
        parts = [
            {str(key): (_text(before), _text(after)) for key, (before, after) in said[name].items()}
            for name in ("limits", "annotations")
        ]
        return Record(str(said["with"]), str(said["container"]), *parts)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def annotations_of(document: Json) -> dict[str, str]:
    """Annotations of an object or a template."""
    said = (document.get("metadata") or {}).get("annotations") or {}
    return {key: str(value) for key, value in said.items()}


def _as_it_is(live: Json, half: Half, record: Record | None) -> Changed:
    if record is None or record.other != half.other:
        whom = "another" if record is None else record.other
        return Changed(None, f"it is a half of a pair with {whom}: --remove that first", hinders=True)
    there = annotations_of(_template(live))
    found = [one for one in containers_in(live) if one.get("name") == record.container]
    limits = limits_of(found[0]) if found else {}
    drifted = [
        key
        for now, values in ((there, record.annotations), (limits, record.limits))
        for key, (_, after) in values.items()
        if now.get(key) != after
    ]
    if drifted:
        return Changed(None, f"you changed since: {', '.join(sorted(drifted))}", hinders=True)
    return Changed(None, is_paired=True)


def _cores(limits: Mapping[str, str]) -> int | None:
    """Half a card's where cores are named, or the whole card is; None: it names no cores."""
    if names.LIMIT_CORES in limits:
        try:
            return min(parse_whole(limits[names.LIMIT_CORES]), HALF_PERCENT)
        except QuantityError:
            return HALF_PERCENT
    is_whole = names.LIMIT_MEMORY not in limits and names.LIMIT_MEMORY_PERCENTAGE not in limits
    return HALF_PERCENT if is_whole else None


def _sizes(
    limits: Mapping[str, str], memory_mib: int | None, cores: int | None
) -> dict[str, tuple[str | None, str | None]]:
    wanted: Values = {}
    if memory_mib is not None:
        wanted |= {names.LIMIT_MEMORY: str(memory_mib), names.LIMIT_MEMORY_PERCENTAGE: None}
    if cores is not None:
        wanted[names.LIMIT_CORES] = str(cores)
    return {key: (limits.get(key), value) for key, value in wanted.items() if limits.get(key) != value}


def _say(patch: Json, record: str, annotations: Values) -> None:
    patch["metadata"]["annotations"] = {names.PAIRED: record}
    patch["spec"]["template"]["metadata"] = {"annotations": annotations}


def _manifest(live: Json, made: list[Change], annotations: Values, container: str) -> Json:
    new = manifest_of(live, made)
    for template in templates_in(new):
        if any(one.get("name") == container for one in containers_of(template.get("spec") or {})):
            template.setdefault("metadata", {}).setdefault("annotations", {}).update(annotations)
    return new


def _template(live: Json) -> Json:
    return next(templates_in(live), {})


def _back(
    now: Mapping[str, str], written: Mapping[str, tuple[str | None, str | None]], stays: list[str]
) -> Values:
    back: Values = {}
    for key, (before, after) in written.items():
        if now.get(key) == after:
            back[key] = before
        else:
            stays.append(key)
    return back


def _totals(limits: Mapping[str, str]) -> Values:
    """What the webhook counted, for all models: it counts again."""
    return {
        key: None
        for key in limits
        if key.startswith(names.SHARED_PREFIX)
        and key.endswith((names.MEMORY_TOTAL_SUFFIX, names.CORES_TOTAL_SUFFIX))
        and key not in _SIZES
    }


def _list_of(live: Json, container: Json) -> str:
    spec: Any = _template(live).get("spec") or {}
    return INIT if container in (spec.get(INIT) or []) else PROPER


def _text(value: object) -> str | None:
    return None if value is None else str(value)
