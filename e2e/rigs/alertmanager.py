"""A real Alertmanager beside a cluster, with our routes, and what it and Prometheus write to."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml
from localcluster import toolchain
from localcluster.api import wait_until
from localcluster.net import free_ports
from stack.hostprocess import HostProcess
from stack.install import Stack

from rigs.prometheus import MONITORING
from rigs.served import serves

Labels = dict[str, str]
WRITE: Final = "/write"


class Sink:
    """Takes notifications of Alertmanager and samples of Prometheus; ``refuses``: no samples for now."""

    def __init__(self) -> None:
        self.refuses = threading.Event()
        self.taken = 0
        """Requests with samples that were taken."""
        self.told: list[tuple[str, str, Labels]] = []
        """Receiver, ``firing`` or ``resolved``, labels; in the order in which they came."""
        sink = self

        class Handler(BaseHTTPRequestHandler):
            """One path for samples; each other one is a receiver's name."""

            def do_POST(self) -> None:
                """Take it, or refuse it."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path != WRITE:
                    sink.told += [
                        (self.path.rpartition("/")[2], alert["status"], alert["labels"])
                        for alert in json.loads(body)["alerts"]
                    ]
                refused = self.path == WRITE and sink.refuses.is_set()
                sink.taken += self.path == WRITE and not refused
                self.send_response(503 if refused else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """It is gone."""
        self._server.shutdown()
        self._server.server_close()


class Alertmanager:
    """Its HTTP interface."""

    def __init__(self, process: HostProcess, port: int) -> None:
        self._process = process
        self.address = f"127.0.0.1:{port}"

    def alerts(self) -> list[Labels]:
        """Labels of all alerts that fire now, inhibited ones too."""
        with urllib.request.urlopen(f"http://{self.address}/api/v2/alerts", timeout=10) as answer:
            return [alert["labels"] for alert in json.load(answer)]

    def ready(self) -> bool:
        """Whether it serves; an error where it has ended."""
        return serves(self._process, "Alertmanager", f"http://{self.address}")


@contextmanager
def alertmanager(stack: Stack, folder: Path, sink: Sink) -> Iterator[Alertmanager]:
    """It runs until the end of the block. ``folder``: empty, for its data."""
    (port,) = free_ports(1, set(stack.cluster.context.record.ports.values()))
    argv = [
        str(toolchain.program("alertmanager")),
        f"--config.file={_configuration(folder, sink)}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    process = HostProcess(stack.cluster, "alertmanager", argv)
    process.start()
    try:
        found = Alertmanager(process, port)
        wait_until("Alertmanager is ready", found.ready, 30)
        yield found
    finally:
        process.stop()


def _configuration(folder: Path, sink: Sink) -> Path:
    """The routes as they are, to receivers of ours and without long waits."""
    configuration: dict[str, Any] = yaml.safe_load((MONITORING / "alertmanager.yaml").read_text())
    configuration["route"] |= {"group_wait": "1s", "group_interval": "2s"}
    for receiver in configuration["receivers"]:
        receiver["webhook_configs"] = [{"url": f"{sink.url}/{receiver['name']}"}]
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(configuration))
    return path
