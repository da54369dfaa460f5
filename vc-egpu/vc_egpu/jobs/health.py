"""The metrics port: ``/metrics``, ``/healthz`` (restart this process?), ``/readyz`` (has it seen all?)."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from vc_egpu.kube.server import NumberedServer

Check = Callable[[], str | None]
"""None when all is well, else what is wrong."""


def serve(port: int, registry: CollectorRegistry, alive: Check, ready: Check) -> NumberedServer:
    """Listen on all addresses in the background; ``shutdown()`` ends it. Port 0 picks a free one."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            match self.path:
                case "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                case "/healthz":
                    self._check(alive)
                case "/readyz":
                    self._check(ready)
                case _:
                    self._answer(404, b"not here\n")

        def _check(self, check: Check) -> None:
            wrong = check()
            self._answer(200 if wrong is None else 503, f"{wrong or 'ok'}\n".encode())

        def _answer(self, status: int, body: bytes, content_type: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Probes come every few seconds: nobody wants a line for each."""

    server = NumberedServer(("", port), Handler)  # all addresses: kubelet and Prometheus come from outside
    threading.Thread(target=server.serve_forever, name="metrics-port", daemon=True).start()
    return server
