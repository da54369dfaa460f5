"""Reads the objects that a report speaks of, and writes the new sizes where the user asks for it."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_OK
from vc_egpu.cli.sizing.change import Change, Json, changes, kept_by, manifest_of, patch_of
from vc_egpu.cli.sizing.objects import KINDS, WRITTEN, said, settled
from vc_egpu.cli.sizing.proposals import Proposal, chosen, proposals
from vc_egpu.cli.sizing.source import document
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.errors import KubeError, Unauthorized

FIELD_MANAGER: Final = "kubectl-egpu-right-size"
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
    """Propose, or write. Raises :class:`CannotApplyError` before it writes anything."""
    found = proposals(document(options))
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
    for (kind, namespace, name), of_one in objects.items():
        resource = KINDS.get(kind)
        if resource is None:
            why = f"{kind} {name} has no template: change what makes it"
            sizes += [_resized(one, "nothing", why) for one in of_one]
            continue
        try:
            live, made = _settled(api, resource, namespace, name, of_one, write=write)
        except Unauthorized:
            raise
        except KubeError as error:
            sizes += [_resized(one, "failed", said(error, kind)) for one in of_one]
            continue
        sizes += _rows(made, kind, write=write)
        if any(one.limits is not None for one in made):
            if kind not in WRITTEN:
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
    of_one: Sequence[Proposal],
    *,
    write: bool,
) -> tuple[Json, tuple[Change, ...]]:
    def decide(live: Json) -> tuple[tuple[Change, ...], Json | None]:
        made = changes(live, of_one)
        writes = write and resource.kind in WRITTEN and any(one.limits is not None for one in made)
        return made, patch_of(live, made) if writes else None

    return settled(api, resource, name, namespace, decide, field_manager=FIELD_MANAGER)


def _rows(made: Sequence[Change], kind: str, *, write: bool) -> Iterator[Resized]:
    does: State = "replace it" if kind not in WRITTEN else "applied" if write else "proposed"
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
