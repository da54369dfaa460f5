"""The report of many services over months, from Parquet: prints one JSON object as its last line.

    [DAYS=90] [SERVICES=2000] [ROUNDS=1] python e2e/bench_reports.py

``{"days", "services", "share_rows", "card_rows", "parquet_mib", "rounds":
[{"wall_s", "cpu_s", "peak_mib"}]}``.
The hours are made up, the same ones each time. Two services share a card. Each round is a process of its
own that makes the page for people.
"""

import json
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from vc_egpu.usage.table.columns import QUEUE, USAGE
from vc_egpu.usage.table.database import Database, database

DAYS, SERVICES = int(os.environ.get("DAYS") or 90), int(os.environ.get("SERVICES") or 2000)
ROUNDS = int(os.environ.get("ROUNDS") or 1)
GIB: Final = 1 << 30
UNTIL: Final = datetime(2026, 11, 1, tzinfo=UTC)
GANG: Final = "podgroup-0a1b2c3d-1111-2222-3333-444455556666"
_HOURS: Final = "(SELECT $1::TIMESTAMP + to_hours(CAST(n AS INTEGER)) AS hour_start, n FROM range(24) t(n))"
SHARES: Final = f"""
SELECT '' AS cluster, 'team-' || i % 50 AS namespace, 'queue-' || i % 50 AS queue, '{GANG}' AS gang,
  'service-' || i || '-0' AS pod, 'main' AS container, 'node-' || i // 16 AS node, 'GPU-' || i // 2 AS uuid,
  'h20' AS model, CASE WHEN i % 5 = 0 THEN 'low' ELSE '' END AS class, hour_start,
  (16 + i % 3 * 16) * {GIB}.0 AS memory_granted_bytes, 96 * {GIB}.0 AS card_memory_bytes,
  (8 + draw * 8) * {GIB} AS memory_used_max_bytes, (8 + draw * 7) * {GIB} AS memory_used_mean_bytes,
  i % 3 * 0.2 AS cores_granted_ratio, busy * 3600 AS compute_used_seconds, 3600.0 AS held_seconds,
  0.0 AS suspended_seconds, 60 AS minutes_seen, busy AS compute_used_max_ratio,
  draw * 30 AS launch_wait_share_seconds, 0.0 AS restarts, 0.0 AS oom_kills
FROM (SELECT *, CASE WHEN (n + i) % 24 < 8 THEN 0.0 ELSE draw * 0.5 END AS busy
  FROM (SELECT i, n, hour_start, hash(i, hour_start) % 1000 / 1000.0 AS draw
    FROM range({SERVICES}) s(i) CROSS JOIN {_HOURS}))
"""
CARDS: Final = f"""
SELECT '' AS pod, '' AS cluster, 'node-' || c // 8 AS node, 'GPU-' || c AS uuid, 'h20' AS model, hour_start,
  96 * {GIB}.0 AS card_memory_bytes, 3600.0 AS held_seconds, 60 AS minutes_seen
FROM range({SERVICES} // 2) s(c) CROSS JOIN {_HOURS}
"""
QUEUES: Final = f"""
SELECT '' AS cluster, 'queue-' || q AS queue, 'root' AS parent, 'volcano.sh/vgpu-h20' AS resource, hour_start,
  30.0 AS used, 32.0 AS deserved, 0.0 AS guarantee, 64.0 AS capability, 1.0 AS waiting, 60 AS minutes_seen
FROM range(50) s(q) CROSS JOIN {_HOURS}
"""


def main() -> int:
    with TemporaryDirectory(prefix="vc-egpu-bench-reports-") as name:
        folder = Path(name)
        with database() as db:
            counts = made(db, folder / "hours")
        size = sum(path.stat().st_size for path in (folder / "hours").rglob("*.parquet"))
        print(f"{counts} in {size >> 20} MiB", file=sys.stderr, flush=True)
        rounds = [measured(folder) for _ in range(ROUNDS)]
    about = {"days": DAYS, "services": SERVICES, **counts, "parquet_mib": size >> 20}
    print(json.dumps(about | {"rounds": rounds}))
    return 0


def made(db: Database, folder: Path) -> dict[str, int]:
    """Both tables, by day; how many rows they have."""
    counts = {"share_rows": 0, "card_rows": 0}
    for shape in (USAGE, QUEUE):
        db.fill(shape.name, shape.columns, [])
    for number in range(DAYS):
        day = midnight(number)
        for name, query in ((USAGE.name, SHARES), (USAGE.name, CARDS), (QUEUE.name, QUEUES)):
            db.run(f"INSERT INTO {name} BY NAME {query}", [day])
        for shape in (USAGE, QUEUE):
            home = folder / shape.name / f"dt={day:%Y-%m-%d}"
            home.mkdir(parents=True)
            db.write_parquet(f"SELECT * FROM {shape.name}", home / "part-0.parquet")
        count = db.one(f"SELECT COUNT(*) FILTER (pod <> '') AS shares, COUNT(*) AS n FROM {USAGE.name}")
        counts["share_rows"] += count["shares"]
        counts["card_rows"] += count["n"] - count["shares"]
        for shape in (USAGE, QUEUE):
            db.run(f"DELETE FROM {shape.name}")
    return counts


def midnight(number: int) -> datetime:
    """Of a day of the window, without a zone as the table has it."""
    return (UNTIL - timedelta(days=DAYS - number)).replace(tzinfo=None)


def measured(folder: Path) -> dict[str, Any]:
    """One report."""
    argv = [
        *(sys.executable, "-m", "vc_egpu.cli.main", "report", "--folder", str(folder / "hours")),
        *("--since", f"{UNTIL - timedelta(days=DAYS):%Y-%m-%d}", "--until", f"{UNTIL:%Y-%m-%d}"),
        *("--format", "html", "--output", str(folder / "report.html")),
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    subprocess.run(argv, check=True)
    wall_s = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall_s, 1), "cpu_s": round(cpu_s, 1), "peak_mib": after.ru_maxrss >> 10}


if __name__ == "__main__":
    sys.exit(main())
