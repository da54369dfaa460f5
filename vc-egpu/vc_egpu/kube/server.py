"""The plain HTTP server of our processes: ``/metrics``, ``/healthz`` (restart it?), ``/readyz``, views."""

import errno
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry

from vc_egpu.metrics import text

PLAIN: Final = "text/plain; charset=utf-8"
REQUEST_TIMEOUT_S: Final = 10.0
"""A client that sends nothing for this long is dropped."""

ALL_ADDRESSES: Final = frozenset({"", "::"})

MOST_CONNECTIONS: Final = 64
"""Each has a thread, and any client that reaches the port may open many; probes need few."""

FOR_NOBODY: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of this process, not of the connection: it still waits, and the next try fails in the same way."""
PAUSE_S: Final = 0.1

Check = Callable[[], str]
"""Empty: in order; else what is not."""


MOST_BODY_BYTES: Final = 1 << 18
"""What a POST may carry."""


_LONGEST_NUMBER: Final = 9


class Request(NamedTuple):
    """A GET, or a POST where the server takes any."""

    path: str
    """Without the query."""
    client: str
    """Its address."""
    authorization: str
    takes_gzip: bool = False
    body: bytes = b""
    """What a POST may carry."""
    query: str = ""


class Answer(NamedTuple):
    """What it gets."""

    status: int
    body: bytes
    content_type: str = PLAIN
    encoding: str = ""
    """As in Content-Encoding; empty: as it is."""


def metrics_page(registry: CollectorRegistry) -> Answer:
    """All of a registry in Prometheus' text format."""
    return Answer(200, text.text_of(registry.collect()), text.CONTENT_TYPE)


def check_page(trouble: str) -> Answer:
    """200 where there is none, else 503 and what it is."""
    return Answer(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())


def pages(registry: CollectorRegistry, healthy: Check, ready: Check) -> Callable[[Request], Answer]:
    """The three pages that a process has which shows nothing else."""
    answers: dict[str, Callable[[], Answer]] = {
        "/metrics": lambda: metrics_page(registry),
        "/healthz": lambda: check_page(healthy()),
        "/readyz": lambda: check_page(ready()),
    }
    nothing = Answer(404, f"{' '.join(answers)}\n".encode())
    return lambda request: answers.get(request.path, lambda: nothing)()


def address_of(listen: str) -> tuple[str, int]:
    """Read ``host:port``; without a host it means all addresses."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def listening(host: str, port: int, backlog: int = 128) -> socket.socket:
    """A socket that takes connections; port 0 picks a free one. Raises :class:`OSError`.

    ``""`` and ``::`` mean all addresses of both families, because a cluster may have pods of either. If the
    kernel has no IPv6, they mean all IPv4 addresses.
    """
    if host in ALL_ADDRESSES:
        if socket.has_dualstack_ipv6():
            both = ("::", port)
            return socket.create_server(both, family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
        host = ""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=backlog)


class GetServer:
    """Answers GETs on threads of its own; nothing is logged, since headers may hold tokens."""

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[Request], Answer],
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        posts: Mapping[str, Callable[[Request], Answer]] = MappingProxyType({}),
    ) -> None:
        """Listens from now on, and answers once it is started. Port 0 picks a free one: see :attr:`port`.

        ``posts``, by path, answers POSTs; all others are refused.
        """

        class Handler(_Handler):
            """Asks this ``answer`` and waits this long for a request."""

            ask = staticmethod(answer)
            ask_post = MappingProxyType(dict(posts))
            timeout = request_timeout_s

        self._server = _NumberedServer(address, Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    def start(self) -> "GetServer":
        """Begin to answer."""
        self._thread.start()
        return self

    def connections(self) -> int:
        """How many connections are open."""
        return self._server.connections()

    def stop(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    ask: Callable[[Request], Answer]
    ask_post: Mapping[str, Callable[[Request], Answer]]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer."""
        self._say(type(self).ask(self._request()))

    def do_POST(self) -> None:
        """Answer. A body that is not read ends the connection: its bytes would be taken for a request."""
        ask, length = self.ask_post.get(self.path.partition("?")[0]), self.headers.get("Content-Length") or ""
        if ask is None or not (length.isascii() and length.isdecimal()) or len(length) > _LONGEST_NUMBER:
            self.close_connection = True
            self._say(Answer(405, b"not here\n") if ask is None else Answer(411, b"needs its length\n"))
        elif int(length) > MOST_BODY_BYTES:
            self.close_connection = True
            self._say(Answer(413, f"at most {MOST_BODY_BYTES} bytes\n".encode()))
        else:
            body = self.rfile.read(int(length))
            self._say(ask(self._request()._replace(body=body)))

    def _request(self) -> Request:
        authorization = self.headers.get("Authorization") or ""
        client = str(self.client_address[0]).removeprefix(
            "::ffff:"
        )  # how a socket of both families shows IPv4
        takes_gzip = "gzip" in (self.headers.get("Accept-Encoding") or "").lower()
        path, _, query = self.path.partition("?")
        return Request(path, client, authorization, takes_gzip, query=query)

    def _say(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        if answer.encoding:
            self.send_header("Content-Encoding", answer.encoding)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Probes and scrapes are not worth a line."""


class _NumberedServer(ThreadingHTTPServer):
    """Knows its own address by number only. Each connection has a thread, and none keeps the process
    alive."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        """Do not ask for this machine's name, as the base class does when it binds. Without a name server
        that takes 10 s at each start, and until the agent runs no pod starts on its node."""
        self._lock = threading.Lock()
        self._connections: dict[int, socket.socket] = {}
        """In the order in which they came."""
        super().__init__(address, handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening(*address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def connections(self) -> int:
        """How many have a thread."""
        with self._lock:
            return len(self._connections)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take the next one that waits; pause first if there is no descriptor for it."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in FOR_NOBODY:
                time.sleep(PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread. If there are too many connections, the oldest is closed."""
        with self._lock:
            if len(self._connections) >= MOST_CONNECTIONS:
                first = self._connections.pop(next(iter(self._connections)))
                with suppress(OSError):
                    first.shutdown(socket.SHUT_RDWR)
            self._connections[id(request)] = request
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Its thread is done with it."""
        with self._lock:
            self._connections.pop(id(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to be told of."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
