"""Rows of a report: what each container of a service has, and what would do."""

import contextlib
import importlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vc_egpu.cli.sizing.flags import CannotResizeError
from vc_egpu.core.model.words import few
from vc_egpu.volcano.api.paths import problem_of

_MIB: Final = 1 << 20
_CHANGES: Final = frozenset({"shrink", "grow"})
_LARGEST: Final = 256 << 20
"""Bytes of a file; a report of 2,000 services has some 5 million."""
_MOST_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class Proposal:
    """One container of one service."""

    kind: str
    """``Deployment``, ``StatefulSet``, ``Job`` or ``Pod``, as far as names of pods tell."""
    namespace: str
    service: str
    container: str
    model: str
    advice: str
    """``shrink``, ``grow``, ``keep``, or why nothing is proposed."""
    memory_granted_mib: int
    memory_used_mib: int
    """The most that was seen."""
    memory_mib: int | None
    """What is proposed; None: nothing."""
    cores_percent: int | None
    hours_seen: float

    @property
    def is_change(self) -> bool:
        """Whether the report proposes another size."""
        return self.advice in _CHANGES and self.memory_mib is not None


def read(path: Path) -> tuple[Proposal, ...]:
    """Rows of a report in JSON. Raises :class:`CannotResizeError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise CannotResizeError(f"{path} is larger than a report: {_LARGEST >> 20} MiB at most")
        return proposals(json.loads(path.read_bytes()))
    except OSError as error:
        raise CannotResizeError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CannotResizeError(f"{path} is no JSON: `vc-egpu report --format json` writes it") from None


def made_now(source: Iterable[str], since: str) -> tuple[Proposal, ...]:
    """Rows of a report that is made now; its libraries are loaded for it. ``source``: its flags."""
    reports = importlib.import_module("vc_egpu.usage.main")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        status: int = reports.main([*source, f"--since={since}", "--format=json"])
    if status:
        raise CannotResizeError("no report could be made")
    return proposals(json.loads(text.getvalue()))


def proposals(document: object) -> tuple[Proposal, ...]:
    """The rows of its table ``right_sizes``."""
    tables = document.get("tables") if isinstance(document, Mapping) else None
    rows = tables.get("right_sizes") if isinstance(tables, Mapping) else None
    if not isinstance(rows, list):
        raise CannotResizeError("the file has no table right_sizes: is it a report?")
    clusters = sorted({str(row.get("cluster", "")) for row in rows if isinstance(row, Mapping)})
    if len(clusters) > 1:
        # A service of the same name in another cluster would get this one's size.
        raise CannotResizeError(f"the report is of {', '.join(clusters)}: make one of this cluster alone")
    return tuple(_proposal(number, row) for number, row in enumerate(rows))


def _proposal(number: int, row: Any) -> Proposal:
    try:
        texts = ("kind", "namespace", "service", "container", "model", "advice")
        kind, namespace, service, container, model, advice = (str(row[key]) for key in texts)
        memory, cores = row["memory_proposed_bytes"], row["cores_proposed_ratio"]
        found = Proposal(
            kind,
            namespace,
            service,
            container,
            model,
            advice,
            memory_granted_mib=round(row["memory_granted_bytes"] / _MIB),
            memory_used_mib=-int(-(row["memory_used_max_bytes"] or 0) // _MIB),
            memory_mib=None if memory is None else -int(-memory // _MIB),
            cores_percent=None if cores is None else round(cores * 100),
            hours_seen=float(row["hours_seen"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise CannotResizeError(f"row {number} of right_sizes is not one of a report") from None
    wrong = [name for name in (found.namespace, found.service) if problem_of(name)]
    if wrong or (found.memory_mib or 1) < 1 or not 0 <= (found.cores_percent or 0) <= 100:
        raise CannotResizeError(f"row {number} of right_sizes has a value that is none")
    least_mib = min(found.memory_used_mib, found.memory_granted_mib)
    if found.memory_mib is not None and found.memory_mib < least_mib:
        raise CannotResizeError(f"row {number} of right_sizes proposes less memory than was used")
    return found


def chosen(found: Iterable[Proposal], services: Iterable[str], namespace: str | None) -> tuple[Proposal, ...]:
    """Those that are meant: all changes, or all that is said of these services. None: of all namespaces."""
    here = [one for one in found if namespace in {None, one.namespace}]
    wanted = {name.rpartition("/")[2] for name in services}
    if missing := sorted(wanted - {one.service for one in here}):
        known = few(sorted({one.service for one in here}), _MOST_NAMED) or "none"
        raise CannotResizeError(f"the report knows no {', '.join(missing)} there; it knows {known}")
    return tuple(one for one in here if (one.service in wanted if wanted else one.is_change))
