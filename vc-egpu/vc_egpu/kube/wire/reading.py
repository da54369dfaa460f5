"""JSON that somebody else wrote into a cluster: whoever may make one object may not keep the others from us.

Where an API keeps unknown fields (a Job's template, managed fields), objects may be nested thousands of
levels deep. API servers take that; orjson does not beyond 1024 levels, so that one such object would make a
page of a list, and each event of it, unreadable for ever. And Python gives up at 1000, where such a value is
but compared, or named in an error. Nothing that we read is a tenth as deep: what is deeper is left out.
"""

import logging
import re
from typing import Any, Final

import orjson

MOST_LEVELS: Final = 200
"""Below what orjson writes (254): between the two it is read as it is."""
_MARKS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)

logger = logging.getLogger(__name__)


def read(data: bytes, what: str) -> Any:
    """The value; raises :class:`orjson.JSONDecodeError` where it is no JSON."""
    try:
        value = orjson.loads(data)
        if len(data) > MOST_LEVELS:
            orjson.dumps(value)  # tells whether it is deep, at a fifth of the price of reading it
    except orjson.JSONDecodeError:
        shallow = without_depths(data)
        if shallow is data:
            raise
    except orjson.JSONEncodeError:
        shallow = without_depths(data)
    else:
        return value
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
