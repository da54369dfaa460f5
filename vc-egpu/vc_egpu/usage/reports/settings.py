"""What the reports go by: bounds, headroom, history. One row of a table, so that all SQL reads it alike."""

from dataclasses import dataclass, fields
from typing import Final, Literal

from vc_egpu.usage.table.columns import Column
from vc_egpu.usage.table.window import Window, index_of

_GIB: Final = 1 << 30

Charge = Literal["dominant", "memory", "cores"]


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds and headroom. Ratios are 0 to 1 unless they multiply."""

    charge: Charge = "dominant"
    """What of a share counts as its part of a card: the larger of memory and cores, or one of them."""
    idle_ratio: float = 0.01
    """An hour with less compute than this part of its time idles."""
    flat_ratio: float = 0.01
    """Memory that moves less than this part of the grant is flat."""
    busy_ratio: float = 0.10
    """An hour with more compute than this part of its time is busy."""
    headroom: float = 1.15
    restart_headroom: float = 1.30
    """Times the observed maximum of services that restarted: the peak that ended them may be unseen."""
    reserve_bytes: float = 512.0 * (1 << 20)
    """The least above the observed maximum: what a CUDA context may take at the next start."""
    step_bytes: float = float(_GIB)
    percentile: float = 0.95
    half_life_hours: float = 24.0
    least_hours: float = 24.0
    least_seen_ratio: float = 0.95
    most_wait_ratio: float = 0.05
    """Services that waited longer for their share than this part of the time get no fewer cores."""
    large_part: float = 0.5
    """The least part of a card that an off-peak partner has."""
    most_overlap_ratio: float = 0.05
    host_memory_bytes: float = 64.0 * _GIB
    """Host memory for each card that may take what spills or is suspended."""
    currency: str = "USD"

    def row(self, window: Window) -> dict[str, object]:
        """The row for a report of this window."""
        values: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        pair_hours = min(window.hours, 7 * 24)
        return values | {
            "until_index": index_of(window.until),
            "window_hours": float(window.hours),
            "pair_hours": pair_hours,
        }


_TEXTS: Final = frozenset({"charge", "currency"})
COLUMNS: Final = (
    *(Column(field.name, "VARCHAR" if field.name in _TEXTS else "DOUBLE") for field in fields(Settings)),
    Column("until_index", "BIGINT"),
    Column("window_hours"),
    Column("pair_hours", "BIGINT"),
)
"""The columns of the table ``settings``."""
