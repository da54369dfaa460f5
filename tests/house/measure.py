"""Readings of the source tree: modules, imports, lines, private names that tests touch."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from house.floors import CONTROL_PLANE, FLOORS, GENERATED, NATIVE, NODE, ROOT

_NAMED_TUPLES = frozenset({"_replace", "_asdict", "_fields", "_fields_", "_field_defaults"})
"""Public parts of the standard library whose names begin with an underscore."""
_OUTSIDE = frozenset({"os", "sys"})


@dataclass(frozen=True, slots=True)
class Module:
    """One Python module: full name, lines, and the modules of the same package that it imports."""

    name: str
    path: Path
    lines: int
    imports: frozenset[str]

    def room(self, package: str) -> str:
        """The folder or module directly below the package; empty for the package itself."""
        return self.name.removeprefix(package).strip(".").partition(".")[0]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: a package, or a room of one."""

    name: str
    modules: int
    lines: int
    levels: int
    """Modules on the longest chain of imports."""
    arrows: int
    """Imports between modules of this package or room."""
    back_up: tuple[tuple[str, str], ...]
    """Imports against the order of floors: importer and imported."""


def base_of(package: str) -> Path:
    """The folder in which a package lies."""
    return (NODE if package.startswith("vc_egpu_node") else CONTROL_PLANE) / package.replace(".", "/")


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Pairs of module and name for each import, wherever in the file; the name is empty for ``import x``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((str(node.module), alias.name) for alias in node.names)


def modules_of(package: str) -> dict[str, Module]:
    """All modules of a package by full name; a package's own file stands under the package's name."""
    folder = base_of(package)
    root = folder.parents[package.count(".")]
    paths: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        paths[name.removesuffix(".__init__")] = path
    found = {}
    for name, path in paths.items():
        source = path.read_text()
        targets = set()
        for module, member in imported(ast.parse(source)):
            full = f"{module}.{member}"
            target = full if full in paths else module
            if target in paths and target != name:
                targets.add(target)
        found[name] = Module(name, path, len(source.splitlines()), frozenset(targets))
    return found


def row_of(package: str, modules: Mapping[str, Module], room: str = "") -> Row:
    """The line of one package, or of one of its rooms."""
    inside = {n: m for n, m in modules.items() if not room or m.room(package) == room}
    arrows = [(m.name, target) for m in inside.values() for target in m.imports if target in inside]
    counted = [m for m in inside.values() if m.path.name != "__init__.py"]
    return Row(
        f"{package}.{room}" if room else package,
        len(counted),
        sum(m.lines for m in inside.values()),
        _levels(inside),
        len(arrows),
        tuple(back_up(package, inside) if not room else ()),
    )


def back_up(package: str, modules: Mapping[str, Module]) -> Iterator[tuple[str, str]]:
    """Imports that go against the order of the package's floors. A room without a place is one, too."""
    order = {room: place for place, room in enumerate(FLOORS[package])}
    for module in modules.values():
        here = module.room(package)
        if here and here not in order:
            yield module.name, f"{here} has no place in tests/house/floors.py"
        for target in sorted(module.imports):
            there = modules[target].room(package)
            if there == here or not there:
                continue
            if order.get(there, len(order)) >= order.get(here, len(order)):
                yield module.name, target


def _levels(modules: Mapping[str, Module]) -> int:
    known: dict[str, int] = {}

    def level(name: str, above: tuple[str, ...] = ()) -> int:
        if name in above:
            return 0
        if name not in known:
            below = (level(t, (*above, name)) for t in modules[name].imports if t in modules)
            known[name] = 1 + max(below, default=0)
        return known[name]

    return max((level(name) for name in modules), default=0)


def folders(package: str) -> dict[Path, int]:
    """By folder of a package: modules in it, its own file aside."""
    counts: dict[Path, int] = {}
    for module in modules_of(package).values():
        if module.path.name != "__init__.py" and module.path.parent.name not in GENERATED:
            counts[module.path.parent] = counts.get(module.path.parent, 0) + 1
    return counts


def c_files() -> list[Path]:
    """C sources and headers of the product and of its fakes."""
    return [p for p in sorted(NATIVE.rglob("*.[ch]")) if p.relative_to(NATIVE).parts[0] != "build"]


def private_touches() -> dict[str, list[str]]:
    """By folder of tests: where a test reads or sets a private name of something that is not itself."""
    found: dict[str, list[str]] = {}
    for kind in ("unit", "property", "scenario", "contract"):
        for path in sorted((ROOT / "tests" / kind).rglob("*.py")):
            place = "/".join(path.relative_to(ROOT / "tests").parts[:2])
            for line, name in _touches(ast.parse(path.read_text())):
                found.setdefault(place, []).append(f"{path.relative_to(ROOT)}:{line} {name}")
    return found


def _touches(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in {"self", "cls"} | _OUTSIDE:
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("vc_egpu"):
            yield from ((node.lineno, alias.name) for alias in node.names if _is_private(alias.name))


def _is_private(name: str) -> bool:
    return bool(re.match(r"_[^_]", name)) and name not in _NAMED_TUPLES
