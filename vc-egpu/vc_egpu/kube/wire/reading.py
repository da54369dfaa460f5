"""JSON that other users wrote into a cluster: one user's object must not keep us from reading the others.

Where an API keeps unknown fields (a Job's template, managed fields), objects may be nested thousands of
levels deep. API servers take that, but orjson stops at 1024 levels. One such object would make a page of a
list unreadable, and each event of it as well. Python gives up at 1000 levels when it compares such a value,
or names it in an error. Nothing that we read is a tenth as deep, so what is deeper is left out.
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
