"""Takes pairs back: both halves get what they had, except for what their owners changed since."""

import argparse
from collections.abc import Iterable
from typing import Final

from vc_egpu.cli.pairing.change import annotations_of, record_of, undo
from vc_egpu.cli.pairing.run import FIELD_MANAGER, Handed, Paired, PairReport, State
from vc_egpu.cli.sizing.objects import KINDS, WRITTEN, Json, said, settled
from vc_egpu.cli.sizing.source import CannotApplyError
from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire.errors import Forbidden, KubeError, NotFound, Unauthorized
from vc_egpu.volcano.words import names

_MOST_NAMED: Final = 10
_Place = tuple[str, str, str]
"""Kind, namespace, name."""


def run(api: ApiConnection, namespace: str, options: argparse.Namespace) -> PairReport:
    """Say what would go back, or write it. Raises :class:`CannotApplyError` before it writes anything."""
    found = _paired(api, None if options.everywhere else namespace)
    wanted = {name.rpartition("/")[2] for name in options.service}
    if missing := sorted(wanted - {name for _, _, name in found}):
        known = few(sorted(name for _, _, name in found), _MOST_NAMED) or "none"
        raise CannotApplyError(f"no pair has {', '.join(missing)} there; these are paired: {known}")
    meant = [place for place in found if not wanted or place[2] in wanted]
    for place in [_other(found[place]) for place in meant]:
        if place is not None and place not in meant:
            meant.append(place)
    halves: list[Paired] = []
    handed: list[Handed] = []
    for place in meant:
        row, patch = _removed(api, place, write=options.apply)
        halves.append(row)
        if patch is not None:
            kind, where, name = place
            about = f"For the owner of {kind} {where}/{name}: "
            handed.append(
                Handed(f"{about}kubectl patch {kind.lower()} {name} -n {where} --patch-file FILE", patch)
            )
    notes = () if meant else ("nothing is paired here",)
    return PairReport(tuple(halves), tuple(handed), notes)


def _paired(api: ApiConnection, namespace: str | None) -> dict[_Place, Json]:
    return {
        (kind, live["metadata"]["namespace"], live["metadata"]["name"]): live
        for kind in sorted(WRITTEN)
        for live in _listed(api, kind, namespace)
        if names.PAIRED in annotations_of(live)
    }


def _listed(api: ApiConnection, kind: str, namespace: str | None) -> Iterable[Json]:
    return api.list(KINDS[kind], namespace=namespace).items


def _other(live: Json) -> _Place | None:
    record = record_of(annotations_of(live).get(names.PAIRED))
    kind, _, rest = (record.other if record else "").partition(" ")
    namespace, _, name = rest.partition("/")
    return (kind, namespace, name) if kind in WRITTEN and namespace and name else None


def _removed(api: ApiConnection, place: _Place, *, write: bool) -> tuple[Paired, Json | None]:
    """Its row, and the patch where somebody else has to write it."""
    kind, namespace, name = place
    state: State = "removed" if write else "proposed"
    seen: Json = {}

    def decide(live: Json) -> tuple[tuple[Json | None, str], Json | None]:
        seen.update(live)
        if names.PAIRED not in annotations_of(live):
            return (None, "it is no half of a pair"), None
        made = undo(live)
        return made, made[0] if write else None

    try:
        _, (patch, why) = settled(api, KINDS[kind], name, namespace, decide, field_manager=FIELD_MANAGER)
    except Unauthorized:
        raise
    except Forbidden as error:
        patch = undo(seen)[0] if seen else None
        return _row(place, seen, "hand on" if patch else "failed", error.message), patch
    except NotFound as error:
        return _row(place, seen, "nothing", said(error, kind)), None
    except KubeError as error:
        return _row(place, seen, "failed", said(error, kind)), None
    if patch is None:
        return _row(place, seen, "nothing", why), None
    return _row(place, seen, state, why), None


def _row(place: _Place, live: Json, state: State, why: str) -> Paired:
    kind, namespace, name = place
    record = record_of(annotations_of(live).get(names.PAIRED))
    before, after = (record.limits.get(names.LIMIT_MEMORY) if record else None) or (None, None)
    cores, _ = (record.limits.get(names.LIMIT_CORES) if record else None) or (None, None)
    return Paired(
        kind,
        namespace,
        name,
        record.container if record else "",
        record.other if record else "",
        "",
        state,
        memory_before_mib=_number(after) or 0,
        memory_used_mib=0,
        memory_mib=_number(before),
        cores_percent=_number(cores),
        saved_card_hours_per_week=0.0,
        why=why,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None
