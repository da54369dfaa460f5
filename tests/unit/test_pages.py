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


def test_the_table_of_changes_leads_to_files() -> None:
    """Package, room, module: three steps, and each of them exists, with a page on the way."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.partition("## Find the file for your change")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| [^|]+ \| `([^`|]+)` \| `([^`|]+)` \| ([^|]+) \|$", table, re.MULTILINE)
    assert len(rows) >= 6
    homes = (ROOT / "vc-egpu", ROOT / "device-plugin")
    for package, room, modules in rows:
        folders = [home / package / room for home in homes if (home / package / room).is_dir()]
        assert len(folders) == 1, f"{package}/{room}"
        pages = [folder / "README.md" for folder in (folders[0], *folders[0].parents[:2])]
        assert any(page.is_file() for page in pages), f"{package}/{room} has no page"
        for module in re.findall(r"`([^`]+)`", modules):
            assert (folders[0] / module).is_file(), f"{package}/{room}/{module}"
