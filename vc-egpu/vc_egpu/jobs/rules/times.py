"""Times and durations as objects carry them: RFC 3339, and Go's notation.

The library ``durationpy`` does not do: it writes one minute as ``1m``, and Go writes ``1m0s``. It also raises
an error for ``999999999999h``, which a user may write and which must not stop the controller.
"""

import re
from datetime import UTC, datetime
from typing import Any, Final

from vc_egpu.volcano.api.meta import LONGEST_DURATION

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
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)|0")
_LONGEST_TIME: Final = 64
"""Characters; ``2026-01-02T03:04:05.123456789+01:00`` has 35."""


def duration_s(text: str) -> float:
    """``1h30m`` -> 5400.0 seconds; raises ValueError for what the model's pattern does not take.

    One scan from left to right over a short text: a search would begin again at each of many digits.
    """
    if len(text) > LONGEST_DURATION:
        raise ValueError(f"a duration of {len(text)} characters, at most {LONGEST_DURATION}")
    at, total_s = int(text.startswith("-")), 0.0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            raise ValueError(f"{text!r} is no duration")
        total_s += float(part[1]) * _UNITS_S[part[2]] if part[1] else 0.0
        at = part.end()
    return -total_s if text.startswith("-") else total_s


def duration(length_s: float) -> str:
    """Whole seconds as Go prints them: ``1h2m3s``."""
    whole = max(0, round(length_s))
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def seconds(text: Any) -> float:
    """An RFC 3339 time as seconds since the epoch; 0 for anything else."""
    if not isinstance(text, str) or len(text) > _LONGEST_TIME:
        return 0.0
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def timestamp(at: float) -> str:
    """Seconds since the epoch as Kubernetes writes them."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
