"""Reads both objects of each pair, and writes the halves that the user asks for and may write."""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_OK
from vc_egpu.cli.pairing.change import Changed, blind_patch, change
from vc_egpu.cli.pairing.pairs import Half, Pair, chosen, pairs
from vc_egpu.cli.sizing.change import kept_by
from vc_egpu.cli.sizing.objects import KINDS, Json, said, settled
from vc_egpu.cli.sizing.source import document
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire.errors import Forbidden, KubeError, NotFound, Unauthorized

FIELD_MANAGER: Final = "kubectl-egpu-pair"
State = Literal["proposed", "applied", "paired", "hand on", "replace it", "nothing", "failed", "removed"]


@dataclass(frozen=True, slots=True)
class Paired:
    """One half of a pair."""

    kind: str
    namespace: str
    name: str
    container: str
    other: str
    """``Deployment serve/batch``."""
    method: str
    state: State
    memory_before_mib: int
    memory_used_mib: int
    memory_mib: int | None
    cores_percent: int | None
    saved_card_hours_per_week: float
    why: str = ""


@dataclass(frozen=True, slots=True)
class Handed:
    """A patch or a manifest that somebody else has to write."""

    about: str
    document: Json


@dataclass(frozen=True, slots=True)
class PairReport:
    """All of them."""

    halves: tuple[Paired, ...]
    handed: tuple[Handed, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        """Exit status."""
        return EXIT_FOUND if any(one.state == "failed" for one in self.halves) else EXIT_OK


_NOTHING: Final = Changed(None)


@dataclass(frozen=True, slots=True)
class _Look:
    """A half, and its object as it is now."""

    half: Half
    live: Json | None = None
    made: Changed = _NOTHING
    error: KubeError | None = None

    @property
    def hindrance(self) -> str:
        """Why the pair cannot be."""
        if isinstance(self.error, NotFound):
            return said(self.error, self.half.partner.kind)
        if self.half.partner.kind not in KINDS:
            return (
                f"{self.half.partner.kind} {self.half.partner.service} has no template: change what makes it"
            )
        return self.made.why if self.made.hinders else ""


def run(api: ApiConnection, namespace: str, options: argparse.Namespace) -> PairReport:
    """Propose, or write. Raises :class:`CannotApplyError` before it writes anything."""
    meant = chosen(pairs(document(options)), options.service, None if options.everywhere else namespace)
    return pair(api, meant, write=options.apply)


def pair(api: ApiConnection, meant: Sequence[Pair], *, write: bool) -> PairReport:
    """Pair by pair. One that cannot be read or written holds up no other."""
    halves: list[Paired] = []
    handed: list[Handed] = []
    notes: list[str] = []
    for one in meant:
        looks = [_look(api, half) for half in (one.one, one.other)]
        hindrances = [look.hindrance for look in looks]
        if any(hindrances):
            for look, own, others in zip(looks, hindrances, reversed(hindrances), strict=True):
                halves.append(_row(one, look, "nothing", own or f"{look.half.other}: {others}"))
            continue
        states = [_written(api, look, write=write) for look in looks]
        for look, (state, why) in zip(looks, states, strict=True):
            halves.append(_row(one, look, state, why))
            handed += _handed(look, state)
        notes += _notes(one, looks, [state for state, _ in states])
    if not meant:
        notes.append("the report has no pair here")
    return PairReport(tuple(halves), tuple(handed), tuple(notes))


def _look(api: ApiConnection, half: Half) -> _Look:
    resource = KINDS.get(half.partner.kind)
    if resource is None:
        return _Look(half)
    try:
        live = api.get(resource, half.partner.service, half.partner.namespace)
    except Unauthorized:
        raise
    except KubeError as error:
        return _Look(half, error=error)
    return _Look(half, live, change(live, half))


def _written(api: ApiConnection, look: _Look, *, write: bool) -> tuple[State, str]:
    of = look.half.partner
    if look.error is not None:
        return _refused(look.error, of.kind)
    if not write or look.made.patch is None:
        return _state(look.made, "proposed")

    def decide(live: Json) -> tuple[Changed, Json | None]:
        made = change(live, look.half)
        return made, made.patch

    try:
        _, made = settled(api, KINDS[of.kind], of.service, of.namespace, decide, field_manager=FIELD_MANAGER)
    except Unauthorized:
        raise
    except KubeError as error:
        return _refused(error, of.kind)
    return _state(made, "applied")


def _state(made: Changed, does: State) -> tuple[State, str]:
    """``does``: where there is a patch."""
    if made.manifest is not None:
        return "replace it", ""
    if made.patch is not None:
        return does, ""
    return ("paired", "") if made.is_paired else ("nothing", made.why)


def _refused(error: KubeError, kind: str) -> tuple[State, str]:
    """Another owner may have the right."""
    return ("hand on" if isinstance(error, Forbidden) else "failed"), said(error, kind)


def _handed(look: _Look, state: State) -> Iterator[Handed]:
    of = look.half.partner
    if state == "replace it" and look.made.manifest is not None:
        yield Handed(f"The template of {of.name} cannot change. Delete it, then create:", look.made.manifest)
    if state == "hand on":
        patch = look.made.patch or blind_patch(look.half)
        told = {key: value for key, value in patch.items() if key != "metadata"}
        if record := (patch.get("metadata") or {}).get("annotations"):
            told = {"metadata": {"annotations": record}, **told}
        place = f"{of.kind.lower()} {of.service} -n {of.namespace}"
        yield Handed(f"For the owner of {of.name}: kubectl patch {place} --patch-file FILE", told)


def _notes(one: Pair, looks: Sequence[_Look], states: Sequence[State]) -> Iterator[str]:
    done = {"applied", "paired"}
    if len(done & set(states)) and "hand on" in states:
        waits = looks[states.index("hand on")].half.partner.name
        yield f"the pair saves nothing until {waits} has its half, too"
    if one.method == "spill":
        yield f"memory spills on nodes with a memoryRatio of {one.needed_ratio:.1f} at least"
    if one.method == "suspension":
        yield (
            f"{one.one.partner.name} and {one.other.partner.name}: the low one comes back when the other is "
            "scaled down"
        )
        if any(look.half.annotations for look in looks):
            yield "pods of class high need the right `use` on PriorityClass egpu-high"
    for look in looks:
        if look.live is not None and look.made.patch is not None and (keeper := kept_by(look.live)):
            name = look.half.partner.name
            yield f"{keeper} writes {name} from a source of its own: change it there, too"


def _row(one: Pair, look: _Look, state: State, why: str) -> Paired:
    of = look.half.partner
    return Paired(
        of.kind,
        of.namespace,
        of.service,
        of.container,
        look.half.other,
        one.method,
        state,
        of.granted_mib,
        of.used_mib,
        look.half.memory_mib,
        look.made.cores_percent,
        one.saved_card_hours_per_week,
        why,
    )
