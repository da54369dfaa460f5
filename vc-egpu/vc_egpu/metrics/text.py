"""Prometheus' text format 0.0.4, written piece by piece.

It differs from ``prometheus_client``'s own writer in two ways. DCGM's counters stand without ``_total``, as
dcgm-exporter writes them. And there are no ``_created`` samples.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.utils import floatToGoString

from vc_egpu.metrics.family import Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_FOREIGN: Final = "DCGM_"


def header(family: Family) -> str:
    """The two lines before a family's samples."""
    return _header(family.name, family.help, family.kind)


def line(name: str, labels: str, value: float) -> str:
    """One sample; ``labels`` as :func:`labels_of` writes them."""
    number = str(value) if isinstance(value, int) else _float(value)
    return f"{name}{{{labels}}} {number}\n" if labels else f"{name} {number}\n"


def _float(value: float) -> str:
    written: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return written


def labels_of(names: Sequence[str], values: Sequence[str]) -> str:
    """``a="x",b="y"`` without braces."""
    plain = ",".join([f'{name}="{value}"' for name, value in zip(names, values, strict=True)])
    if plain.count('"') == 2 * len(names) and "\\" not in plain and "\n" not in plain:
        return plain  # almost always, and there are many
    return ",".join([f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True)])


def escaped(value: str) -> str:
    """A label's value as it stands between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def text_of(families: Iterable[Metric]) -> bytes:
    """All samples of these families."""
    lines: list[str] = []
    for family in families:
        lines.append(_header(_name(family), family.documentation, family.type))
        lines += [
            line(sample.name, _pairs(sample.labels), sample.value)
            for sample in family.samples
            if not sample.name.endswith("_created")
        ]
    return "".join(lines).encode()


def _name(family: Metric) -> str:
    counts = family.type == "counter" and not family.name.startswith(_FOREIGN)
    return f"{family.name}_total" if counts else family.name


def _pairs(labels: Mapping[str, str]) -> str:
    return labels_of(tuple(labels), tuple(labels.values()))


def _header(name: str, text: str, kind: str) -> str:
    escaped_text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {name} {escaped_text}\n# TYPE {name} {kind}\n"
