"""Right sizes as manifests: parts of Deployments and StatefulSets that a server-side apply takes.

A template of a Job cannot change while it is there, so that its new limits stand in a comment.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from vc_egpu.usage.reports.whole import Report

_MIB: Final = 1 << 20
_MEMORY: Final = "volcano.sh/vgpu-memory"
_CORES: Final = "volcano.sh/vgpu-cores"
_PATCHED: Final = frozenset({"Deployment", "StatefulSet"})
_CHANGES: Final = frozenset({"shrink", "grow"})
HEAD: Final = (
    "# Read each change, then: kubectl apply --server-side --force-conflicts -f <this file>\n"
    "# The pods of each object are made again. An object that GitOps keeps has to change in its source.\n"
)


def manifests(report: Report) -> str:
    """All proposed changes as one YAML file."""
    objects: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in report.tables["right_sizes"]:
        if row["advice"] in _CHANGES:
            objects.setdefault((row["kind"], row["namespace"], row["service"]), []).append(row)
    documents = [
        _document(kind, namespace, name, rows) if kind in _PATCHED else _comment(kind, namespace, name, rows)
        for (kind, namespace, name), rows in objects.items()
    ]
    return HEAD + "".join(documents)


def limits_of(row: Mapping[str, Any]) -> dict[str, int]:
    """The proposed limits of a container: MiB of memory, percent of cores."""
    limits = {_MEMORY: -int(-row["memory_proposed_bytes"] // _MIB)}
    if row["cores_proposed_ratio"] is not None:
        limits[_CORES] = round(row["cores_proposed_ratio"] * 100)
    return limits


def _document(kind: str, namespace: str, name: str, rows: list[Mapping[str, Any]]) -> str:
    containers = [{"name": row["container"], "resources": {"limits": limits_of(row)}} for row in rows]
    document = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    told = "".join(f"# {_reason(row)}\n" for row in rows)
    return f"---\n{told}{yaml.safe_dump(document, sort_keys=False)}"


def _comment(kind: str, namespace: str, name: str, rows: list[Mapping[str, Any]]) -> str:
    lines: Iterator[str] = (f"#   {row['container']}: {limits_of(row)} ({_reason(row)})\n" for row in rows)
    return f"# {kind} {namespace}/{name} cannot change in place. Write into its manifest:\n{''.join(lines)}"


def _reason(row: Mapping[str, Any]) -> str:
    used, now = row["memory_used_max_bytes"] / _MIB, row["memory_granted_bytes"] / _MIB
    return (
        f"{row['container']}: used at most {used:.0f} MiB of {now:.0f} MiB in {row['hours_seen']:.0f} hours"
    )
