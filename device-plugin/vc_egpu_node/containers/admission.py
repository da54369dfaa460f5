"""Whether a share may start on a card: the second wall behind the admission layer's ledger. Pure.

The rules are the ledger's own: memory on the card and in all, host memory of the node, cores by class,
sharers, native cards alone. What was let in stays; of two newcomers that do not fit together, the one with
the lower lease epoch is refused.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, Literal

from vc_egpu.volcano.codec.plans import epoch_of
from vc_egpu.volcano.words.annotations import Cards

ShareClass = Literal["high", "unset", "low"]
FULL_CORES: Final = 100
_SUMS: Final[tuple[tuple[str, tuple[ShareClass, ...]], ...]] = (
    ("high and unset", ("high", "unset")),
    ("unset and low", ("unset", "low")),
)
"""Classes whose cores are counted together."""
_ONE_SUM: Final[tuple[tuple[str, tuple[ShareClass, ...]], ...]] = (("all", ("high", "unset", "low")),)
"""The same where high does not run over low."""
_SLACK: Final = 1e-9
"""Ratios are floats: 100 × 1.1 is a little more than 110."""


class Why(Enum):
    """Why a container does not start."""

    NO_PROMISE = "NoPromise"
    NO_OWNER = "NoOwner"
    NO_PLAN = "NoPlan"
    WRONG_PLAN = "WrongPlan"
    CARD_NOT_USABLE = "CardNotUsable"
    NO_ROOM = "NoRoom"
    TOOLKIT = "Toolkit"
    SLICE = "Slice"
    """The card's driver did not give the slice."""
    NOT_NOW = "NotNow"
    """The kubelet, the API server or the disk did not answer: the same call may succeed later."""


class NotAdmittedError(Exception):
    """The container must not start (now); the text goes into the pod's event."""

    def __init__(self, why: Why, text: str) -> None:
        super().__init__(text)
        self.why = why


@dataclass(frozen=True, slots=True)
class HeldShare:
    """One container's share of one card."""

    pod_uid: str
    container: str
    uuid: str
    memory_mib: int
    cores_percent: int
    share_class: ShareClass = "unset"
    native: bool = False
    epoch: int = 0
    """Epoch of the leader that planned it."""
    physical_mib: int | None = None
    """The part of its memory that may lie on the card; None: all of it."""
    suspended: bool = False
    """Its processes have left the card: all of its memory is on the host, and none of its cores is used."""

    swap: bool = False
    """It has the card in turns with others of that kind."""

    def __post_init__(self) -> None:
        if self.memory_mib < 1 or not 0 <= self.cores_percent <= 100:
            raise ValueError(f"a share of {self.memory_mib} MiB and {self.cores_percent} cores")
        if self.physical_mib is not None and not 1 <= self.physical_mib <= self.memory_mib:
            raise ValueError(f"{self.physical_mib} of a share's {self.memory_mib} MiB are on the card")

    @property
    def on_card_mib(self) -> int:
        """Memory that may lie on the card now."""
        if self.suspended:
            return 0
        return self.memory_mib if self.physical_mib is None else self.physical_mib

    @property
    def host_mib(self) -> int:
        """Memory that may lie on the host now. At a hand-over all of those lie there that take turns."""
        return self.memory_mib if self.swap else self.memory_mib - self.on_card_mib


@dataclass(frozen=True, slots=True)
class CardLimits:
    """What a card may hold."""

    uuid: str
    memory_mib: int
    """Nominal memory of the model."""
    memory_ratio: float = 1.0
    core_ratio: float = 1.0
    ratio_class: ShareClass | None = None
    """The only class that may have more cores than there are; None: all."""
    max_sharers: int = 100
    stack: bool = True
    """False: high does not run over low on it."""


def planned(cards: Cards) -> list[HeldShare]:
    """All shares of a pod, as its annotation says."""
    return [
        HeldShare(
            pod_uid=cards.pod_uid,
            container=container,
            uuid=share.uuid,
            memory_mib=share.memory_mib,
            cores_percent=share.cores,
            share_class=cards.share_class,
            native=cards.native,
            epoch=epoch_of(cards.plan_id),
            physical_mib=share.physical_mib,
            swap=bool(share.swap),
        )
        for container, shares in cards.containers.items()
        for share in shares
    ]


def asleep(held: Iterable[HeldShare], pods: Collection[str]) -> list[HeldShare]:
    """The shares, those of these pods (by UID) as what they are while suspended."""
    return [replace(share, suspended=True) if share.pod_uid in pods else share for share in held]


def rivals(held: Iterable[HeldShare], waiting: Iterable[HeldShare], new: HeldShare) -> list[HeldShare]:
    """The shares that the newcomer must fit next to: all that were let in, and newcomers of later leaders;
    not its own."""
    own = (new.pod_uid, new.container)
    beside = [s for s in held if s.uuid == new.uuid and (s.pod_uid, s.container) != own]
    counted = {own, *((s.pod_uid, s.container) for s in beside)}
    later = (s for s in waiting if s.uuid == new.uuid and s.epoch > new.epoch)
    return beside + [s for s in later if (s.pod_uid, s.container) not in counted]


def asks_more(before: Sequence[HeldShare], after: Sequence[HeldShare]) -> bool:
    """Whether a container takes more of anything after than before, card by card. A container that takes
    less helps a card that holds too much, though it still does not fit."""

    def amounts(share: HeldShare) -> tuple[int, ...]:
        return share.memory_mib, share.cores_percent, share.on_card_mib, share.host_mib

    return any(
        old.share_class != new.share_class
        or any(more > had for had, more in zip(amounts(old), amounts(new), strict=True))
        for old, new in zip(before, after, strict=True)
    )


def refusal(card: CardLimits, beside: Sequence[HeldShare], new: HeldShare) -> str:
    """Why ``new`` does not fit on the card next to the others; empty if it does."""
    awake = [share for share in beside if not share.suspended]
    if apart := _apart(card, beside, new):
        return apart
    if len(beside) + 1 > card.max_sharers:
        return f"card {card.uuid} has {len(beside)} sharers, the limit is {card.max_sharers}"
    for what, ratio, amount, held in (
        ("", card.memory_ratio, new.memory_mib, sum(share.memory_mib for share in awake)),
        (" on the card", min(card.memory_ratio, 1.0), new.on_card_mib, sum(s.on_card_mib for s in awake)),
    ):
        limit = card.memory_mib * ratio + _SLACK
        if held + amount > limit:
            return (
                f"card {card.uuid}: {amount} MiB{what} do not fit, {held} of "
                f"{int(limit)} MiB are held by {_pods(awake)}"
            )
    for name, classes in _SUMS if card.stack else _ONE_SUM:
        stretched = card.stack and (card.ratio_class is None or card.ratio_class in classes)
        ratio = card.core_ratio if stretched else 1.0
        cores_limit = 100 * ratio + _SLACK
        cores_held = sum(share.cores_percent for share in awake if share.share_class in classes)
        if new.share_class in classes and cores_held + new.cores_percent > cores_limit:
            return (
                f"card {card.uuid}: {new.cores_percent} cores do not fit, {cores_held} of "
                f"{int(cores_limit)} of class {name} are held by {_pods(awake)}"
            )
    return ""


def _apart(card: CardLimits, beside: Sequence[HeldShare], new: HeldShare) -> str:
    """Why others must not be on the same card at all, whatever they take of it."""
    awake = [share for share in beside if not share.suspended]
    other = [share for share in beside if share.swap != new.swap and (share.swap or not share.suspended)]
    if other and new.swap:
        return f"card {card.uuid} is to be taken in turns, and {_pods(other)} hold shares of it"
    if other:
        return f"card {card.uuid} is taken in turns by {_pods(other)}: nobody else gets shares of it"
    if new.native and awake:
        return f"card {card.uuid} is asked for as a whole, but {_pods(awake)} hold shares of it"
    if any(share.native for share in awake):
        return f"card {card.uuid} is held as a whole by {_pods(awake)}"
    return ""


def host_refusal(budget_mib: int, held: Iterable[HeldShare], new: Sequence[HeldShare]) -> str:
    """Why what one container's shares may spill does not fit into the node's host memory; empty if it does.

    ``held``: everything on the node, its cards all together; the container itself is left out of it.
    """
    asked = sum(share.host_mib for share in new)
    own = {(share.pod_uid, share.container) for share in new}
    others = [share for share in held if share.host_mib and (share.pod_uid, share.container) not in own]
    taken = sum(share.host_mib for share in others)
    if not asked or taken + asked <= budget_mib:
        return ""
    who = f" are held by {_pods(others)}" if others else " are free"
    left = taken if others else budget_mib
    return f"{asked} MiB may spill to the host and do not fit, {left} of {budget_mib} MiB{who}"


def _pods(shares: Sequence[HeldShare]) -> str:
    uids = sorted({share.pod_uid for share in shares})
    named = ", ".join(uids[:3])
    return f"pod {named}" if len(uids) == 1 else f"pods {named}{' and others' if len(uids) > 3 else ''}"
