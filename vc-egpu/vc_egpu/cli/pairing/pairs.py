"""Rows of a report: pairs of services, and what each of both has to become. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from vc_egpu.cli.sizing.proposals import Proposal
from vc_egpu.cli.sizing.source import CannotApplyError, rows_of
from vc_egpu.core.model.words import few
from vc_egpu.volcano.api.paths import problem_of
from vc_egpu.volcano.words import names

Method = Literal["share", "spill", "suspension"]
_MIB: Final = 1 << 20
_GIB_IN_MIB: Final = 1024
_HEADROOM_PERCENT: Final = 115
_RESERVE_MIB: Final = 512
"""The report's own headroom for right sizes."""
HALF_PERCENT: Final = 50
_MOST_NAMED: Final = 10
_HIGH, _LOW = "high", "low"


@dataclass(frozen=True, slots=True)
class Partner:
    """One service of a pair, as it was measured."""

    kind: str
    """``Deployment``, ``StatefulSet``, ``Job`` or ``Pod``, as far as names of pods tell."""
    namespace: str
    service: str
    container: str
    share_class: str
    """``high``, ``low`` or empty."""
    granted_mib: int
    used_mib: int
    """The most that was seen, rounded up."""

    @property
    def name(self) -> str:
        """``Deployment serve/chat``."""
        return f"{self.kind} {self.namespace}/{self.service}"


@dataclass(frozen=True, slots=True)
class Half:
    """What one service of a pair has to become."""

    partner: Partner
    model: str
    other: str
    """The name of the other service."""
    memory_mib: int | None
    """None: as it is."""
    splits_cores: bool
    """Whether cores that it names become half a card's at most, which it goes above while the other rests."""
    annotations: Mapping[str, str]
    """For the pod template."""

    def proposal(self, cores_percent: int | None) -> Proposal:
        """The same as a size, with cores as they fit to what the container asks for now."""
        of = self.partner
        return Proposal(
            of.kind, of.namespace, of.service, of.container, self.model, "pair",
            of.granted_mib, of.used_mib, self.memory_mib, cores_percent, hours_seen=0.0,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    """Two services for one card."""

    one: Half
    other: Half
    method: Method
    card_mib: int
    saved_card_hours_per_week: float

    @property
    def needed_ratio(self) -> float:
        """How often a node has to promise its memory, so that both are on one card; up to a tenth."""
        memory_mib = (self.one.memory_mib or 0) + (self.other.memory_mib or 0)
        return -(-10 * memory_mib // self.card_mib) / 10


def pairs(document: object) -> tuple[Pair, ...]:
    """The rows of its table ``pairs``. Raises :class:`CannotApplyError`."""
    return tuple(_pair(number, row) for number, row in enumerate(rows_of(document, "pairs")))


def _pair(number: int, row: Any) -> Pair:
    try:
        one, other = _partner(row, "one"), _partner(row, "other")
        model, method = str(row["model"]), row["method"]
        card_mib = int(row["card_memory_bytes"] // _MIB)
        saved = float(row["saved_card_hours_per_week"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise CannotApplyError(
            f"row {number} of pairs is not one of a report of this version: make the report again"
        ) from None
    called = [text for each in (one, other) for text in (each.namespace, each.service)]
    used = (one.used_mib, other.used_mib)
    if (
        any(problem_of(text) for text in called)
        or method not in get_args(Method)
        or min(*used, one.granted_mib, other.granted_mib) < 0
        or max(used) > card_mib
        or one.name == other.name
    ):
        raise CannotApplyError(f"row {number} of pairs has a value that is none")
    if method == "share" and sum(used) > card_mib:
        raise CannotApplyError(f"row {number} of pairs gives less memory than was used")
    return Pair(*_halves(one, other, model, method, card_mib), method, card_mib, saved)


def _partner(row: Any, which: str) -> Partner:
    texts = ("kind", "namespace", "service", "container", "class")
    kind, namespace, service, container, share_class = (str(row[f"{name}_{which}"]) for name in texts)
    granted, used = row[f"memory_granted_bytes_{which}"], row[f"memory_used_max_bytes_{which}"]
    return Partner(
        kind, namespace, service, container, share_class, round(granted / _MIB), -int(-used // _MIB)
    )


def _halves(one: Partner, other: Partner, model: str, method: Method, card_mib: int) -> tuple[Half, Half]:
    memory: tuple[int | None, int | None] = (None, None)
    if method != "suspension":
        memory = _memory(one.used_mib, other.used_mib, card_mib, together=method == "share")
    stays = _moved(one, other)
    # One of high and one of low have all cores each: high goes first.
    splits = method != "suspension" and {one.share_class, other.share_class} != {_HIGH, _LOW}

    def half(of: Partner, its: Partner, memory_mib: int | None) -> Half:
        said: dict[str, str] = {}
        if method == "spill":
            said[names.OVERSUBSCRIBE] = "true"
        if method == "suspension" and of is not stays and of.share_class != _HIGH:
            said[names.PRIORITY] = _HIGH
        return Half(of, model, its.name, memory_mib, splits, said)

    return half(one, other, memory[0]), half(other, one, memory[1])


def _moved(one: Partner, other: Partner) -> Partner:
    """The one whose memory goes to the host while the other works: it is low, and the smaller of two."""
    low = [each for each in (one, other) if each.share_class == _LOW]
    return min(low or [one, other], key=lambda each: each.used_mib)


def _memory(one_mib: int, other_mib: int, card_mib: int, *, together: bool) -> tuple[int, int]:
    """Right sizes of both. ``together``: less headroom where the card has not so much."""
    wanted = [min(_wanted(used), card_mib) for used in (one_mib, other_mib)]
    if not together or sum(wanted) <= card_mib:
        return wanted[0], wanted[1]
    spare = card_mib - one_mib - other_mib
    return one_mib + spare // 2, other_mib + spare - spare // 2


def _wanted(used_mib: int) -> int:
    most = max(-(-used_mib * _HEADROOM_PERCENT // 100), used_mib + _RESERVE_MIB)
    return -(-most // _GIB_IN_MIB) * _GIB_IN_MIB


def chosen(found: Iterable[Pair], services: Iterable[str], namespace: str | None) -> tuple[Pair, ...]:
    """Pairs with a service of this namespace, and with one of these names. None: of all namespaces."""
    here = [pair for pair in found if any(namespace in {None, one.namespace} for one in _both(pair))]
    wanted = {name.rpartition("/")[2] for name in services}
    known = {one.service for pair in here for one in _both(pair)}
    if missing := sorted(wanted - known):
        told = few(sorted(known), _MOST_NAMED) or "none"
        raise CannotApplyError(f"the report pairs no {', '.join(missing)} there; it pairs {told}")
    return tuple(pair for pair in here if not wanted or any(one.service in wanted for one in _both(pair)))


def _both(pair: Pair) -> tuple[Partner, Partner]:
    return pair.one.partner, pair.other.partner
