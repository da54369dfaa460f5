"""Go's notation for durations, as Volcano's fields carry it."""

import re
from typing import Final

_UNITS_S: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse(text: str) -> float:
    """``1h30m`` -> 5400.0 seconds. The text has passed the model's pattern."""
    total_s = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(text))
    return -total_s if text.startswith("-") else total_s


def render(duration_s: float) -> str:
    """Whole seconds as Go prints them: ``1h2m3s``."""
    whole = max(0, round(duration_s))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
