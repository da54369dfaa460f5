"""The sizes as a table, and manifests for what cannot change in place."""

import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.sizing.run import ResizeReport
from vc_egpu.cli.views.render import hanging
from vc_egpu.cli.views.table import Table

_STYLES = {"applied": "green", "failed": "red", "replace it": "yellow"}


def shown(report: ResizeReport, *, written: bool) -> RenderableType:
    """A row for each container. ``written``: the user asked for it."""
    parts: list[RenderableType] = []
    if report.sizes:
        table = Table(
            "OBJECT", "CONTAINER", "MiB", "USED", "NEW MiB", "CORES %", "HOURS", "STATE", "WHY",
            right=("MiB", "USED", "NEW MiB", "CORES %", "HOURS"),
        )  # fmt: skip
        for one in report.sizes:
            table.add_row(
                f"{one.kind} {one.namespace}/{one.name}",
                one.container,
                str(one.memory_before_mib),
                str(one.memory_used_mib),
                _number(one.memory_mib),
                _number(one.cores_percent),
                f"{one.hours_seen:.0f}",
                Text(one.state, _STYLES.get(one.state, "")),
                one.why,
            )
        parts.append(table)
    parts += [Text(f"note: {hanging(note)}", style="yellow") for note in report.notes]
    if report.manifests:
        parts.append(Text("# The templates of these Jobs cannot change. Delete each, then create:"))
        parts += [Text("---\n" + yaml.safe_dump(one, sort_keys=False).rstrip()) for one in report.manifests]
    if not written and any(one.state == "proposed" for one in report.sizes):
        parts.append(Text("nothing was written: --apply does it, and the pods are made again"))
    return Group(*parts)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
