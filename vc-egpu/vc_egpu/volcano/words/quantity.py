"""Kubernetes quantities, exact: ``4k``, ``1.5Gi``, ``1e3``, ``250m`` as fractions, never as floats.

Tenants write these texts. So length, digits and exponents are bounded before any arithmetic is done:
``1e999999999`` costs nothing and is refused.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

MAX_VALUE: Final = 2**63 - 1
"""The API server's own limit for integer quantities."""
_MAX_TEXT: Final = 64
_MAX_EXPONENT: Final = 64

_SYNTAX: Final = re.compile(
    r"""(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))
         (?:(?P<suffix>[numkMGTPE]|Ki|Mi|Gi|Ti|Pi|Ei)|[eE](?P<exponent>[+-]?[0-9]{1,9}))?""",
    re.VERBOSE | re.ASCII,
)
_DECIMAL: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}
_BINARY: Final = {
    suffix: Fraction(1 << (10 * (i + 1))) for i, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}


class QuantityError(ValueError):
    """Not a quantity, or not one that can be counted; the text quotes what was written."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact value and the suffix it was written with (the suffix tells what its author had in mind)."""

    value: Fraction
    suffix: str
    """As written: ``""``, ``k``, ``Gi``, ... or ``e`` for an exponent."""
    text: str

    @property
    def is_binary(self) -> bool:
        """Written with ``Ki``, ``Mi``, ...: the user thinks of bytes."""
        return self.suffix in _BINARY

    def whole(self) -> int:
        """The value as an integer within 64 bits; raises :class:`QuantityError` for fractions and beyond."""
        if self.value.denominator != 1:
            raise QuantityError(f"{self.text!r} is not a whole number")
        if abs(self.value) > MAX_VALUE:
            raise QuantityError(f"{self.text!r} is beyond the largest number, {MAX_VALUE}")
        return int(self.value)


def parse(raw: object) -> Quantity:
    """Parse what stands in an API object: a string or a JSON number. Raises :class:`QuantityError`."""
    if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
        raise QuantityError(f"{_short(raw)} is not a quantity")
    if isinstance(raw, int):
        # Python refuses to print integers of thousands of digits; they are no quantity in any case.
        if abs(raw) > 10**_MAX_EXPONENT:
            raise QuantityError(f"a number of {raw.bit_length()} bits is beyond the largest, {MAX_VALUE}")
        return Quantity(Fraction(raw), "", str(raw))
    return _parse_text(raw if isinstance(raw, str) else repr(raw))


@lru_cache(maxsize=8192)
def _parse_text(text: str) -> Quantity:
    """The same few texts come with every pod: remembered, they cost nothing."""
    match = _SYNTAX.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if match is None:
        raise QuantityError(f"{_short(text)} is not a quantity")
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        exponent = int(match["exponent"])
        if abs(exponent) > _MAX_EXPONENT:
            raise QuantityError(f"{text!r} is beyond the largest number, {MAX_VALUE}")
        return Quantity(number * Fraction(10) ** exponent, "e", text)
    suffix = match["suffix"] or ""
    return Quantity(number * (_BINARY.get(suffix) or _DECIMAL[suffix]), suffix, text)


def parse_whole(raw: object) -> int:
    """The quantity as a whole number, e.g. a count in a queue's capability; raises :class:`QuantityError`."""
    return parse(raw).whole()


def is_zero(raw: object) -> bool:
    """Whether it is a quantity of nothing, however it is written; what is no quantity is not nothing."""
    if type(raw) is int:
        return raw == 0  # the common case, for each amount of each pod
    try:
        return parse(raw).value == 0
    except QuantityError:
        return False


def parse_fraction(raw: object) -> Fraction:
    """The exact value; raises :class:`QuantityError`."""
    return parse(raw).value


Rounding = Literal["up", "down"]


def parse_scaled(raw: object, scale: int, rounding: Rounding = "up") -> int:
    """``value * scale`` as an integer, e.g. milli-CPU with scale 1000; raises :class:`QuantityError`.

    Requests round up and capacities down, so that a rounded sum never promises too much.
    """
    quantity = parse(raw)
    scaled = quantity.value * scale
    if abs(scaled) > MAX_VALUE:
        raise QuantityError(f"{quantity.text!r} is beyond the largest number, {MAX_VALUE}")
    return (
        -((-scaled.numerator) // scaled.denominator)
        if rounding == "up"
        else scaled.numerator // scaled.denominator
    )


_SPAN: Final = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,6})?)(?P<unit>[smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MAX_SPAN_S: Final = 10 * 366 * 86400.0
"""Ten years: longer spans are taken for typing errors."""


def parse_seconds(raw: object) -> float:
    """A span of time in seconds: ``90``, ``90s``, ``15m``, ``2h30m``, ``1.5h``, ``3d``.

    Raises :class:`QuantityError` for what is none, is below zero or is longer than ten years.
    """
    if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
        raise QuantityError(f"{_short(raw)} is not a span of time")
    text = str(raw).strip()
    if len(text) > _MAX_TEXT:
        raise QuantityError(f"{_short(raw)} is not a span of time")
    parts = _SPAN.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        span_s = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    elif re.fullmatch(r"[0-9]{1,12}(?:\.[0-9]{1,6})?", text, re.ASCII):
        span_s = float(text)
    else:
        raise QuantityError(f"{_short(raw)} is not a span of time, such as 90s, 15m or 2h30m")
    if span_s > MAX_SPAN_S:
        raise QuantityError(f"{_short(raw)} is longer than ten years")
    return span_s


def _short(raw: object) -> str:
    text = repr(raw)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"
