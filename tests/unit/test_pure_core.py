"""The core is pure: it imports nothing that reads a clock, does I/O or draws lots, and it keeps no state."""

import ast
from collections.abc import Iterator
from pathlib import Path

from house.floors import CONTROL_PLANE
from house.measure import imported

CORE = CONTROL_PLANE / "vc_egpu" / "core"

PURE = {
    "collections", "contextlib", "dataclasses", "enum", "functools", "heapq", "itertools", "math", "numpy",
    "types", "typing", "zlib",
}  # fmt: skip
"""All that the core may import besides itself: no clock, no I/O, no randomness, no logging, no Kubernetes."""
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__"}


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Each module of the core, parsed."""
    for path in sorted(CORE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def test_the_core_imports_nothing_impure() -> None:
    for path, tree in modules():
        for name, _ in imported(tree):
            top = name.split(".")[0]
            assert top in PURE or name.startswith("vc_egpu.core"), f"{path.name} imports {name}"


def test_the_core_calls_nothing_impure() -> None:
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in IMPURE_CALLS, f"{path.name}:{node.lineno} calls {node.func.id}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                is_random = node.value.id in {"np", "numpy"} and node.attr == "random"
                assert not is_random, f"{path.name}:{node.lineno} uses numpy's random numbers"


def test_the_core_keeps_no_module_state() -> None:
    """Names at module level are constants, types or functions; none is a list or set that could change."""
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.List | ast.Set):
                raise AssertionError(f"{path.name}:{node.lineno} keeps a mutable value at module level")
        changes = [inner.lineno for inner in ast.walk(tree) if isinstance(inner, ast.Global)]
        assert not changes, f"{path.name}:{changes[0]} changes a global"
