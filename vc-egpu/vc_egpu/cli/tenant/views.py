"""What ``kubectl egpu tenant`` shows: tables for people."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.views.table import Table
from vc_egpu.tenants.drift import Difference
from vc_egpu.tenants.removal import Removed
from vc_egpu.tenants.writing import Written

_STYLES: Final = {"created": "green", "changed": "yellow", "removed": "yellow", "unchanged": "dim"}


@dataclass(frozen=True, slots=True)
class TenantDrift:
    """One tenant and its differences."""

    tenant: str
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class TenantState:
    """One tenant, as ``show`` tells it."""

    document: dict[str, Any]
    queue_state: str
    quota: dict[str, dict[str, str]]
    """By resource: ``used`` and ``hard``."""
    inside: tuple[str, ...]
    """Sentences on what is there."""
    differences: int


@dataclass(frozen=True, slots=True)
class TenantWritten:
    """One tenant and what was written of it."""

    tenant: str
    objects: tuple[Written, ...]


def written(results: Sequence[TenantWritten]) -> RenderableType:
    """One line for each object that changed, and how many stayed as they were."""
    parts: list[RenderableType] = []
    for result in results:
        same = sum(1 for one in result.objects if one.outcome == "unchanged")
        table = Table()
        for one in result.objects:
            if one.outcome != "unchanged":
                table.add_row(Text(one.outcome, style=_STYLES[one.outcome]), _subject(one))
        changed = len(result.objects) - same
        parts += [Text(f"tenant {result.tenant}: {changed} objects written, {same} as they were"), table]
    return Group(*parts)


def drift(results: Sequence[TenantDrift]) -> RenderableType:
    """One line for each field."""
    table = Table("TENANT", "OBJECT", "FIELD", "DOCUMENT", "CLUSTER")
    for result in results:
        for one in result.differences:
            path = one.path or "(the object)"
            table.add_row(result.tenant, one.subject, path, _value(one.wanted), _value(one.found))
    count = sum(len(result.differences) for result in results)
    if not count:
        return Text("no difference: " + ", ".join(result.tenant for result in results), style="green")
    return Group(table, Text(f"{count} differences; `kubectl egpu tenant apply` puts back the document's"))


def state(one: TenantState) -> RenderableType:
    """The document, and below it what is used."""
    table = Table("QUOTA", "USED", "OF", right=("USED", "OF"))
    for resource, amounts in sorted(one.quota.items()):
        if amounts["hard"] != "0" or amounts["used"] != "0":
            table.add_row(resource, amounts["used"], amounts["hard"])
    lines = [f"queue: {one.queue_state}", *one.inside]
    if one.differences:
        lines.append(f"{one.differences} differences: `kubectl egpu tenant diff` names them")
    return Group(
        Text(yaml.safe_dump(one.document, sort_keys=False).rstrip()), Text(""), table, *map(Text, lines)
    )


def listed(states: Iterable[TenantState]) -> RenderableType:
    """One line for each tenant."""
    table = Table("TENANT", "QUEUE", "MODELS", "NETWORK", "HIGH PODS", "DIFFERENCES", right=("DIFFERENCES",))
    for one in states:
        spec = one.document["spec"]
        models = ", ".join(
            f"{name} {grant.get('shares', 0)}" for name, grant in spec.get("models", {}).items()
        )
        network = spec.get("network", {}).get("profile", "isolated")
        name, high = one.document["metadata"]["name"], str(spec.get("highPods", 0))
        table.add_row(name, one.queue_state, models or "none", network, high, str(one.differences))
    return table


def removed(name: str, result: Removed) -> RenderableType:
    """What went, and what is left."""
    lines = [f"tenant {name}: {len(result.written)} objects removed"]
    lines += [f"left: {sentence}" for sentence in result.left]
    return Group(*map(Text, lines))


def _subject(one: Written) -> str:
    return f"{one.kind} {one.namespace}/{one.name}" if one.namespace else f"{one.kind} {one.name}"


def _value(value: Any) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else orjson.dumps(value).decode()
