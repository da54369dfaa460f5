"""The rooms of the isolation library: includes go one way, and no room or file is too large."""

import re
from pathlib import Path

import pytest
from house.floors import MOST_LINES, MOST_MODULES_IN_A_FOLDER
from unit.native.time_building import NATIVE

LIB = NATIVE / "lib"

FLOORS = (("base",), ("usage", "activity"), ("memory",), ("nvml", "time"))
"""From the ground up: a file includes what is in its own room and on lower floors."""
MAY_INCLUDE = {
    "base": set(),
    "usage": {"base"},
    "activity": {"base"},
    "memory": {"base", "usage"},
    "nvml": {"base", "usage", "memory"},
    "time": {"base", "activity", "memory"},
}
HOOKS = "memory/hooks.h"
"""All that ``time`` may know of ``memory``: what it is told."""
MAY_BE_LARGE = {"time"}
"""Until isolation is rebuilt."""
NO_ROOM = {"stub"}
"""What 32-bit programs load: not part of the library."""

ROOMS = [room for floor in FLOORS for room in floor]


def sources(room: str) -> list[Path]:
    return sorted(path for path in (LIB / room).iterdir() if path.suffix in {".c", ".h", ".def"})


def included(path: Path) -> list[Path]:
    names = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE)
    return [(path.parent / name).resolve() for name in names]


def test_every_folder_is_a_room() -> None:
    folders = {path.name for path in LIB.iterdir() if path.is_dir()}
    assert folders - NO_ROOM == set(ROOMS) == set(MAY_INCLUDE)
    assert [path.name for path in LIB.glob("*.[ch]")] == [], "files lie in rooms"


def test_the_build_knows_every_room() -> None:
    found = re.search(r"^LIB_ROOMS := (.*)$", (LIB / "build.mk").read_text(), re.MULTILINE)
    assert found is not None
    assert set(found[1].split()) == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_includes_go_one_way(room: str) -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    for path in sources(room):
        for target in included(path):
            name = f"{path.relative_to(LIB)} includes {target}"
            assert target.exists(), name
            if not target.is_relative_to(LIB):
                assert target.parent in {NATIVE / "abi", NATIVE / "include"}, name
                continue
            other = target.relative_to(LIB).parts[0]
            assert other == room or (other in MAY_INCLUDE[room] and floor[other] < floor[room]), name
            if (room, other) == ("time", "memory"):
                assert str(target.relative_to(LIB)) == HOOKS, name


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_and_files_stay_readable(room: str) -> None:
    modules = [path for path in sources(room) if path.suffix == ".c"]
    assert len(modules) > 0
    assert len(modules) <= MOST_MODULES_IN_A_FOLDER or room in MAY_BE_LARGE
    for path in sources(room):
        assert len(path.read_text().splitlines()) <= MOST_LINES, f"{path.relative_to(LIB)} has too many lines"


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_says_what_is_in_it(room: str) -> None:
    page = (LIB / room / "README.md").read_text()
    assert f"({room}/README.md)" in (LIB / "README.md").read_text()
    for path in sources(room):
        if path.suffix == ".c":
            assert f"`{path.name}`" in page, f"{room}/README.md does not name {path.name}"
