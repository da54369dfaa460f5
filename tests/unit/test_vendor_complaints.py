"""The page on troubles of other stacks names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/vendor-complaints.md"


def test_each_row_has_a_test_that_is_there_or_says_why_not() -> None:
    rows = [line.split("|")[1:-1] for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    known = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(rows) > 25
    for trouble, holds, shown in rows:
        named = shown.strip().strip("`")
        assert named in known if named else "not ours" in holds or "No test:" in holds, trouble
