"""What a proposal changes in an object as it is now, or why it changes nothing. Pure."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.cli.sizing.proposals import Proposal
from vc_egpu.volcano.api.containers import IN_SPEC, containers_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.quantity import QuantityError, parse_whole

Json = dict[str, Any]
_KEEPERS: Final = (
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
    ("meta.helm.sh/release-name", "Helm"),
)
"""Labels and annotations of programs that write the object again from their own source."""
_TOLERANCE_MIB: Final = 1
_OF_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink",
                     "ownerReferences", "finalizers")  # fmt: skip
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one container."""

    proposal: Proposal
    limits: Mapping[str, str] | None
    """The new ones of ours; None: nothing changes."""
    why_not: str = ""


def changes(live: Json, proposals: Sequence[Proposal]) -> tuple[Change, ...]:
    """What each of them changes in this object."""
    return tuple(_change(live, one) for one in proposals)


def _change(live: Json, one: Proposal) -> Change:
    if not one.is_change:
        return Change(one, None, f"the report says: {one.advice}")
    found = [container for container in containers_in(live) if container.get("name") == one.container]
    if not found:
        return Change(one, None, f"it has no container {one.container} any more")
    for container in found:
        if reason := hindrance(limits_of(container), one):
            return Change(one, None, reason)
    limits = {names.LIMIT_MEMORY: str(one.memory_mib)}
    if one.cores_percent is not None:
        limits[names.LIMIT_CORES] = str(one.cores_percent)
    return Change(one, limits)


def hindrance(limits: Mapping[str, str], one: Proposal) -> str:
    """Why limits as they are now are not those that were measured; empty: they are."""
    shared, native = names.shared_resource(one.model), names.native_resource(one.model)
    if native in limits:
        return f"it has whole cards ({native}): let it ask for {shared} first"
    if shared not in limits:
        return f"it does not ask for {shared} any more"
    now = limits.get(names.LIMIT_MEMORY)
    if now is not None and not _is_about(now, one.memory_granted_mib):
        return f"it asks for {now} MiB now, and had {one.memory_granted_mib} MiB when it was measured"
    return ""


def _is_about(text: str, mib: int) -> bool:
    try:
        return abs(parse_whole(text) - mib) <= _TOLERANCE_MIB
    except QuantityError:
        return False


def patch_of(live: Json, made: Sequence[Change]) -> Json:
    """A strategic merge patch that holds only for the object as it was read."""
    changed: Json = {}
    first = [container for spec in specs_in(live) for container in spec.get(INIT) or []]
    for container in containers_in(live):
        for one in made:
            if one.limits is not None and container.get("name") == one.proposal.container:
                resources = {"limits": _merged(limits_of(container), one)}
                if requests := _requests(requests_of(container), one):
                    resources["requests"] = requests
                of = INIT if container in first else PROPER
                changed.setdefault(of, []).append({"name": container["name"], "resources": resources})
    metadata = {key: live["metadata"][key] for key in ("uid", "resourceVersion")}
    return {"metadata": metadata, "spec": {"template": {"spec": changed}}}


INIT, PROPER = IN_SPEC
_OURS: Final = (names.LIMIT_MEMORY, names.LIMIT_MEMORY_PERCENTAGE, names.LIMIT_CORES)


def _merged(before: Mapping[str, str], change: Change) -> dict[str, str | None]:
    """The keys that change. Memory in percent gives way to MiB, and the webhook counts totals again."""
    return {**(change.limits or {}), **_stale(before, change)}


def _requests(before: Mapping[str, str], change: Change) -> dict[str, str | None]:
    """The same of requests, which name sizes where the user wrote them there, too."""
    return _merged(before, change) if any(key in before for key in _OURS) else _stale(before, change)


def _stale(before: Mapping[str, str], change: Change) -> dict[str, str | None]:
    model = change.proposal.model
    stale = (
        names.LIMIT_MEMORY_PERCENTAGE,
        names.memory_total_resource(model),
        names.cores_total_resource(model),
    )
    return {key: None for key in stale if key in before}


def manifest_of(live: Json, made: Sequence[Change]) -> Json:
    """The object as a manifest for a new one, with the new sizes, and without what the API server wrote."""
    new = copy.deepcopy({key: value for key, value in live.items() if key != "status"})
    for key in _OF_SERVER:
        new["metadata"].pop(key, None)
    annotations = new["metadata"].get("annotations") or {}
    annotations.pop(_APPLIED, None)
    for container in containers_in(new):
        for one in made:
            if one.limits is None or container.get("name") != one.proposal.container:
                continue
            resources = container.setdefault("resources", {})
            for part, changed in (("limits", _merged), ("requests", _requests)):
                there = dict(resources.get(part) or {})
                for key, value in changed(there, one).items():
                    there.pop(key, None)
                    if value is not None:
                        there[key] = int(value)
                if there or part in resources:
                    resources[part] = there
    return new


def kept_by(live: Json) -> str:
    """The program that writes this object from a source of its own; empty: none that is known."""
    metadata = live.get("metadata") or {}
    said = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return next((program for key, program in _KEEPERS if key in said), "")


def containers_in(document: Json) -> Iterator[Json]:
    """All containers of its pods."""
    for spec in specs_in(document):
        yield from containers_of(spec)


def specs_in(document: Json) -> Iterator[Json]:
    """The pods' specs: of the one template, or of all tasks of a Volcano Job."""
    for template in templates_in(document):
        yield template.get("spec") or {}


def templates_in(document: Json) -> Iterator[Json]:
    """The pods' templates: the one, or those of all tasks of a Volcano Job."""
    spec = document.get("spec") or {}
    parts = [task for task in spec.get("tasks") or [] if isinstance(task, dict)] or [spec]
    for part in parts:
        yield part.get("template") or {}


def limits_of(container: Json) -> dict[str, str]:
    """A container's limits as texts."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return {key: str(value) for key, value in limits.items()}


def requests_of(container: Json) -> dict[str, str]:
    """A container's requests as texts."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return {key: str(value) for key, value in requests.items()}
