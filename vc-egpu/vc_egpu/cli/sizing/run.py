"""Reads the objects that a report speaks of, and writes the new sizes where the user asks for it."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_OK
from vc_egpu.cli.sizing.change import Change, Json, changes, kept_by, manifest_of, patch_of
from vc_egpu.cli.sizing.proposals import Proposal, chosen, made_now, read
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import DEPLOYMENTS, STATEFUL_SETS, VOLCANO_JOBS, Resource
from vc_egpu.kube.wire.errors import Conflict, KubeError, NotFound, Unauthorized

FIELD_MANAGER: Final = "kubectl-egpu-right-size"
TRIES: Final = 5
"""Controllers write these objects' status all the time."""
_KINDS: Final[Mapping[str, Resource]] = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "Job": VOLCANO_JOBS,
}
_WRITTEN: Final = frozenset({"Deployment", "StatefulSet"})
State = Literal["proposed", "applied", "replace it", "nothing", "failed"]


@dataclass(frozen=True, slots=True)
class Resized:
    """One container of one object."""

    kind: str
    namespace: str
    name: str
    container: str
    state: State
    memory_before_mib: int
    memory_used_mib: int
    memory_mib: int | None
    cores_percent: int | None
    hours_seen: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class ResizeReport:
    """All of them."""

    sizes: tuple[Resized, ...]
    manifests: tuple[Json, ...] = ()
    """Jobs as they would have to be made again."""
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """Exit status."""
        return EXIT_FOUND if any(one.state == "failed" for one in self.sizes) else EXIT_OK


def run(api: ApiConnection, namespace: str, options: argparse.Namespace) -> ResizeReport:
    """Propose, or write. Raises :class:`CannotResizeError` before it writes anything."""
    if options.report:
        found = read(Path(options.report))
    else:
        source = ["--folder", options.folder] if options.folder else ["--prometheus", options.prometheus]
        found = made_now(source, options.since)
    meant = chosen(found, options.service, None if options.everywhere else namespace)
    return resize(api, meant, write=options.apply)


def resize(api: ApiConnection, meant: Sequence[Proposal], *, write: bool) -> ResizeReport:
    """Object by object. One that cannot be read or written holds up no other."""
    objects: dict[tuple[str, str, str], list[Proposal]] = {}
    for one in meant:
        objects.setdefault((one.kind, one.namespace, one.service), []).append(one)
    sizes: list[Resized] = []
    manifests: list[Json] = []
    notes: list[str] = []
    for (kind, namespace, name), proposals in objects.items():
        resource = _KINDS.get(kind)
        if resource is None:
            why = f"{kind} {name} has no template: change what makes it"
            sizes += [_resized(one, "nothing", why) for one in proposals]
            continue
        try:
            live, made = _settled(api, resource, namespace, name, proposals, write=write)
        except Unauthorized:
            raise
        except KubeError as error:
            sizes += [_resized(one, "failed", _said(error, kind)) for one in proposals]
            continue
        sizes += _rows(made, kind, write=write)
        if any(one.limits is not None for one in made):
            if kind not in _WRITTEN:
                manifests.append(manifest_of(live, made))
            if keeper := kept_by(live):
                whose = f"{kind} {namespace}/{name}"
                notes.append(f"{keeper} writes {whose} from a source of its own: change it there, too")
    if not meant:
        notes.append("the report proposes no change here")
    return ResizeReport(tuple(sizes), tuple(manifests), tuple(notes))


def _settled(
    api: ApiConnection,
    resource: Resource,
    namespace: str,
    name: str,
    proposals: Sequence[Proposal],
    *,
    write: bool,
) -> tuple[Json, tuple[Change, ...]]:
    for left in reversed(range(TRIES)):
        live = api.get(resource, name, namespace)
        made = changes(live, proposals)
        if not write or resource.kind not in _WRITTEN or all(one.limits is None for one in made):
            return live, made
        try:
            api.patch(
                resource, name, patch_of(live, made), namespace, kind="strategic", field_manager=FIELD_MANAGER
            )
            return live, made
        except Conflict:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _said(error: KubeError, kind: str) -> str:
    if isinstance(error, NotFound):
        return f"there is no such {kind} now; another controller may have made its pods"
    if isinstance(error, Conflict):
        return "it changes all the time: try again"
    return error.message


def _rows(made: Sequence[Change], kind: str, *, write: bool) -> Iterator[Resized]:
    does: State = "replace it" if kind not in _WRITTEN else "applied" if write else "proposed"
    for one in made:
        yield _resized(one.proposal, does if one.limits is not None else "nothing", one.why_not)


def _resized(one: Proposal, state: State, why: str) -> Resized:
    return Resized(
        one.kind,
        one.namespace,
        one.service,
        one.container,
        state,
        one.memory_granted_mib,
        one.memory_used_mib,
        one.memory_mib,
        one.cores_percent,
        one.hours_seen,
        why,
    )
