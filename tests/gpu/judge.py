"""What a card's times say about one who goes first and one who waits. All rows are launched, began, ended."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from gpu.standalone import MS, Rows, busy_ns

LONG_GAP_NS: Final = 5 * MS
PAUSE_NS: Final = MS // 20
"""High that launches nothing for longer has come to the end of a piece of work."""
Gap = tuple[int, int]


def gaps_of(high: Rows, *, longer_than_ns: int = LONG_GAP_NS) -> list[Gap]:
    """Where high left the card for so long: its last end, its next launch."""
    ends = np.maximum.accumulate(high[:, 2]) if len(high) else high[:, 2]
    pairs = zip(ends[:-1], high[1:, 0], strict=True)
    return [(int(end), int(launch)) for end, launch in pairs if launch - end > longer_than_ns]


def holds_of(high: Rows, low: Rows, gaps: Sequence[Gap]) -> list[int]:
    """For each return of high: from its first launch until the last unit of low ended that ran before high's
    own piece of work was through; 0 where none did."""
    through = np.array([end for end, _ in gaps_of(high, longer_than_ns=PAUSE_NS)], np.int64)
    found = []
    for _, launch in gaps:
        at = int(np.searchsorted(through, launch))
        end = through[at] if at < len(through) else high[-1, 2]
        inside = low[(low[:, 1] < end) & (low[:, 2] > launch)]
        found.append(int(inside[:, 2].max()) - launch if len(inside) else 0)
    return found


def releases_of(low: Rows, gaps: Sequence[Gap]) -> list[int]:
    """For each gap in which low ran: from high's last end until a unit of low began."""
    found = []
    for end, launch in gaps:
        at = int(np.searchsorted(low[:, 1], end))
        if at < len(low) and low[at, 1] < launch:
            found.append(int(low[at, 1]) - end)
    return found


def kept_of(low: Rows, gaps: Sequence[Gap]) -> float | None:
    """The part of these gaps that low used."""
    idle = sum(launch - end for end, launch in gaps)
    used = 0
    for end, launch in gaps:
        first, last = np.searchsorted(low[:, 2], end), np.searchsorted(low[:, 1], launch)
        used += busy_ns(low[max(0, int(first) - 1) : int(last)], end, launch)
    return used / idle if idle else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Of a list that may be empty."""
    return float(np.percentile(values, percent)) if len(values) else None
