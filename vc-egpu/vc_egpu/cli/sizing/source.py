"""A report that a command acts on: read from its JSON file, or made now."""

import argparse
import contextlib
import importlib
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_LARGEST: Final = 256 << 20
"""Bytes of a file; a report of 2,000 services has some 5 million."""


class CannotApplyError(Exception):
    """Nothing can be proposed; the text is for the user."""


def add_flags(flags: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Where the report comes from; one of them is needed."""
    source = flags.add_mutually_exclusive_group(required=True)
    source.add_argument("--prometheus", metavar="URL", help="read what is missing from here")
    source.add_argument("--folder", metavar="DIR", help="read the tables of hours from here")
    source.add_argument("--report", metavar="FILE", help="a report as JSON: `vc-egpu report --format json`")
    flags.add_argument("--since", default="8d", help="8d, 36h, 2w or a date in UTC; default: 8d")
    return source


def document(options: argparse.Namespace) -> object:
    """The report that the flags name. Raises :class:`CannotApplyError`."""
    if options.report:
        return read(Path(options.report))
    source = ["--folder", options.folder] if options.folder else ["--prometheus", options.prometheus]
    return _made_now(source, options.since)


def read(path: Path) -> object:
    """A report in JSON. Raises :class:`CannotApplyError`."""
    try:
        if path.stat().st_size > _LARGEST:
            raise CannotApplyError(f"{path} is larger than a report: {_LARGEST >> 20} MiB at most")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CannotApplyError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CannotApplyError(f"{path} is no JSON: `vc-egpu report --format json` writes it") from None


def _made_now(source: Iterable[str], since: str) -> object:
    """A report that is made now; its libraries are loaded for it. ``source``: its flags."""
    reports = importlib.import_module("vc_egpu.usage.main")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        status: int = reports.main([*source, f"--since={since}", "--format=json"])
    if status:
        raise CannotApplyError("no report could be made")
    return json.loads(text.getvalue())


def rows_of(report: object, table: str) -> list[Any]:
    """The rows of one table of a report of one cluster. Raises :class:`CannotApplyError`."""
    tables = report.get("tables") if isinstance(report, Mapping) else None
    rows = tables.get(table) if isinstance(tables, Mapping) else None
    if not isinstance(rows, list):
        raise CannotApplyError(f"the file has no table {table}: is it a report?")
    clusters = sorted({str(row.get("cluster", "")) for row in rows if isinstance(row, Mapping)})
    asked = report.get("asked") if isinstance(report, Mapping) else None
    if len(clusters) > 1:
        # A service of the same name in another cluster would be taken for this one.
        raise CannotApplyError(f"the report is of {', '.join(clusters)}: make one of this cluster alone")
    if isinstance(asked, int) and asked > 1:
        raise CannotApplyError(f"the report is of {asked} clusters: make one of this cluster alone")
    return rows
