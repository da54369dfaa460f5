"""``kubectl egpu top``: what each pod uses of its cards now, as the node agents measure it.

The agents are asked through the API server, which takes the right to ``get`` ``pods/proxy`` in our namespace.
Compute is what was used between two looks.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.views.render import hanging
from vc_egpu.cli.views.table import Table
from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.metrics.family import MIB
from vc_egpu.metrics.vocabulary import node as vocabulary
from vc_egpu.volcano.words import names

AGENTS: Final = "app.kubernetes.io/name=vc-egpu-node-agent"
PORT: Final = 9445
BETWEEN_S: Final = 2.0
"""Between the two looks."""
_AT_ONCE: Final = 16

Key = tuple[str, str, str, str]
"""(namespace, pod, container, UUID of the card)."""


@dataclass(frozen=True, slots=True)
class UseRow:
    """One container on one card."""

    pod: str
    """``namespace/name``."""
    container: str
    node: str
    uuid: str
    granted_mib: int
    used_mib: int | None
    """None: the driver does not tell."""
    cores_percent: int
    """Granted; 0: none was named."""
    busy_percent: float | None
    """Part of the card's time that it used between the two looks."""


@dataclass(frozen=True, slots=True)
class TopReport:
    """All of them, the busiest first; and what could not be seen."""

    containers: tuple[UseRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """One agent's page at one moment."""

    node: str
    at_s: float
    """Monotonic."""
    values: Mapping[str, Mapping[Key, float]]
    """By family."""
    missing: str = ""
    """Why there are none."""


_WANTED: Final = (
    vocabulary.MEMORY_GRANTED,
    vocabulary.MEMORY_USED,
    vocabulary.CORES_GRANTED,
    vocabulary.COMPUTE_USED_SECONDS,
)


def read(
    api: ApiConnection,
    namespace: str | None,
    node: str = "",
    *,
    pause: Callable[[float], object] = time.sleep,
) -> TopReport:
    """The use in one namespace, in all where it is None. ``node``: on this node alone."""
    on_it = f"spec.nodeName={node}" if node else None
    agents = api.list(PODS, names.SYSTEM_NAMESPACE, label_selector=AGENTS, field_selector=on_it).items
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="top") as threads:
        before = list(threads.map(lambda agent: _look(api, agent), agents))
        pause(BETWEEN_S)
        after = list(threads.map(lambda agent: _look(api, agent), agents))
    return report(before, after, namespace)


def _look(api: ApiConnection, agent: Json) -> Look:
    where = str((agent.get("spec") or {}).get("nodeName") or "")
    path = f"{PODS.path(names.SYSTEM_NAMESPACE, agent['metadata']['name'])}:{PORT}/proxy/metrics"
    try:
        text = api.request_text(path)
    except KubeError as error:
        return Look(where, time.monotonic(), {}, str(error))
    return Look(where, time.monotonic(), values_of(text))


def values_of(text: str) -> dict[str, dict[Key, float]]:
    """What an agent's page says of containers, by family."""
    found: dict[str, dict[Key, float]] = {family.name: {} for family in _WANTED}
    prefixes = tuple(found)
    lines = "\n".join(line for line in text.splitlines() if line.startswith(prefixes))
    for family in text_string_to_metric_families(lines):
        for sample in family.samples:
            if sample.name in found:
                one = sample.labels
                found[sample.name][one["namespace"], one["pod"], one["container"], one["uuid"]] = sample.value
    return found


def report(before: Iterable[Look], after: Iterable[Look], namespace: str | None) -> TopReport:
    """The rows of two looks at the same agents."""
    earlier, rows, silent = {look.node: look for look in before}, list[UseRow](), list[str]()
    later = list(after)
    for look in later:
        if look.missing:
            silent.append(look.node)
            continue
        for key in look.values[vocabulary.MEMORY_GRANTED.name]:
            if namespace is None or key[0] == namespace:
                rows.append(_row(key, earlier.get(look.node), look))
    rows.sort(key=lambda row: (-(row.busy_percent or 0.0), -(row.used_mib or 0), row.pod))
    notes = [f"{few(sorted(silent))} did not answer"] if silent else []
    if any(row.used_mib is None for row in rows):
        notes.append("- is not told by the driver: `kubectl egpu doctor` says what it takes")
    if not later:
        notes.append("no agent runs there: `kubectl egpu doctor`")
    return TopReport(tuple(rows), tuple(notes))


def _row(key: Key, before: Look | None, now: Look) -> UseRow:
    granted, used, cores, seconds = (now.values[family.name].get(key) for family in _WANTED)
    first = before.values.get(vocabulary.COMPUTE_USED_SECONDS.name, {}).get(key) if before else None
    busy = None
    if before is not None and first is not None and seconds is not None and now.at_s > before.at_s:
        busy = round(100 * max(0.0, seconds - first) / (now.at_s - before.at_s), 1)
    return UseRow(
        pod=f"{key[0]}/{key[1]}",
        container=key[2],
        node=now.node,
        uuid=key[3],
        granted_mib=int(granted or 0) // MIB,
        used_mib=None if used is None else int(used) // MIB,
        cores_percent=round(100 * (cores or 0)),
        busy_percent=busy,
    )


def shown(found: TopReport) -> RenderableType:
    """One line for each container and card."""
    parts: list[RenderableType] = []
    if found.containers:
        numbers = ("USED MiB", "GRANTED MiB", "BUSY %", "CORES %")
        table = Table("POD", "CONTAINER", "NODE", "CARD", *numbers, right=numbers)
        for row in found.containers:
            used = "-" if row.used_mib is None else str(row.used_mib)
            busy = "-" if row.busy_percent is None else f"{row.busy_percent:.1f}"
            figures = (used, str(row.granted_mib), busy, str(row.cores_percent or "-"))
            table.add_row(row.pod, row.container, row.node, row.uuid, *figures)
        parts.append(table)
    else:
        parts.append(Text("no container is on a card there"))
    return Group(*parts, *(Text(f"note: {hanging(note)}", style="yellow") for note in found.notes))
