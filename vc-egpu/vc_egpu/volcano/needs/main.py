"""``vc-egpu environments check FILE``: can this table be used, and what does each of its rows come to?"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from vc_egpu.volcano.needs.archive import ArchiveError, Json, images_in, row_of
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
    image = actions.add_parser("image", help="the row of a table that says what an image says of itself")
    image.add_argument("archive", type=Path, help="a tar file of docker save, podman save or ctr export")
    image.add_argument("--as", dest="pattern", default="", metavar="NAME", help="how pods name the image")
    options = parser.parse_args(argv)
    try:
        if options.action == "image":
            return _rows_of(options.archive, options.pattern)
        table = _table(options.file)
        if options.action == "show":
            for way in compiled(options.needs, table):
                _say(", ".join(map(str, way)))
            return EXIT_OK
    except ArchiveError as error:
        return _failed(f"{options.archive}: {error}")
    except (OSError, UnicodeDecodeError, TableError, NeedsError) as error:
        return _failed(str(error))
    problems = [text for row in table.rows if (text := _problem(row, table))]
    images = [text for row in table.images if (text := _problem_of_image(row, table))]
    for text in (*problems, *images):
        _say(text)
    of_images = f", {len(table.images)} of images" if table.images else ""
    rows = f"{len(table.rows)} rows{of_images}, programs: {', '.join(table.by_program)}"
    nowhere = len(problems) + len(images)
    _say(f"{rows}; {nowhere} rows lead nowhere" if nowhere else rows)
    return EXIT_FOUND if images or any("circle" in text for text in problems) else EXIT_OK


def _rows_of(archive: Path, pattern: str) -> int:
    """Print the rows of an archive's images; what is wrong with one goes to stderr."""
    rows: dict[str, Json] = {}
    for image in images_in(archive):
        row, warnings = row_of(image, pattern)
        for text in warnings:
            _failed(f"{image.name}: {text}")
        if row is not None:
            rows.setdefault(json.dumps(row), row)
    if not rows:
        return _failed(f"{archive}: says nothing of what it needs (NVIDIA_REQUIRE_*, CUDA_VERSION)")
    _say(yaml.safe_dump({"images": list(rows.values())}, sort_keys=False).rstrip())
    return EXIT_OK


def _failed(text: str) -> int:
    print(f"vc-egpu environments: {text}", file=sys.stderr)  # noqa: T201 - a command's answer
    return EXIT_FOUND


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
    for text in row.texts:
        try:
            compiled(text, table)
        except NeedsError as error:
            return f"image {row.image}: {error}"
    return ""


def _say(text: str) -> None:
    print(text)  # noqa: T201 - a command's answer
