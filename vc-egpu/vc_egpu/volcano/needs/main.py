"""``vc-egpu environments check FILE``: can this table be used, and what does each of its rows come to?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vc_egpu.volcano.needs.compile import compiled
from vc_egpu.volcano.needs.table import EnvironmentTable, ImageRow, Row, TableError, shipped
from vc_egpu.volcano.needs.text import NeedsError

EXIT_OK: Final = 0
EXIT_FOUND: Final = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 for a table that can be used, 1 for one that cannot."""
    parser = argparse.ArgumentParser(prog="vc-egpu environments", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    check = actions.add_parser("check", help="read a table, and resolve each of its rows")
    check.add_argument("file", type=Path, help="the table (YAML)")
    show = actions.add_parser("show", help="what a text needs of a node, by a table")
    show.add_argument("needs", help="as in the annotation: cuda>=12.4,torch==2.6")
    show.add_argument("--file", type=Path, help="the table; default: the one that is shipped")
    options = parser.parse_args(argv)
    try:
        table = _table(options.file)
        if options.action == "show":
            for way in compiled(options.needs, table):
                _say(", ".join(map(str, way)))
            return EXIT_OK
    except (OSError, UnicodeDecodeError, TableError, NeedsError) as error:
        print(f"vc-egpu environments: {error}", file=sys.stderr)  # noqa: T201 - a command's answer
        return EXIT_FOUND
    problems = [text for row in table.rows if (text := _problem(row, table))]
    images = [text for row in table.images if (text := _problem_of_image(row, table))]
    for text in (*problems, *images):
        _say(text)
    of_images = f", {len(table.images)} of images" if table.images else ""
    rows = f"{len(table.rows)} rows{of_images}, programs: {', '.join(table.by_program)}"
    nowhere = len(problems) + len(images)
    _say(f"{rows}; {nowhere} rows lead nowhere" if nowhere else rows)
    return EXIT_FOUND if images or any("circle" in text for text in problems) else EXIT_OK


def _table(file: Path | None) -> EnvironmentTable:
    return shipped() if file is None else EnvironmentTable.from_yaml(file.read_text(encoding="utf-8"))


def _problem(row: Row, table: EnvironmentTable) -> str:
    """Why nothing comes of a row; empty where something does."""
    first = row.line.value.split("|")[0]
    try:
        compiled(f"{row.line.fact}=={first}{f'+{row.build}' if row.build else ''}", table)
    except NeedsError as error:
        return f"{row.when} {row.build}: {error}".replace(" :", ":")
    return ""


def _problem_of_image(row: ImageRow, table: EnvironmentTable) -> str:
    """Why nothing comes of a row for images; empty where something does."""
    try:
        compiled(row.needs, table)
    except NeedsError as error:
        return f"image {row.image}: {error}"
    return ""


def _say(text: str) -> None:
    print(text)  # noqa: T201 - a command's answer
