"""Imports point inward: core, then volcano, then kube, then the processes; and the core stays pure."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "vc-egpu" / "vc_egpu"
NODE = ROOT / "device-plugin" / "vc_egpu_node"

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 70

PROCESSES = ("admission", "webhook", "jobs", "sim", "cli")
MAY_IMPORT = {
    "core": {"core"},
    "volcano": {"core", "volcano"},
    "kube": {"core", "volcano", "kube"},
    **{process: {"core", "volcano", "kube", process} for process in PROCESSES},
}
"""By package, which of ours it may import. The command line starts all processes."""
MAY_IMPORT["cli"] |= {"admission", "webhook", "jobs"}
NODE_MAY_IMPORT = {"core", "volcano", "kube"}

PURE = {
    "collections", "contextlib", "dataclasses", "enum", "functools", "heapq", "itertools", "math", "numpy",
    "typing", "zlib",
}  # fmt: skip
"""All that the core may import besides itself: no clock, no I/O, no randomness, no logging, no Kubernetes."""
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


def modules(package: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(package.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    """Full names of all imported modules, wherever in the file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            base = str(node.module)
            # ``from vc_egpu import core`` imports a package as much as ``import vc_egpu.core`` does.
            yield from (f"{base}.{alias.name}" for alias in node.names) if base == "vc_egpu" else (base,)


def ours(name: str) -> str | None:
    """Which of our packages a module belongs to; None for others, and for what is in no package."""
    parts = name.split(".")
    inside = parts[0] == "vc_egpu" and len(parts) > 1
    return parts[1] if inside and parts[1] in MAY_IMPORT else None


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_imports_point_inward(package: str) -> None:
    for path, tree in modules(PRODUCT / package):
        for name in imports(tree):
            target = ours(name)
            assert target is None or target in MAY_IMPORT[package], f"{path.relative_to(ROOT)} imports {name}"
            assert not name.startswith("vc_egpu_node"), f"{path.relative_to(ROOT)} imports {name}"


def test_the_node_agent_imports_no_process() -> None:
    for path, tree in modules(NODE):
        for name in imports(tree):
            target = ours(name)
            assert target is None or target in NODE_MAY_IMPORT, f"{path.relative_to(ROOT)} imports {name}"


def test_every_package_has_its_place() -> None:
    packages = {path.parent.name for path in PRODUCT.glob("*/__init__.py")}
    assert packages == set(MAY_IMPORT)


def test_the_core_imports_nothing_impure() -> None:
    for path, tree in modules(PRODUCT / "core"):
        for name in imports(tree):
            top = name.split(".")[0]
            assert top in PURE or name.startswith("vc_egpu.core"), f"{path.name} imports {name}"


def test_the_core_calls_nothing_impure() -> None:
    for path, tree in modules(PRODUCT / "core"):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in IMPURE_CALLS, f"{path.name}:{node.lineno} calls {node.func.id}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                is_random = node.value.id in {"np", "numpy"} and node.attr == "random"
                assert not is_random, f"{path.name}:{node.lineno} uses numpy's random numbers"


def test_the_core_keeps_no_module_state() -> None:
    """Names at module level are constants, types or functions; none is a list or set that could change."""
    for path, tree in modules(PRODUCT / "core"):
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.List | ast.Set):
                raise AssertionError(f"{path.name}:{node.lineno} keeps a mutable value at module level")
        changes = [inner.lineno for inner in ast.walk(tree) if isinstance(inner, ast.Global)]
        assert not changes, f"{path.name}:{changes[0]} changes a global"


ROOMS = [*(PRODUCT / package for package in sorted(MAY_IMPORT)), NODE, ROOT / "e2e", ROOT / "tests"]


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(ROOT)))
def test_modules_stay_readable(room: Path) -> None:
    for path, tree in modules(room):
        if path.parent.name == "kubelet_api":  # generated
            continue
        name = path.relative_to(ROOT)
        assert len(path.read_text().splitlines()) <= MOST_LINES, f"{name} has too many lines"
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                assert length <= MOST_LINES_OF_A_FUNCTION, f"{name}: {node.name} has {length} lines"


def test_c_files_stay_readable() -> None:
    native = ROOT / "device-plugin" / "native"
    sources = [path for path in native.rglob("*.[ch]") if path.relative_to(native).parts[0] != "build"]
    assert len(sources) > 100, "that is not where they are"
    for path in sources:
        name = path.relative_to(native)
        assert len(path.read_text().splitlines()) <= MOST_LINES, f"{name} has too many lines"
