"""The line between a user and one cluster: passes all on, until it is slow or is cut at a chosen request.

The user speaks plain HTTP to it on the loopback; it shows the administrator's certificate to the API server.
"""

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, Self

import urllib3
import yaml
from kubernetes.client import Configuration
from kubernetes.config import load_kube_config

Moment = Literal["before", "within", "after"]
"""Before the API server hears of it; in the middle of its answer; before the first byte of that."""


@dataclass
class Cut:
    """The line breaks at the first request that ``hits`` (method and path with its query), and only there."""

    hits: Callable[[str, str], bool]
    moment: Moment
    act: Callable[[], None]
    """What happens to the cluster then."""
    done: threading.Event = field(default_factory=threading.Event)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections of users that wait no longer break."""


class Line:
    """See the module. Use it as a context manager; ``late_s``: each request waits so long."""

    def __init__(self, kubeconfig: Path, own_kubeconfig: Path) -> None:
        settings = Configuration()
        load_kube_config(config_file=str(kubeconfig), client_configuration=settings)
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        context.load_cert_chain(settings.cert_file, settings.key_file)
        self.upstream = urllib3.PoolManager(ssl_context=context, maxsize=16, block=False)
        self.base = str(settings.host)
        self.late_s = 0.0
        self.over = threading.Event()
        self.kubeconfig = own_kubeconfig
        self._cut: Cut | None = None
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"line": self}))
        own_kubeconfig.write_text(yaml.safe_dump(open_kubeconfig(self._server.server_address[1])))

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    def cut_at(self, method: str, part: str, moment: Moment, act: Callable[[], None]) -> Cut:
        """Break at the next request of this method whose path holds ``part``, and is no dry run."""
        cut = Cut(lambda sent, path: sent == method and part in path and "dryRun" not in path, moment, act)
        with self._lock:
            self._cut = cut
        return cut

    def cut_of(self, method: str, path: str) -> Cut | None:
        """The cut that this request meets; each is met once."""
        with self._lock:
            cut = self._cut
            if cut is None or not cut.hits(method, path):
                return None
            self._cut = None
            return cut


def open_kubeconfig(port: int) -> dict[str, Any]:
    """A kubeconfig that leads to a port of this machine, without credentials."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "line", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "line", "user": {}}],
        "contexts": [{"name": "line", "context": {"cluster": "line", "user": "line"}}],
        "current-context": "line",
    }


class _Handler(BaseHTTPRequestHandler):
    line: Line
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        if self.line.late_s and self.line.over.wait(self.line.late_s):
            self.close_connection = True
            return
        cut = self.line.cut_of(self.command, self.path)
        if cut is not None and cut.moment == "before":
            self._break(cut)
            return
        headers = {k: v for k, v in self.headers.items() if k.lower() not in {"host", "content-length"}}
        streams = "watch=true" in self.path
        try:
            answer = self.line.upstream.request(
                self.command, self.line.base + self.path, body=body, headers=headers, redirect=False,
                retries=False, preload_content=not streams,
            )  # fmt: skip
        except urllib3.exceptions.HTTPError:  # the cluster is away: so is the line
            self.close_connection = True
            return
        try:
            if streams:
                self._stream(answer)
            else:
                self._reply(answer, cut)
        except (OSError, urllib3.exceptions.HTTPError):  # nobody waits for it any more
            self.close_connection = True

    def _reply(self, answer: Any, cut: Cut | None) -> None:
        data = answer.data
        if cut is not None and cut.moment == "after":
            self._break(cut)
            return
        self._head(answer, ("Content-Length", str(len(data))))
        if cut is None:
            self.wfile.write(data)
            return
        self.wfile.write(data[: len(data) // 2])
        self.wfile.flush()
        self._break(cut)

    def _stream(self, answer: Any) -> None:
        self._head(answer, ("Transfer-Encoding", "chunked"))
        try:
            for chunk in answer.stream(1 << 16):
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
        finally:
            answer.close()

    def _head(self, answer: Any, length: tuple[str, str]) -> None:
        self.send_response(answer.status)
        for name in ("Content-Type", "Retry-After"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header(*length)
        self.end_headers()

    def _break(self, cut: Cut) -> None:
        self.close_connection = True
        cut.act()
        cut.done.set()

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _pass_on  # noqa: N815 - the base class calls them so

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name
        """Say nothing."""
