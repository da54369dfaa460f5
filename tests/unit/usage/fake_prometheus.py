"""A Prometheus that knows the queries of the small path only, and can be told to misbehave."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from unit.usage.scene import SceneSeries
from vc_egpu.usage.table.series import SERIES, Series

Answer = tuple[int, bytes]
Fault = Callable[[dict[str, str], int], Answer | None]
"""Fields of the request and its number: another answer, or None for the right one."""


@dataclass
class Fake:
    """What it serves, and what it was asked."""

    series: list[SceneSeries]
    fault: Fault = lambda _fields, _number: None
    asked: list[dict[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    cuts: frozenset[int] = frozenset()
    """Numbers of requests whose answer breaks off."""
    url: str = ""

    def answer(self, fields: dict[str, str]) -> Answer:
        """What one range query answers."""
        return self.fault(fields, len(self.asked)) or (200, json.dumps(self._matrix(fields)).encode())

    def _matrix(self, fields: dict[str, str]) -> dict[str, Any]:
        if fields["query"] == "vector(1)":
            return {"status": "success", "data": {"resultType": "matrix", "result": []}}
        asked = next(series for series in SERIES if series.per_minute() == fields["query"])
        ends = range(int(fields["start"]), int(fields["end"]) + 1, int(fields["step"]))
        found: dict[tuple[tuple[str, str], ...], dict[int, float]] = {}
        for one in self.series:
            if one.metric == asked.metric and _matches(asked, one):
                labels = tuple((name, one.labels[name]) for name in asked.by if one.labels.get(name))
                values = found.setdefault(labels, {})
                for end in ends:
                    value = one.at(end // 60 - 1)
                    if value is not None:
                        values[end] = max(value, values.get(end, value))
        result = [
            {"metric": dict(labels), "values": [[end, repr(value)] for end, value in sorted(values.items())]}
            for labels, values in found.items()
            if values
        ]
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def _matches(asked: Series, one: SceneSeries) -> bool:
    name, _, value = asked.matchers.partition("=")
    return not name or one.labels.get(name) == value.strip('"')


@contextmanager
def fake_prometheus(series: Iterable[SceneSeries]) -> Iterator[Fake]:
    """It serves until the end of the block."""
    fake = Fake(list(series))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            fields = {name: values[0] for name, values in parse_qs(body).items()}
            fake.asked.append(fields)
            fake.headers.append(dict(self.headers))
            status, text = fake.answer(fields) if self.path == "/api/v1/query_range" else (404, b"no page")
            self.send_response(status)
            breaks_off = len(fake.asked) in fake.cuts
            self.send_header("Content-Length", str(len(text) + breaks_off))
            self.end_headers()
            self.wfile.write(text)
            self.close_connection = breaks_off

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
