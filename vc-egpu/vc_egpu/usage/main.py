"""``vc-egpu report``: hourly rows in, one report out."""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from vc_egpu.usage.flags import UsageError, parser
from vc_egpu.usage.loading import Loading, Sources
from vc_egpu.usage.output.files import OutputError, write_tables, write_text
from vc_egpu.usage.output.page import page
from vc_egpu.usage.output.patches import manifests
from vc_egpu.usage.output.terminal import lines
from vc_egpu.usage.output.words import words
from vc_egpu.usage.reports.prices import Prices, PricesError, read
from vc_egpu.usage.reports.settings import Settings
from vc_egpu.usage.reports.whole import Report, report
from vc_egpu.usage.sources.folder import FolderError
from vc_egpu.usage.sources.pieces import StoreError
from vc_egpu.usage.sources.prometheus import PrometheusError
from vc_egpu.usage.table.database import Database, DatabaseMissing, database
from vc_egpu.usage.table.window import WindowError, text_of, window_of

EXIT_OK: Final = 0
EXIT_NOTHING: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_SERVER: Final = 3
EXIT_INTERRUPTED: Final = 130
_GIB: Final = 1 << 30
_FOLDERS: Final = frozenset({"csv", "parquet"})


def main(
    argv: list[str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    sources: Sources | None = None,
) -> int:
    """Make one report; returns the exit status. ``sleep``: before Prometheus is asked again, in seconds.

    ``sources``: reads the file of ``--clusters``, which is not known without it.
    """
    options = parser().parse_args(argv)
    try:
        return _run(options, datetime.now(UTC), sleep, sources)
    except (UsageError, WindowError, PricesError) as error:
        return _end(error, EXIT_USAGE)
    except PrometheusError as error:
        return _end(error, EXIT_NO_SERVER)
    except (FolderError, StoreError, OutputError, DatabaseMissing) as error:
        return _end(error, EXIT_NOTHING)
    except KeyboardInterrupt:
        return _end("interrupted; hours that were read are kept", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK


def _end(error: object, status: int) -> int:
    sys.stderr.write(f"vc-egpu report: {error}\n")
    return status


def _run(options: Namespace, now: datetime, sleep: Callable[[float], None], sources: Sources | None) -> int:
    window = window_of(options.since, options.until, now)
    zone = _zone(options.time_zone)
    if options.format in _FOLDERS and not options.output:
        raise UsageError(f"--format {options.format} writes several files: name a folder with --output")
    prices = read(Path(options.prices)) if options.prices else Prices()
    settings = Settings(charge=options.charge, host_memory_bytes=options.host_memory_gib * _GIB)
    with database(options.memory_mib) as db:
        notes, clusters = Loading(options, db, window, now, sleep).load(sources)
        made = report(
            db, window, zone, settings, prices, tenant=options.tenant, notes=notes, clusters=clusters
        )
        if options.tenant and not made.tables["showback"]:
            raise UsageError(f"there is no tenant {options.tenant!r} with shares in this time")
        _write(options, db, made)
    return EXIT_NO_SERVER if clusters is not None and clusters.missing else EXIT_OK


def _write(options: Namespace, db: Database, made: Report) -> None:
    if options.format in _FOLDERS:
        for path in write_tables(db, made, Path(options.output), options.format):
            sys.stderr.write(f"{path}\n")
        return
    text = _TEXTS[options.format](made, options.lang)
    if options.output in {"", "-"}:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_text(Path(options.output), text)


def _json(made: Report, _language: str) -> str:
    document: dict[str, Any] = {
        "since": text_of(made.window.since),
        "until": text_of(made.window.until),
        "timeZone": made.zone,
        "currency": made.currency,
        "tenant": made.tenant,
        "notes": made.notes,
        "tables": made.tables,
    }
    if made.clusters is not None:
        document |= {
            "asked": len(made.clusters.asked),
            "answered": made.clusters.answered,
            "unreachable": [{"cluster": one.cluster, "reason": one.reason} for one in made.clusters.missing],
        }
    return json.dumps(document, indent=1) + "\n"


def _table(made: Report, language: str) -> str:
    return "\n".join(lines(made, words(language))) + "\n"


def _html(made: Report, language: str) -> str:
    return page(made, words(language))


def _patch(made: Report, _language: str) -> str:
    return manifests(made)


_TEXTS: Final[dict[str, Callable[[Report, str], str]]] = {
    "table": _table,
    "json": _json,
    "html": _html,
    "patch": _patch,
}


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UsageError(
            f"there is no time zone {name!r}: Asia/Shanghai and Europe/Berlin are some"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
