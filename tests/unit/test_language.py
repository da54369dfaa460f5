"""Pages are written in plain language, as far as a program can check that: see :mod:`language`."""

from pathlib import Path

import pytest
from language import MOST_WORDS, findings, prose_of_python, sentences

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    {
        str(page.relative_to(ROOT))
        for pattern in ("*.md", "docs/**/*.md", "[!.]*/**/README.md")
        for page in ROOT.glob(pattern)
    }
)
NOT_YET = {
    "device-plugin/native/fake/README.md",
}
"""Pages that still wait for their editor. None is added here; each that is done is taken off."""
LONG = "word " * MOST_WORDS


@pytest.mark.parametrize("page", [page for page in PAGES if page not in NOT_YET])
def test_pages_are_in_plain_language(page: str) -> None:
    assert [f"{page}:{found}" for found in findings((ROOT / page).read_text())] == []


def rules(text: str) -> list[str]:
    return [found.rule for found in findings(text)]


# --- sentences -----------------------------------------------------------------------------------


def test_a_sentence_has_at_most_25_words() -> None:
    assert rules(f"{LONG}.") == []
    assert rules(f"{LONG} more.") == ["26 words"]


def test_a_paragraph_is_read_as_sentences_across_its_lines() -> None:
    assert sentences("One\nidea. `two` follows (so it does). Three? 1.5 s later!") == [
        "One idea.", "CODE follows (so it does).", "Three?", "1.5 s later!",
    ]  # fmt: skip


def test_no_sentence_ends_in_an_abbreviation_or_an_ellipsis() -> None:
    assert sentences("Some, e.g. `why`, wait ... and go. Next.") == [
        "Some, e.g. CODE, wait ... and go.", "Next.",
    ]  # fmt: skip


def test_signs_between_words_are_no_words() -> None:
    assert rules(f"{LONG} → + - ...") == []


def test_inline_code_is_one_word_and_a_link_its_text() -> None:
    assert rules(f"{'word ' * (MOST_WORDS - 2)} `kubectl egpu why` [a](docs/a/very/long%20path.md)") == []
    assert rules(f"{'word ' * (MOST_WORDS - 1)} [two words](x.md)") == ["26 words"]
    assert rules("``the pods that wait beside it``, and `a ``b`` beside`") == []


OPENED = ("Who asks", "Whoever asks", "Of these", "So did he,", "So was it,", "who asks")
BEFORE = ("", "It waits. ", "- ", "1. ", "| a | b |\n|---|---|\n| c | ", "> ", "**")
FINE = ("Who binds?", "## Who may", "| path | who |", "Offers of others", "Whose is it", "The Who of it")


@pytest.mark.parametrize("opener", OPENED)
@pytest.mark.parametrize("before", BEFORE)
def test_banned_openers(before: str, opener: str) -> None:
    assert rules(f"{before}{opener} must wait.") == [f'begins with "{" ".join(opener.split()[:-1])}"']


@pytest.mark.parametrize("text", FINE)
def test_openers_that_are_fine(text: str) -> None:
    assert rules(text) == []


@pytest.mark.parametrize("phrase", ["anew", "for good", "in vain", "beside", "Beside"])
def test_banned_phrases(phrase: str) -> None:
    assert rules(f"It is {phrase} the card.") == [f'"{phrase}"']
    assert rules(f"# It is {phrase}") == [f'"{phrase}"']
    assert rules(f"`{phrase}` is besides") == []


# --- blocks --------------------------------------------------------------------------------------


def test_code_is_no_prose() -> None:
    text = "Before:\n\n```yaml\n# Who waits beside\n```\n\n    Of an indented one\n\nAfter."
    assert findings(text) == []


def test_list_items_and_cells_are_texts_of_their_own() -> None:
    half = "word " * (MOST_WORDS // 2 + 1)
    assert rules(f"{half}\n- {half}\n  1. {half}") == []
    assert rules(f"| {half} | {half} |\n|---|---|\n| {half} | {half} |") == []
    assert rules(f"- {half}\n  {half}") == ["26 words"]
    assert rules(f"{half}\n{half}") == ["26 words"]


def test_text_that_is_indented_below_a_list_item_is_prose() -> None:
    assert rules("- one\n\n    Of two") == ['begins with "Of"']


def test_a_bar_in_code_does_not_end_a_cell() -> None:
    assert rules("| `a | who b` | of |") == []


def test_comments_of_a_page_are_left_out_and_lines_still_counted() -> None:
    (found,) = findings("<!-- Who\nwaits -->\n\nfine\n\nOf these.")
    assert (found.line, str(found)) == (6, '6: begins with "Of": Of these.')


def test_a_finding_shows_the_beginning_of_its_sentence() -> None:
    (found,) = findings(f"{LONG} more.")
    assert str(found).startswith("1: 26 words: word word")
    assert str(found).endswith("...")


# --- Python --------------------------------------------------------------------------------------

MODULE = '''#!/usr/bin/env python3
"""The head.

More of it::

    code
"""

# --- a ruler ---
LIMIT = 1  # of what
"""Of all that."""
# A comment of
# two lines.

# Another.
def run(x: str) -> str:  # noqa: ARG001
    """What it does."""
    # fmt: off
    return "# no comment"
'''


def test_prose_of_python_is_its_docstrings_and_comments() -> None:
    assert prose_of_python(MODULE) == [
        (2, "The head.\n\nMore of it::\n\n    code"),
        (10, "of what"),
        (11, "Of all that."),
        (12, "A comment of two lines."),
        (15, "Another."),
        (17, "What it does."),
    ]
    assert [found.rule for _, text in prose_of_python(MODULE) for found in findings(text)] == [
        'begins with "of"', 'begins with "Of"',
    ]  # fmt: skip
