"""What looks like a number and is none to the API server is none to us."""

import pytest
from vc_egpu.volcano.words.quantity import QuantityError, parse


@pytest.mark.parametrize(
    "text",
    ["4\n", " 4", "4 ", "4\t", "\N{FULLWIDTH DIGIT FOUR}", "\N{ARABIC-INDIC DIGIT FOUR}", "4\x00", "1_0", ""],
)
def test_blanks_and_foreign_digits_are_no_part_of_a_quantity(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(text)
