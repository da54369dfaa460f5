"""Whether programs work, or wait for their cards: by their pages, which they may fill as they like. Pure.

A container that lies about it can only give up its own turns, or take as many as one that works all the time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.accounts import Usage

_NS_PER_S: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Sign:
    """What one pod's pages say at one look."""

    state: tuple[tuple[int, ...], ...] = ()
    """Counters of work and memory: where they change, the pod works."""
    wanted_ns: int = 0
    """When one of its programs last asked for a card, by the monotonic clock; 0: never."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One pod's signs up to now."""

    sign: Sign
    worked_s: float
    """When it last did something, or was first looked at."""


def sign_of(pages: Iterable[tuple[bytes | None, Usage | None, int]], now_ns: int) -> Sign:
    """``pages``: of each of the pod's containers the activity page, its memory, and how many cards it has."""
    states: list[tuple[int, ...]] = []
    wanted_ns = 0
    for data, usage, cards in pages:
        if data is not None and len(data) >= _BYTES:
            page = abi.ActivityPage.from_buffer_copy(data[:_BYTES])
            for card in page.cards[:cards]:
                asked_ns = int(card.wanted_ns)
                states.append((card.units, card.busy_ns, card.measured_ns))
                wanted_ns = max(wanted_ns, asked_ns if asked_ns <= now_ns else 0)
        if usage is not None:
            states.append(tuple(usage.charged_bytes(card) for card in range(cards)))
    return Sign(tuple(states), wanted_ns)


_BYTES: Final = abi.ActivityPage.cards.offset + abi.ActivityPage.cards.size


def follow(before: Mapping[str, Seen], now: Mapping[str, Sign], now_s: float) -> dict[str, Seen]:
    """By pod. One that was not seen before counts as having worked just now."""
    found = {}
    for uid, sign in now.items():
        last = before.get(uid)
        same = last is not None and last.sign == sign
        found[uid] = Seen(sign, last.worked_s if last is not None and same else now_s)
    return found


def asked_since(sign: Sign, now_ns: int, now_s: float, since_s: float) -> bool:
    """Whether a program asked for its cards later than that, on the clock of ``now_s``."""
    if not sign.wanted_ns:
        return False
    return now_s - (now_ns - sign.wanted_ns) / _NS_PER_S > since_s
