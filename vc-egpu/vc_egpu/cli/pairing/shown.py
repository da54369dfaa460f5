"""Pairs as a table, and patches and manifests for what the user cannot write."""

import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.pairing.run import PairReport
from vc_egpu.cli.views.render import hanging
from vc_egpu.cli.views.table import Table

_STYLES = {"applied": "green", "paired": "green", "removed": "green", "failed": "red", "hand on": "yellow",
           "replace it": "yellow"}  # fmt: skip


def shown(report: PairReport, *, written: bool) -> RenderableType:
    """A row for each half. ``written``: the user asked for it."""
    parts: list[RenderableType] = []
    if report.halves:
        table = Table(
            "OBJECT", "CONTAINER", "WITH", "HOW", "MiB", "USED", "NEW MiB", "CORES %", "STATE", "WHY",
            right=("MiB", "USED", "NEW MiB", "CORES %"),
        )  # fmt: skip
        for one in report.halves:
            table.add_row(
                f"{one.kind} {one.namespace}/{one.name}",
                one.container,
                one.other,
                one.method,
                str(one.memory_before_mib or ""),
                str(one.memory_used_mib or ""),
                "" if one.memory_mib is None else str(one.memory_mib),
                "" if one.cores_percent is None else str(one.cores_percent),
                Text(one.state, _STYLES.get(one.state, "")),
                one.why,
            )
        parts.append(table)
    parts += [Text(f"note: {hanging(note)}", style="yellow") for note in report.notes]
    for each in report.handed:
        parts.append(Text(f"# {each.about}"))
        parts.append(Text("---\n" + yaml.safe_dump(each.document, sort_keys=False).rstrip()))
    if not written and any(one.state == "proposed" for one in report.halves):
        parts.append(Text("nothing was written: --apply does it, and the pods are made again"))
    return Group(*parts)
