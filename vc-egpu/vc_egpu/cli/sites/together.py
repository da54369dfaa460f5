"""Many clusters' answers as one: one table with a column for the cluster, one document for programs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_NO_CLUSTER, EXIT_OK, explain
from vc_egpu.cli.live.forms import as_names
from vc_egpu.cli.sites.fan_out import Heard
from vc_egpu.cli.views.table import Table
from vc_egpu.kube import ConfigError
from vc_egpu.kube.wire.errors import KubeError


@dataclass(frozen=True, slots=True)
class Part:
    """What a command says of one cluster."""

    document: Any
    shown: RenderableType
    status: int = EXIT_OK


@dataclass(frozen=True, slots=True)
class SiteAnswer:
    """One cluster's answer, for programs."""

    cluster: str
    city: str
    answer: Any


@dataclass(frozen=True, slots=True)
class Silent:
    """A cluster of which nothing is known now."""

    cluster: str
    city: str
    reason: str
    answered_last: str
    """An instant in UTC; empty: never, as far as this machine knows."""


@dataclass(frozen=True, slots=True)
class Together:
    """All of them, for programs."""

    asked: int
    answered: int
    clusters: tuple[SiteAnswer, ...]
    unreachable: tuple[Silent, ...]

    def names(self) -> bytes:
        """One ``cluster/name`` a line. Raises :class:`~vc_egpu.cli.live.forms.FormError`."""
        lines = [
            f"{one.cluster}/{name}"
            for one in self.clusters
            for name in as_names(one.answer).decode().splitlines()
        ]
        return "\n".join(lines).encode()


@dataclass(frozen=True, slots=True)
class Said:
    """What is shown, and the exit status."""

    document: Together
    shown: RenderableType
    status: int


def together(
    heard: Sequence[Heard[Part]],
    within_s: float,
    since: Callable[[str], str],
    absent: tuple[type[Exception], ...],
) -> Said:
    """The answers as one. ``since``: when a cluster answered last. ``absent``: errors that say that the
    cluster has not what was asked for. If no cluster has it, the first such error is raised."""
    parts = [(one.site, one.answer) for one in heard if one.answer is not None]
    lacking = [one for one in heard if isinstance(one.error, absent)]
    silent = tuple(
        Silent(one.site.name, one.site.city, _reason(one.error, within_s), since(one.site.name))
        for one in heard
        if one.answer is None and one not in lacking
    )
    if not parts and lacking and lacking[0].error is not None and not silent:
        raise lacking[0].error
    document = Together(
        asked=len(heard),
        answered=len(heard) - len(silent),
        clusters=tuple(SiteAnswer(site.name, site.city, part.document) for site, part in parts),
        unreachable=silent,
    )
    shown = [_joined([(site.name, part.shown) for site, part in parts]), *_missing(document, lacking)]
    worst = max((part.status for _, part in parts), default=EXIT_FOUND if lacking else EXIT_OK)
    return Said(document, Group(*shown), EXIT_NO_CLUSTER if silent else worst)


def _reason(error: Exception | None, within_s: float) -> str:
    if error is None:
        return f"no answer within {within_s:g} s"
    if isinstance(error, KubeError):
        return explain(error)[0]
    if isinstance(error, ConfigError):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _missing(document: Together, lacking: Iterable[Heard[Part]]) -> list[RenderableType]:
    found: list[RenderableType] = [Text(f"{one.site.name}: {one.error}", style="dim") for one in lacking]
    for one in document.unreachable:
        last = f"; it answered last at {one.answered_last}" if one.answered_last else ""
        found.append(Text(f"{one.cluster} is missing: {one.reason}{last}", style="bold red"))
    if document.unreachable:
        text = f"this is of {document.answered} of {document.asked} clusters"
        found.append(Text(text, style="bold red"))
    return found


def _joined(shown: Sequence[tuple[str, RenderableType]]) -> RenderableType:
    """Tables of the same columns as one; what else was said below, under the cluster's name."""
    pieces = [(name, _pieces(one)) for name, one in shown]
    tables = [
        (name, one) for name, found in pieces for one in found if isinstance(one, Table) and one.columns
    ]
    heads: Mapping[tuple[str, ...], None] = dict.fromkeys(table.columns for _, table in tables)
    alike = len(heads) == 1 and all(sum(isinstance(one, Table) for one in found) <= 1 for _, found in pieces)
    parts: list[RenderableType] = []
    if alike:
        parts.append(Table.joined("CLUSTER", tables))
    for name, found in pieces:
        rest = [one for one in found if not (alike and isinstance(one, Table))]
        if rest:
            parts += [Text(f"{name}:", style="bold"), *rest]
    return Group(*parts)


def _pieces(shown: RenderableType) -> list[RenderableType]:
    if isinstance(shown, Group):
        return [piece for one in shown.renderables for piece in _pieces(one)]
    return [shown]
