"""/metrics, /healthz and /readyz over plain HTTP."""

import logging
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from vc_egpu.kube.server import NumberedServer

log = logging.getLogger(__name__)

Check = Callable[[], str]
"""Empty: in order; else what is not."""


class WebServer:
    """Serves on its own thread. ``port`` tells the one chosen where 0 was asked for."""

    def __init__(self, listen: str, registry: CollectorRegistry, healthy: Check, ready: Check) -> None:
        host, _, port = listen.rpartition(":")
        answers = {"/healthz": healthy, "/readyz": ready}

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            timeout = 10

            def do_GET(self) -> None:
                """Answer one of the three paths."""
                path = self.path.partition("?")[0]
                if path == "/metrics":
                    self._send(200, generate_latest(registry), CONTENT_TYPE_LATEST)
                elif path in answers:
                    trouble = answers[path]()
                    self._send(503 if trouble else 200, (trouble or "ok").encode() + b"\n", "text/plain")
                else:
                    self._send(404, b"not here\n", "text/plain")

            def _send(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
                """Probes and scrapes are not worth a line."""

        self._server = NumberedServer((host.strip("[]") or "0.0.0.0", int(port)), Handler)  # noqa: S104
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="web", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
