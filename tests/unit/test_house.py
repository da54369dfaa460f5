"""The house stands as it was drawn: imports go one way, rooms stay small, tests use what is public.

``make house`` prints the figures. The order of rooms is in ``tests/house/floors.py``.
"""

import ast
from pathlib import Path

import pytest
from house.floors import (
    BETWEEN_PACKAGES,
    CONTROL_PLANE,
    FLOORS,
    GENERATED,
    MOST_LINES,
    MOST_LINES_OF_A_FUNCTION,
    MOST_MODULES_IN_A_FOLDER,
    NODE,
    OF_THE_NODE,
    ROOT,
)
from house.measure import back_up, base_of, c_files, folders, imported, modules_of, private_touches

PRODUCT = CONTROL_PLANE / "vc_egpu"
TREES = [*(base_of(package) for package in FLOORS), ROOT / "e2e", ROOT / "tests"]


def packages_in(path: Path) -> set[str]:
    """Which packages of ``vc_egpu`` (or ``vc_egpu_node``) a module imports."""
    found = set()
    for module, member in imported(ast.parse(path.read_text())):
        first, *rest = [*module.split("."), member]
        if first == "vc_egpu" and rest[0] in BETWEEN_PACKAGES:
            found.add(rest[0])
        elif first == "vc_egpu_node":
            found.add(first)
    return found


def test_every_package_has_its_place() -> None:
    packages = {path.parent.name for path in PRODUCT.glob("*/__init__.py")}
    assert packages == set(BETWEEN_PACKAGES)
    assert {f"vc_egpu.{name}" for name in packages} | {"vc_egpu_node"} == set(FLOORS)


@pytest.mark.parametrize("package", sorted(BETWEEN_PACKAGES))
def test_packages_import_what_they_may(package: str) -> None:
    for path in sorted((PRODUCT / package).rglob("*.py")):
        wrong = packages_in(path) - BETWEEN_PACKAGES[package] - {package}
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


def test_the_node_agent_imports_no_process() -> None:
    for path in sorted((NODE / "vc_egpu_node").rglob("*.py")):
        wrong = packages_in(path) - OF_THE_NODE - {"vc_egpu_node"}
        assert not wrong, f"{path.relative_to(ROOT)} imports {', '.join(sorted(wrong))}"


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_rooms_import_one_way(package: str) -> None:
    modules = modules_of(package)
    assert len(modules) > 1, "that is not where they are"
    wrong = [f"{importer} imports {target}" for importer, target in back_up(package, modules)]
    assert not wrong, "; ".join(wrong)


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_no_room_is_on_paper_only(package: str) -> None:
    rooms = {module.room(package) for module in modules_of(package).values()}
    assert set(FLOORS[package]) <= rooms, f"gone: {', '.join(sorted(set(FLOORS[package]) - rooms))}"


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_folders_hold_few_modules(package: str) -> None:
    for folder, count in folders(package).items():
        assert count <= MOST_MODULES_IN_A_FOLDER, f"{folder.relative_to(ROOT)} has {count} modules"


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.relative_to(ROOT)))
def test_modules_stay_readable(tree: Path) -> None:
    for path in sorted(tree.rglob("*.py")):
        if path.parent.name in GENERATED:
            continue
        name, source = path.relative_to(ROOT), path.read_text()
        assert len(source.splitlines()) <= MOST_LINES, f"{name} has too many lines"
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= MOST_LINES_OF_A_FUNCTION, f"{name}: {node.name} has {length} lines"


def test_c_files_stay_readable() -> None:
    sources = c_files()
    assert len(sources) > 100, "that is not where they are"
    for path in sources:
        assert len(path.read_text().splitlines()) <= MOST_LINES, (
            f"{path.relative_to(ROOT)} has too many lines"
        )


def test_tests_use_what_is_public() -> None:
    touches = [where for places in private_touches().values() for where in places]
    assert not touches, "\n".join(touches)
