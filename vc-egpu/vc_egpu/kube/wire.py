"""HTTP/1.1 as an API server speaks it, over connections that stay open. Five times less work per request than
the general client, which matters where thousands of pods are patched from one process.

Connecting (TLS, certificates, server name) is urllib3's; what is said on the connection is ours. Bodies come
with a length or in chunks; answers are never compressed, since we do not ask for it.
"""

import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection

from vc_egpu.kube.errors import RequestTimeout, Unavailable

_MAX_HEAD: Final = 1 << 16
_RECEIVE: Final = 1 << 18
_IDLE_S: Final = 60.0
"""Connections that rested longer are not used again: the server closes them at 90 s."""
_BODILESS: Final = frozenset({204, 304})
_CONNECT_OPTIONS: Final = (
    "cert_reqs",
    "ca_certs",
    "ca_cert_data",
    "cert_file",
    "key_file",
    "assert_hostname",
    "server_hostname",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    data: bytes


class BrokenOffError(Unavailable):
    """The connection ended in the middle. ``before_answer``: not one byte had come yet."""

    def __init__(self, message: str, *, before_answer: bool) -> None:
        super().__init__(message)
        self.before_answer = before_answer


class Wire:
    """One connection. Not thread-safe: the pool lends it to one request at a time."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._buffer = b""
        self._deadline = 0.0
        self.reusable = True
        self.rested_since = time.monotonic()

    @property
    def alive(self) -> bool:
        """Neither closed by the server (it would be readable) nor rested for too long."""
        rested_s = time.monotonic() - self.rested_since
        return self.reusable and rested_s < _IDLE_S and bool(self._connection.is_connected)

    def exchange(self, request: bytes, deadline: float) -> Answer:
        """Send a request and read its answer, both before ``deadline`` (monotonic)."""
        self._deadline = deadline
        self.reusable = False  # until the answer was read to its end
        try:
            self._send(request)
            status, headers = self._head()
            while 100 <= status < 200:
                status, headers = self._head()
            data, at_end = self._body(status, headers)
        except TimeoutError as error:
            raise RequestTimeout("no answer in time") from error
        except (OSError, ValueError) as error:
            raise Unavailable(f"the connection broke: {error}") from error
        self.reusable = not at_end and headers.get("connection", "").lower() != "close"
        self.rested_since = time.monotonic()
        return Answer(status, headers, data)

    def close(self) -> None:
        """Give the connection up."""
        self._connection.close()

    def _send(self, request: bytes) -> None:
        sock = self._connection.sock
        sock.settimeout(self._left_s())
        try:
            sock.sendall(request)
        except TimeoutError:
            raise
        except OSError as error:
            raise BrokenOffError(f"the connection broke: {error}", before_answer=True) from error

    def _left_s(self) -> float:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def _receive(self) -> bytes:
        sock = self._connection.sock
        sock.settimeout(self._left_s())
        return bytes(sock.recv(_RECEIVE))

    def _head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        while (end := self._buffer.find(b"\r\n\r\n")) < 0:
            if len(self._buffer) > _MAX_HEAD:
                raise ValueError(f"headers of more than {_MAX_HEAD} bytes")
            before_answer = not self._buffer
            try:
                data = self._receive()
            except ConnectionError as error:
                raise BrokenOffError(f"the connection broke: {error}", before_answer=before_answer) from error
            if not data:
                raise BrokenOffError("the server closed the connection", before_answer=before_answer)
            self._buffer += data
        lines = self._buffer[:end].decode("latin-1").split("\r\n")
        self._buffer = self._buffer[end + 4 :]
        protocol, _, rest = lines[0].partition(" ")
        if not protocol.startswith("HTTP/1."):
            raise ValueError(f"no HTTP answer: {lines[0][:80]!r}")
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(rest[:3]), headers

    def _body(self, status: int, headers: Mapping[str, str]) -> tuple[bytes, bool]:
        """The body, and whether it took the end of the connection to know where it ends."""
        if status in _BODILESS:
            return b"", False
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._chunks(), False
        length = headers.get("content-length")
        if length is not None:
            return self._exactly(int(length)), False
        parts = [self._buffer]
        self._buffer = b""
        while data := self._receive():
            parts.append(data)
        return b"".join(parts), True

    def _exactly(self, size: int) -> bytes:
        """The next ``size`` bytes."""
        if len(self._buffer) < size:
            parts, have = [self._buffer], len(self._buffer)
            while have < size:
                data = self._receive()
                if not data:
                    raise ValueError(f"the answer ended after {have} of {size} bytes")
                parts.append(data)
                have += len(data)
            self._buffer = b"".join(parts)
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            data = self._receive()
            if not data or len(self._buffer) > _MAX_HEAD:
                raise ValueError("a chunk without its size")
            self._buffer += data
        line, self._buffer = self._buffer[:end], self._buffer[end + 2 :]
        return line

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self._line().split(b";", 1)[0], 16):
            parts.append(self._exactly(size))
            self._exactly(2)
        while self._line():
            """Trailers say nothing that we need."""
        return b"".join(parts)


class WirePool:
    """At most ``size`` connections to one server, lent to one request each. Thread-safe."""

    def __init__(
        self, base_url: str, options: Mapping[str, Any], *, size: int, connect_timeout_s: float
    ) -> None:
        parts = urlsplit(base_url)
        self._secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._secure else 80)
        self._host_header = parts.netloc
        self._options = {key: options[key] for key in _CONNECT_OPTIONS if options.get(key) is not None}
        self._connect_timeout_s = connect_timeout_s
        self._places = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._resting: list[Wire] = []

    def exchange(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, limit_s: float
    ) -> Answer:
        """One request and its answer; raises :class:`Unavailable` or :class:`RequestTimeout`.

        A request is sent a second time only if it can be read from the connection that the server had closed
        it before it saw the request, and never if it is a write.
        """
        request = _request(method, target, self._host_header, headers, body)
        deadline = time.monotonic() + limit_s
        if not self._places.acquire(timeout=limit_s):
            raise RequestTimeout("no connection became free in time")
        try:
            wire, fresh = self._take(deadline)
            try:
                answer = wire.exchange(request, deadline)
            except BrokenOffError as error:
                wire.close()
                if fresh or method != "GET" or not error.before_answer:
                    raise
                wire = self._connect(deadline)
                answer = wire.exchange(request, deadline)
            except BaseException:
                wire.close()
                raise
            self._give_back(wire)
            return answer
        finally:
            self._places.release()

    def clear(self) -> None:
        """Close the connections that rest."""
        with self._lock:
            resting, self._resting = self._resting, []
        for wire in resting:
            wire.close()

    def _take(self, deadline: float) -> tuple[Wire, bool]:
        """A connection, and whether it is a new one. The one used last is the one most surely alive."""
        while True:
            with self._lock:
                wire = self._resting.pop() if self._resting else None
            if wire is None:
                return self._connect(deadline), True
            if wire.alive:
                return wire, False
            wire.close()

    def _give_back(self, wire: Wire) -> None:
        if not wire.reusable:
            wire.close()
            return
        with self._lock:
            self._resting.append(wire)

    def _connect(self, deadline: float) -> Wire:
        timeout_s = max(0.001, min(self._connect_timeout_s, deadline - time.monotonic()))
        kind: Any = HTTPSConnection if self._secure else HTTPConnection
        options = self._options if self._secure else {}
        no_delay = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
        connection = kind(self._host, self._port, timeout=timeout_s, socket_options=no_delay, **options)
        try:
            connection.connect()
        except Exception as error:
            connection.close()
            raise Unavailable(f"{self._host}:{self._port} was not reached: {error}") from error
        return Wire(connection)


def _request(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None or method not in {"GET", "HEAD"}:
        lines.append(f"Content-Length: {len(body or b'')}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1:
        raise ValueError("a line break in a request's path or headers")
    return text.encode("latin-1") + b"\r\n\r\n" + (body or b"")
