"""The pages on troubles of other stacks name tests that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"docs/vendor-complaints.md": 26, "docs/figures-elsewhere.md": 20}
"""By page: so many troubles at least."""


@pytest.mark.parametrize("page", PAGES)
def test_each_row_has_a_test_that_is_there_or_says_why_not(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("| ")][1:]
    known = {
        name
        for folder in ("tests", "e2e")
        for path in (ROOT / folder).rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(rows) >= PAGES[page]
    for trouble, holds, shown in rows:
        named = shown.strip().strip("`")
        assert named in known if named else "not ours" in holds or "No test:" in holds, trouble
