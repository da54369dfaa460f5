"""Tables in files: what happens when they change, as ConfigMaps do, or cannot be read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from vc_egpu.core.profiles.table import NO_RULES
from vc_egpu.volcano.needs import file as needs
from vc_egpu.volcano.needs.table import shipped
from vc_egpu.volcano.profiles import file as profiles
from vc_egpu.volcano.tables.file import MOST_BYTES, Look, TableFile

GOOD = {
    "placement.yaml": "rules: [{name: a, nodes: spread}]",
    "environments.yaml": 'rows: [{when: "qwen==3", needs: "cuda>=13.0"}]',
}
Follow = Callable[[Path], TableFile[object]]


@pytest.fixture(params=[(profiles.followed, "placement.yaml"), (needs.followed, "environments.yaml")])
def followed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[TableFile[object], Path, str]:
    """A table of either kind that follows a file, which is not there yet; and a good text for it."""
    follow, name = request.param
    return follow(tmp_path / name), tmp_path / name, GOOD[name]


def test_a_bad_file_leaves_the_last_good_one_and_says_so(
    followed: tuple[TableFile[object], Path, str],
) -> None:
    table, file, text = followed
    file.write_text(text)
    assert table.look() is Look.NEWS
    good = table.table
    file.write_text("rules: [{")
    assert [table.look(), table.look()] == [Look.BROKEN, Look.BROKEN], "it stays broken until it is put right"
    assert "no YAML" in table.problem
    assert table.table is good
    file.write_text(f"{text} # as before")
    assert table.look() is Look.SAME
    assert table.problem == ""


@pytest.mark.parametrize("raw", [b"\xff\xfe", b"#" * (MOST_BYTES + 1), b"\x00", b"- " * 5000, b"&a [*a]"])
def test_no_file_is_too_odd(followed: tuple[TableFile[object], Path, str], raw: bytes) -> None:
    table, file, text = followed
    file.write_text(text)
    table.look()
    good = table.table
    file.write_bytes(raw)
    assert table.look() is Look.BROKEN
    assert table.problem
    assert table.table is good


def test_a_file_that_goes_away_is_a_bad_one(followed: tuple[TableFile[object], Path, str]) -> None:
    table, file, text = followed
    assert table.look() is Look.BROKEN, "somebody named it, so it ought to be there"
    file.write_text(text)
    assert table.look() is Look.NEWS
    file.unlink()
    file.mkdir()
    assert table.look() is Look.BROKEN
    file.rmdir()
    assert table.look() is Look.BROKEN
    file.write_text(text)
    assert table.look() is Look.SAME


def test_a_mounted_config_map_changes_by_a_link(followed: tuple[TableFile[object], Path, str]) -> None:
    """As the kubelet does it: a new folder, then one link that is set to it in one step."""
    table, file, text = followed
    folder = file.parent

    def publish(number: int, content: str) -> None:
        (folder / f"..{number}").mkdir()
        (folder / f"..{number}" / file.name).write_text(content)
        (folder / "..new").symlink_to(f"..{number}")
        (folder / "..new").rename(folder / "..data")

    publish(1, text)
    file.symlink_to(f"..data/{file.name}")
    assert table.look() is Look.NEWS
    publish(2, text.replace("spread", "random").replace("qwen", "qwem"))
    assert table.look() is Look.NEWS, "of the same size, in the same moment"
    publish(3, "rules: {")
    assert table.look() is Look.BROKEN


def test_the_usual_files_need_not_be_there() -> None:
    assert profiles.read_profiles(profiles.PLACEMENT) == NO_RULES
    assert needs.read_environments(needs.ENVIRONMENTS) is shipped()
    with pytest.raises(FileNotFoundError):
        profiles.read_profiles(Path("/nowhere/placement.yaml"))
