"""The reading of many services over weeks from a Prometheus: prints one JSON object as its last line.

    [DAYS=30] [SERVICES=200] python e2e/bench_reading.py

``{"days", "services", "pieces", "rows", "pieces_at_the_kill", "read_again", "wall_s", "cpu_s", "peak_mib",
"server_cpu_s"}``. The report is killed once half of the pieces are there, and then started again.
``wall_s`` and ``cpu_s`` are of both runs together. The Prometheus is a stand-in in a process of its own,
which makes up its answers: two services share a card. What a real one needs for its queries comes on top.
"""

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import parse_qs

import orjson
from vc_egpu.usage.table.columns import USAGE
from vc_egpu.usage.table.database import database, quoted
from vc_egpu.usage.table.series import SERIES, Kind, Role, Series

DAYS, SERVICES = int(os.environ.get("DAYS") or 30), int(os.environ.get("SERVICES") or 200)
UNTIL: Final = datetime(2026, 11, 1, tzinfo=UTC)
SINCE: Final = UNTIL - timedelta(days=DAYS)
GIB: Final = 1 << 30
QUEUES: Final = 20
_LONGEST_S: Final = 3600
_BY_QUERY: Final = {series.per_minute(): series for series in SERIES}


def main() -> int:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("fork").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    with TemporaryDirectory(prefix="vc-egpu-bench-reading-") as name:
        folder = Path(name)
        argv = [
            *(sys.executable, "-m", "vc_egpu.cli.main", "report", "--prometheus", url, "--cluster", "c"),
            *("--since", f"{SINCE:%Y-%m-%d}", "--until", f"{UNTIL:%Y-%m-%d}", "--store", str(folder)),
            *("--format", "json", "--output", str(folder / "report.json")),
        ]
        begun = time.monotonic()
        whole = DAYS * 24 // 6
        killed = subprocess.Popen(argv)
        while len(pieces(folder)) < whole // 2:
            if killed.poll() is not None or time.monotonic() > begun + _LONGEST_S:
                raise SystemExit(f"the report ended with {killed.poll()} and {len(pieces(folder))} pieces")
            time.sleep(0.05)
        killed.kill()
        killed.wait()
        kept = {path: path.stat().st_mtime_ns for path in pieces(folder)}
        subprocess.run(argv, check=True)
        wall_s = time.monotonic() - begun
        found = pieces(folder)
        again = [path for path, at_ns in kept.items() if path.stat().st_mtime_ns != at_ns]
        with database() as db:
            files = quoted(str(folder / USAGE.name / "dt=*" / "*.parquet"))
            rows = db.one(f"SELECT COUNT(*) AS n FROM read_parquet({files}) WHERE pod <> ''")["n"]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours.send("end")
    measured: dict[str, Any] = {
        "days": DAYS, "services": SERVICES, "pieces": len(found), "rows": rows,
        "pieces_at_the_kill": len(kept), "read_again": len(again), "wall_s": round(wall_s, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1), "peak_mib": used.ru_maxrss >> 10,
        "server_cpu_s": round(ours.recv(), 1),
    }  # fmt: skip
    server.join()
    print(json.dumps(measured))
    return 0 if rows == DAYS * 24 * SERVICES and not again else 1


def pieces(folder: Path) -> list[Path]:
    """What is read and kept."""
    return sorted((folder / USAGE.name).glob("dt=*/*.parquet"))


# --- the stand-in ---------------------------------------------------------------------------------


def serve(told: Connection) -> None:
    """Answer range queries until something comes by the pipe; then tell the CPU seconds that it took."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            text = answer({name: values[0] for name, values in parse_qs(body).items()})
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.timeout = 0.1
    told.send(server.server_address[1])
    while not told.poll():
        server.handle_request()
    told.send(time.process_time())


def answer(fields: dict[str, str]) -> bytes:
    """One range query's."""
    series = _BY_QUERY.get(fields["query"])
    ends = range(int(fields["start"]), int(fields["end"]) + 1, int(fields["step"]))
    result = [] if series is None else [
        {"metric": labels, "values": points(series, number, ends)} for number, labels in members(series)
    ]  # fmt: skip
    return orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def members(series: Series) -> list[tuple[int, dict[str, str]]]:
    """Its number and the labels of each series."""
    match series.role:
        case Role.SHARE | Role.RESTART:
            return [(number, only(series, share(number))) for number in range(SERVICES)]
        case Role.CARD | Role.DCGM:
            return [(number, only(series, card(number))) for number in range(SERVICES // 2)]
        case Role.QUEUE:
            return [(number, only(series, queue(number))) for number in range(QUEUES)]


def only(series: Series, labels: dict[str, str]) -> dict[str, str]:
    return {name: labels[name] for name in series.by if name in labels}


def share(number: int) -> dict[str, str]:
    return {
        "namespace": f"team-{number % 50}", "pod": f"service-{number}-0", "container": "main",
        "uuid": f"GPU-{number // 2}", "node": f"node-{number // 16}", "model": "h20",
        "queue": f"queue-{number % QUEUES}", "class": "low" if number % 5 == 0 else "",
        "gang": "podgroup-0a1b2c3d-1111-2222-3333-444455556666",
    }  # fmt: skip


def card(number: int) -> dict[str, str]:
    return {"uuid": f"GPU-{number}", "UUID": f"GPU-{number}", "node": f"node-{number // 8}", "model": "h20"}


def queue(number: int) -> dict[str, str]:
    return {
        "queue": f"queue-{number}", "resource": "volcano.sh/vgpu-h20", "parent": "root",
        "reason": "WaitingForCards", "class": "low", "cause": "priority",
    }  # fmt: skip


def points(series: Series, number: int, ends: range) -> list[tuple[int, str]]:
    """Counters grow by half a second for each second; the memory in use moves from minute to minute."""
    if series.kind is Kind.COUNTER:
        return [(end, f"{end * 0.5 + number:.3f}") for end in ends]
    if series.value == "memory_used":
        return [(end, str((8 + (end // 60 + number) % 7) * GIB)) for end in ends]
    value = {"granted": 32 * GIB, "card_memory": 96 * GIB}.get(series.value, 0.4)
    return [(end, str(value)) for end in ends]


if __name__ == "__main__":
    sys.exit(main())
