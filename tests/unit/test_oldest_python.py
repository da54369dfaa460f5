"""Debian 12's Python 3.11.2 runs all of this: what later patches of 3.11 added is not used."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("vc-egpu", "device-plugin", "e2e", "tests")


def test_archives_are_unpacked_without_filters() -> None:
    """``extract(..., filter=)`` came with 3.11.4, and without it 3.12 warns: members are read instead."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"extract", "extractall"}
        and any(keyword.arg == "filter" for keyword in node.keywords)
    ]
    assert found == []
