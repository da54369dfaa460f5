"""Whether a share may start on a card: the second wall behind the admission layer's ledger. Pure.

The rules are the ledger's own: memory and cores by class, sharers, native cards alone. What was let in stays;
of two newcomers that do not fit together, the one with the lower lease epoch is refused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

ShareClass = Literal["high", "unset", "low"]
_SLACK: Final = 1e-9
"""Ratios are floats: 100 × 1.1 is a little more than 110."""


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
    """Of the leader that planned it."""

    def __post_init__(self) -> None:
        if self.memory_mib < 1 or not 0 <= self.cores_percent <= 100:
            raise ValueError(f"a share of {self.memory_mib} MiB and {self.cores_percent} cores")


@dataclass(frozen=True, slots=True)
class CardLimits:
    """What a card may hold."""

    uuid: str
    memory_mib: int
    """Nominal memory of the model."""
    memory_ratio: float = 1.0
    core_ratio: float = 1.0
    max_sharers: int = 100


def rivals(held: Iterable[HeldShare], waiting: Iterable[HeldShare], new: HeldShare) -> list[HeldShare]:
    """What the newcomer must fit beside: all that was let in, and newcomers of later leaders; not itself."""
    own = (new.pod_uid, new.container)
    beside = [s for s in held if s.uuid == new.uuid and (s.pod_uid, s.container) != own]
    counted = {own, *((s.pod_uid, s.container) for s in beside)}
    later = (s for s in waiting if s.uuid == new.uuid and s.epoch > new.epoch)
    return beside + [s for s in later if (s.pod_uid, s.container) not in counted]


def refusal(card: CardLimits, beside: Sequence[HeldShare], new: HeldShare) -> str:
    """Why ``new`` does not fit on the card beside the others; empty if it does."""
    if new.native and beside:
        return f"card {card.uuid} is asked for as a whole, but {_pods(beside)} hold shares of it"
    if any(share.native for share in beside):
        return f"card {card.uuid} is held as a whole by {_pods(beside)}"
    if len(beside) + 1 > card.max_sharers:
        return f"card {card.uuid} has {len(beside)} sharers, the limit is {card.max_sharers}"
    memory_limit = card.memory_mib * card.memory_ratio + _SLACK
    memory_held = sum(share.memory_mib for share in beside)
    if memory_held + new.memory_mib > memory_limit:
        return (
            f"card {card.uuid}: {new.memory_mib} MiB do not fit, {memory_held} of "
            f"{int(memory_limit)} MiB are held by {_pods(beside)}"
        )
    cores_limit = 100 * card.core_ratio + _SLACK
    for name, classes in (("high and unset", ("high", "unset")), ("unset and low", ("unset", "low"))):
        cores_held = sum(share.cores_percent for share in beside if share.share_class in classes)
        if new.share_class in classes and cores_held + new.cores_percent > cores_limit:
            return (
                f"card {card.uuid}: {new.cores_percent} cores do not fit, {cores_held} of "
                f"{int(cores_limit)} of class {name} are held by {_pods(beside)}"
            )
    return ""


def _pods(shares: Sequence[HeldShare]) -> str:
    uids = sorted({share.pod_uid for share in shares})
    named = ", ".join(uids[:3])
    return f"pod {named}" if len(uids) == 1 else f"pods {named}{' and others' if len(uids) > 3 else ''}"
