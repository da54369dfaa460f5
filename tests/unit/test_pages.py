"""Links in the pages lead somewhere, and every page is found from the README."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOP = ("*.md", "docs/**/*.md", "[!.]*/README.md")
PAGES = sorted(
    {
        page
        for pattern in (*TOP, "device-plugin/native/lib/**/*.md", "manifests/**/README.md")
        for page in ROOT.glob(pattern)
    }
)
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def links(page: Path) -> list[tuple[Path, str]]:
    """(file or folder, heading) that a page leads to."""
    found = LINK.findall(page.read_text())
    return [((page.parent / path).resolve() if path else page, heading) for path, heading in found]


def headings(page: Path) -> set[str]:
    """As GitHub names them in addresses."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, heading in links(page):
        assert target.exists(), f"no {target}"
        assert not heading or heading in headings(target), f"{target.name} has no heading #{heading}"


def test_every_page_is_found_from_the_readme() -> None:
    seen, ahead = set(), {ROOT / "README.md"}
    while ahead:
        page = ahead.pop()
        seen.add(page)
        # A link to a folder shows the README in it.
        reached = {target / "README.md" if target.is_dir() else target for target, _ in links(page)}
        ahead |= {target for target in reached if target.suffix == ".md" and target.exists()} - seen
    assert [page for page in PAGES if page not in seen] == []
