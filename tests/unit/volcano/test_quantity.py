"""What looks like a number and is none to the API server is none to us."""

import pytest
from vc_egpu.volcano.words.quantity import QuantityError, parse, parse_seconds


@pytest.mark.parametrize(
    "text",
    ["4\n", " 4", "4 ", "4\t", "\N{FULLWIDTH DIGIT FOUR}", "\N{ARABIC-INDIC DIGIT FOUR}", "4\x00", "1_0", ""],
)
def test_blanks_and_foreign_digits_are_no_part_of_a_quantity(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "span_s"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("15m", 900.0),
        ("2h30m", 9000.0),
        ("1.5h", 5400.0),
        ("3d", 259_200.0),
        (5, 5.0),
    ],
)
def test_spans_of_time(text: object, span_s: float) -> None:
    assert parse_seconds(text) == span_s


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "-5",
        "5 m",
        "m",
        "1h1",
        "1e9",
        "nan",
        "99999d",
        "9" * 400,
        "1" * 70 + "s",
        True,
        None,
        [],
        "٣",
    ],
)
def test_what_is_no_span_of_time(text: object) -> None:
    with pytest.raises(QuantityError):
        parse_seconds(text)
