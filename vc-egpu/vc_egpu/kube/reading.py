"""JSON that somebody else wrote into a cluster: whoever may make one object may not keep the others from us.

Where an API keeps unknown fields (a Job's template, managed fields), objects may be nested thousands of
levels deep. API servers take that and orjson does not, nor does much else: one such object would make a page
of a list, and each event of it, unreadable for ever. Nothing that we read is a tenth as deep, so what is
deeper is left out.
"""

import logging
import re
from typing import Any, Final

import orjson

MOST_LEVELS: Final = 200
"""Below what orjson writes (254) and far below what it reads (1024)."""
_MARKS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)

logger = logging.getLogger(__name__)


def read(data: bytes, what: str) -> Any:
    """The value; raises :class:`orjson.JSONDecodeError` where it is no JSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        shallow = without_depths(data)
        if shallow is data:
            raise
    value = orjson.loads(shallow)
    logger.warning("%s: something is nested below %d levels, and read without that", what, MOST_LEVELS)
    return value


def without_depths(data: bytes, most_levels: int = MOST_LEVELS) -> bytes:
    """JSON with null for what begins below ``most_levels``; ``data`` itself where there is nothing."""
    pieces: list[bytes] = []
    levels = kept = 0
    for mark in _MARKS.finditer(data):
        char = data[mark.start()]
        if char in b"[{":
            levels += 1
            if levels == most_levels + 1:
                pieces += [data[kept : mark.start()], b"null"]
        elif char in b"]}":
            if levels == most_levels + 1:
                kept = mark.end()
            levels -= 1
    return b"".join([*pieces, data[kept:]]) if pieces else data
