"""How our processes write their logs: as lines for people, or as JSON for a collector of logs.

``EGPU_LOG_FORMAT=json`` chooses the latter, for each process by itself. A line of JSON has ``time``,
``level``, ``logger`` and ``message``. It has ``gang``, ``plan``, ``pod`` and ``node`` where the message names
one. Our messages write them as ``gang %s``, and pods also as ``pod %s/%s``: no call has to say them twice.
"""

import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import orjson

VARIABLE: Final = "EGPU_LOG_FORMAT"
FORMATS: Final = ("text", "json")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ASKS: Final = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[sdrfxi]")
"""Where a message takes an argument."""
_NAMES: Final = re.compile(r"\b(gang|plan|pod|node) %s(/%s)?")


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON. What JSON cannot hold becomes text."""
        said: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **named(record),
        }
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return orjson.dumps(said, default=str).decode()


def named(record: logging.LogRecord) -> dict[str, str]:
    """The gang, plan, pod and node that a message names; the first of each."""
    template, values = record.msg, record.args
    if not isinstance(template, str) or not isinstance(values, tuple):
        return {}
    asks = [found.start() for found in _ASKS.finditer(template.replace("%%", "  "))]
    if len(asks) != len(values):
        return {}
    found: dict[str, str] = {}
    for match in _NAMES.finditer(template):
        number = asks.index(match.start(0) + len(match[1]) + 1)
        parts = values[number : number + (2 if match[2] else 1)]
        found.setdefault(match[1], "/".join(map(str, parts)))
    return found


def chosen_in(environment: Mapping[str, str]) -> tuple[logging.Formatter, str]:
    """How lines are written, and what is wrong with the choice; empty: nothing. A wrong one is text."""
    chosen = environment.get(VARIABLE) or "text"
    wrong = "" if chosen in FORMATS else f"{VARIABLE} is {chosen!r}; our formats are {' and '.join(FORMATS)}"
    return (JsonFormatter() if chosen == "json" else logging.Formatter(_TEXT)), wrong


def begin(level: str = "info") -> None:
    """Write logs to standard error from now on, as the environment says."""
    formatter, wrong = chosen_in(os.environ)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler])
    if wrong:
        logging.getLogger(__name__).warning("%s", wrong)
