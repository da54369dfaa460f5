"""The scene as messages of the stream: in time, some of them twice, some of them garbage."""

import json
import random
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from unit.usage.scene import SceneSeries


def messages(
    series: Iterable[SceneSeries],
    minutes: range,
    *,
    twice: float = 0.02,
    garbage: float = 0.01,
    seed: int = 1,
) -> Iterator[str]:
    """Lines of JSON for these minutes since 1970, as the adapter writes them.

    ``twice``, ``garbage``: parts of 1.
    """
    draw = random.Random(seed)
    known = list(series)
    for minute in minutes:
        for one in known:
            value = one.at(minute)
            if value is None:
                continue
            line = message(one, minute, repr(value))
            yield line
            if draw.random() < twice:
                yield line
            if draw.random() < garbage:
                yield message(one, minute, draw.choice(("NaN", "+Inf", "-Inf", "x", "")))
                yield draw.choice(("{", '{"name": 7}', "no json"))


def message(one: SceneSeries, minute: int, value: str) -> str:
    """One line for a minute since 1970."""
    time = datetime.fromtimestamp(minute * 60 + 15, UTC)
    labels = {"__name__": one.metric, **one.labels}
    told = {
        "timestamp": f"{time:%Y-%m-%dT%H:%M:%SZ}",
        "value": value,
        "name": one.metric,
        "labels": labels,
    }
    return json.dumps(told)
