"""Rows of a report: what each container of a service has, and what would do. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.cli.sizing.source import CannotApplyError, rows_of
from vc_egpu.core.model.words import few
from vc_egpu.volcano.api.paths import problem_of

_MIB: Final = 1 << 20
_CHANGES: Final = frozenset({"shrink", "grow"})
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


def proposals(document: object) -> tuple[Proposal, ...]:
    """The rows of its table ``right_sizes``. Raises :class:`CannotApplyError`."""
    rows = rows_of(document, "right_sizes")
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
        raise CannotApplyError(f"row {number} of right_sizes is not one of a report") from None
    wrong = [name for name in (found.namespace, found.service) if problem_of(name)]
    if wrong or (found.memory_mib or 1) < 1 or not 0 <= (found.cores_percent or 0) <= 100:
        raise CannotApplyError(f"row {number} of right_sizes has a value that is none")
    least_mib = min(found.memory_used_mib, found.memory_granted_mib)
    if found.memory_mib is not None and found.memory_mib < least_mib:
        raise CannotApplyError(f"row {number} of right_sizes proposes less memory than was used")
    return found


def chosen(found: Iterable[Proposal], services: Iterable[str], namespace: str | None) -> tuple[Proposal, ...]:
    """Those that are meant: all changes, or all that is said of these services. None: of all namespaces."""
    here = [one for one in found if namespace in {None, one.namespace}]
    wanted = {name.rpartition("/")[2] for name in services}
    if missing := sorted(wanted - {one.service for one in here}):
        known = few(sorted({one.service for one in here}), _MOST_NAMED) or "none"
        raise CannotApplyError(f"the report knows no {', '.join(missing)} there; it knows {known}")
    return tuple(one for one in here if (one.service in wanted if wanted else one.is_change))
