"""When each cluster answered last: a small file in the user's cache. Without it nothing is lost but that."""

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

FILE: Final = "last-answers.json"
_MOST: Final = 1000


def folder() -> Path:
    """Where the file is."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vc-egpu"


def read(place: Path) -> dict[str, float]:
    """Seconds since 1970, by cluster; empty where there is no file, or none of ours."""
    try:
        found = json.loads((place / FILE).read_text(encoding="utf-8"))
        return {str(name): float(at) for name, at in found.items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return {}


def keep(place: Path, answered: Iterable[str], now: float) -> None:
    """These clusters have answered now. A folder that cannot be written is no error."""
    kept = {**read(place), **dict.fromkeys(answered, now)}
    newest = dict(sorted(kept.items(), key=lambda entry: -entry[1])[:_MOST])
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        own = place / f".{FILE}.{os.getpid()}"
        own.write_text(json.dumps(newest), encoding="utf-8")
        own.replace(place / FILE)


def since(known: Mapping[str, float], name: str) -> str:
    """For people and programs: an instant in UTC, or empty."""
    at = known.get(name)
    if at is None or not 0 < at < 1 << 36:
        return ""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
