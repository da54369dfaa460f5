"""Quantities are exact, whatever they look like; anything else is refused, quickly."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vc_egpu.volcano.words.quantity import MAX_VALUE, QuantityError, parse, parse_scaled, parse_whole

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "P": Fraction(10**15), "E": Fraction(10**18), "Ki": Fraction(2**10), "Mi": Fraction(2**20),
    "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50), "Ei": Fraction(2**60),
}  # fmt: skip
digits = st.text("0123456789", min_size=1, max_size=12)


@given(st.sampled_from(["", "+", "-"]), digits, st.none() | digits, st.sampled_from(sorted(SUFFIXES)))
def test_decimals_with_suffixes_are_exact(sign: str, whole: str, part: str | None, suffix: str) -> None:
    number = whole if part is None else f"{whole}.{part}"
    value = Fraction(number) * SUFFIXES[suffix] * (-1 if sign == "-" else 1)
    assert parse(f"{sign}{number}{suffix}").value == value


@given(digits, st.integers(-64, 64), st.sampled_from("eE"))
def test_exponents_are_exact(number: str, exponent: int, letter: str) -> None:
    assert parse(f"{number}{letter}{exponent}").value == Fraction(number) * Fraction(10) ** exponent


@given(st.integers(-MAX_VALUE, MAX_VALUE))
def test_whole_numbers_come_back_as_they_are(value: int) -> None:
    assert parse_whole(value) == parse_whole(str(value)) == value


@given(st.text(max_size=40) | st.floats(allow_nan=True) | st.none() | st.booleans() | st.lists(st.integers()))
def test_anything_is_parsed_or_refused(raw: object) -> None:
    try:
        parse(raw).whole()
    except QuantityError as error:
        assert len(str(error)) < 300


@given(st.integers(0, 10**15), st.sampled_from([1, 1000]))
def test_scaling_rounds_requests_up_and_capacities_down(nano: int, scale: int) -> None:
    exact = Fraction(nano, 10**9) * scale
    assert parse_scaled(f"{nano}n", scale, "down") <= exact <= parse_scaled(f"{nano}n", scale, "up")
    assert parse_scaled(f"{nano}n", scale, "up") - parse_scaled(f"{nano}n", scale, "down") <= 1


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", "1e", "Ki", "0x10", "1Kii", "1_000", "٣", "1e999999999", "9" * 5000, "--1", "1e1.5"],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text).whole()
