"""Stands between a controller and the API server, counts its writes, and strikes at a chosen one.

The controller speaks plain HTTP to it on the loopback; it passes everything on with the administrator's
certificate. A strike happens while a write is held: before it was passed on, or after the API server has done
it but before the controller hears of it. So "killed before and after every write" means exactly that.
"""

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import urllib3
import yaml
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config
from localcluster.errors import LocalClusterError

Moment = Literal["before", "after"]


@dataclass(frozen=True)
class Write:
    """One write that the controller sent."""

    method: str
    path: str

    @property
    def counts(self) -> bool:
        """Leases and events are not part of any admission; dry runs and reviews change nothing."""
        return not any(part in self.path for part in ("/leases", "/events", "reviews"))


@dataclass
class Strike:
    """What to do at the write of this number (from 0), and when."""

    number: int
    moment: Moment
    act: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    """The struck write goes on when this is set (a killed controller does not hear of it any more)."""
    failure: list[Exception] = field(default_factory=list)
    """Why it could not be done. It runs on a thread whose faults nobody sees."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    """A controller that starts opens a dozen connections at once."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections of killed controllers break; that is what they are killed for."""


class WriteTap:
    """See the module. Use as a context manager; ``kubeconfig`` is what the controller gets."""

    def __init__(self, kubeconfig: Path, own_kubeconfig: Path) -> None:
        settings = Configuration()
        load_kube_config(config_file=str(kubeconfig), client_configuration=settings)
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        context.load_cert_chain(settings.cert_file, settings.key_file)
        self.upstream = urllib3.PoolManager(ssl_context=context, maxsize=64, block=False)
        self.base = str(settings.host)
        self.writes: list[Write] = []
        self.strike: Strike | None = None
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"tap": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.kubeconfig = own_kubeconfig
        server = f"http://127.0.0.1:{self._server.server_address[1]}"
        own_kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "tap", "cluster": {"server": server}}],
                    "users": [{"name": "tap", "user": {}}],
                    "contexts": [{"name": "tap", "context": {"cluster": "tap", "user": "tap"}}],
                    "current-context": "tap",
                }
            )
        )

    def __enter__(self) -> "WriteTap":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.strike is not None:
            self.strike.let_go.set()
        self._server.shutdown()
        self._server.server_close()

    def begin(self, strike: Strike | None = None) -> None:
        """Count from zero again, and strike at the chosen write."""
        with self._lock:
            self.writes, self.strike = [], strike

    def enter(self, write: Write) -> Strike | None:
        """A write arrived; the strike that is meant for it, if any."""
        with self._lock:
            number = len(self.writes)
            self.writes.append(write)
            strike = self.strike
        return strike if strike is not None and strike.number == number else None


class _Handler(BaseHTTPRequestHandler):
    tap: WriteTap
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        write = Write(self.command, self.path)
        strike = None
        if self.command not in {"GET", "HEAD"} and write.counts:
            strike = self.tap.enter(write)
        if strike is not None and strike.moment == "before":
            self._hit(strike)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in {"host", "content-length"}}
        streams = "watch=true" in self.path
        answer = self.tap.upstream.request(
            self.command, self.tap.base + self.path, body=body, headers=headers,
            preload_content=not streams, redirect=False, retries=False,
        )  # fmt: skip
        if strike is not None and strike.moment == "after":
            self._hit(strike)
        try:
            self._reply(answer, streams=streams)
        except OSError:
            self.close_connection = True

    def _hit(self, strike: Strike) -> None:
        try:
            strike.act()
        except (LocalClusterError, OSError, ValueError, KeyError) as error:
            strike.failure.append(error)
        strike.done.set()
        strike.let_go.wait(120)

    def _reply(self, answer: Any, *, streams: bool) -> None:
        self.send_response(answer.status)
        for name in ("Content-Type", "Retry-After"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        if not streams:
            self.send_header("Content-Length", str(len(answer.data)))
            self.end_headers()
            self.wfile.write(answer.data)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for chunk in answer.stream(1 << 16):
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        finally:
            answer.close()

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass_on  # noqa: N815 - the base class calls them so

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Say nothing."""
