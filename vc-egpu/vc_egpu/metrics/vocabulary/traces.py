"""Traces of starts."""

from functools import partial
from typing import Final

from vc_egpu.metrics.family import Family

_traces = partial(Family, component="traces")

TRACES: Final = _traces(
    "egpu_traces_total", "counter", ("outcome",),
    "Starts of gangs: sent, refused by the collector, or lost because too many waited for it.",
)  # fmt: skip
GANGS: Final = _traces("egpu_traces_gangs", "gauge", (), "Gangs that the process of traces knows.")

FAMILIES: Final = (TRACES, GANGS)
