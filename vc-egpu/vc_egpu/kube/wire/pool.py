"""What urllib3 lacks: one deadline for a whole request, a limit on idle connections, cheap heads.

urllib3's time-outs are for single socket operations, and its clock starts when it has a connection. But a
write under a lease must not begin after its time, even if it waited long for a connection and for TLS. A
server that sends its answer in drops must not hold a thread. All of HTTP stays urllib3's: these are its
classes for timeout, connection and pool, each with one addition. A leader makes hundreds of small requests a
second. Most of the cost is the head, so it is read and written in the plainest way.
"""

import http.client
import io
import socket
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

CONNECT_TIMEOUT_S: Final = 5.0
REST_S: Final = 60.0
"""Connections that rested longer are not used again: the server closes them at 90 s."""
MOST_AGE_S: Final = 600.0
"""Older connections are not used again: the certificate by which the server knows us may have been replaced
since, and is over one day. A busy connection would live on."""
_READ: Final = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "retry-after", "transfer-encoding"}
)
"""Headers that our code reads; the others of an answer (most of them) are skipped."""
_MAX_HEADERS: Final = 100
_MAX_LINE_BYTES: Final = 65536


class TimeLeft(Timeout):
    """What is left of ``limit_s`` since this was made, however often it is asked. For one request."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(total=limit_s, connect=min(CONNECT_TIMEOUT_S, limit_s))
        self._began = super().start_connect()

    def clone(self) -> Timeout:
        """The same clock: a copy would start again after the wait for a connection, and at a second try."""
        return self

    def start_connect(self) -> float:
        """The clock runs already."""
        return self._began

    @property
    def connect_timeout(self) -> float:
        """Seconds in which to connect and send; never more than are left."""
        left_s = self.read_timeout or 0.0
        if left_s <= 0:
            raise HTTPTimeoutError("no time left to send the request")
        return min(CONNECT_TIMEOUT_S, left_s)


class _Timed(io.RawIOBase):
    """Bytes of a socket, all before one moment: each wait is only as long as what is left."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, limit_s: float) -> None:
        self._raw = raw
        self._sock = sock
        self._until = time.monotonic() + limit_s
        self._set = True  # the socket has this limit already, at first

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._set:
            self._set = False
        else:
            left_s = self._until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the answer did not end in time")
            self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """Head and body together have the time that the socket allows for one operation."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        limit_s = sock.gettimeout()
        if limit_s is not None:
            self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, limit_s))

    def begin(self) -> None:
        """Read the head as the base class does, but without its parser of headers. That one is made for mail,
        and took a fifth of a request."""
        if self.headers is not None:
            return
        version, status, reason = self._read_status()
        while status < HTTPStatus.OK and status != HTTPStatus.SWITCHING_PROTOCOLS:
            # An interim answer (103 of a proxy, for example). If it were taken for the answer, the answer
            # would be taken for that of the next request.
            _headers(self.fp)
            version, status, reason = self._read_status()
        if not version.startswith("HTTP/1."):
            raise http.client.UnknownProtocol(version)
        self.version = 10 if version == "HTTP/1.0" else 11
        self.code = self.status = status
        self.reason = reason.strip()
        self.headers = self.msg = _headers(self.fp)
        self.chunked = (self.headers.get("Transfer-Encoding") or "").lower() == "chunked"
        self.chunk_left = None
        length = self.headers.get("Content-Length") or ""
        self.length = int(length) if length.isdecimal() and not self.chunked else None
        bodiless = status < HTTPStatus.OK or status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}
        if bodiless or self._method == "HEAD":
            self.length = 0
        # Where nothing says how long the body is, the end of the connection does.
        endless = status < HTTPStatus.OK or (not self.chunked and self.length is None)
        self.will_close = self._check_close() or endless


def _headers(lines: io.BufferedReader) -> http.client.HTTPMessage:
    """The headers up to the empty line, of those that are looked at."""
    message = http.client.HTTPMessage()
    for _ in range(_MAX_HEADERS):
        line = lines.readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise http.client.LineTooLong("header line")
        if line in {b"\r\n", b"\n", b""}:
            return message
        name, colon, value = line.decode("iso-8859-1").partition(":")
        if not colon or name != name.strip():
            raise http.client.HTTPException(f"no header: {line[:80]!r}")
        if name.lower() in _READ:
            message.set_raw(name, value.strip())
    raise http.client.HTTPException(f"more than {_MAX_HEADERS} headers")


class _Aging(HTTPConnection):
    _made_at = 0.0

    def connect(self) -> None:
        """Its life begins."""
        self._made_at = time.monotonic()
        super().connect()

    @property
    def is_connected(self) -> bool:
        """Neither closed by the server (it would be readable) nor too old."""
        return time.monotonic() - self._made_at < MOST_AGE_S and super().is_connected


class _Connection(_Aging):
    response_class = _Answer
    _doubted_at = float("-inf")
    """When an answer last did not come, on any of these. Its cause (a load balancer that was replaced) broke
    the idle connections as well. Each would cost one more time-out, and two time-outs cost a lease."""
    _rested_since = 0.0
    _pieces: list[bytes] | None = None

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send head and body in one piece: one record of TLS less, and the server wakes once."""
        self._pieces = []
        try:
            super().request(*args, **kwargs)
            whole = b"".join(self._pieces)
        finally:
            self._pieces = None
        self.send(whole)

    def send(self, data: Any) -> None:
        """Send, or keep for later while a request is put together."""
        if self._pieces is None:
            super().send(data)
        else:
            self._pieces.append(data)

    @property
    def is_connected(self) -> bool:
        """Nor idle for too long, or since before a request got no answer."""
        trusted = time.monotonic() - self._rested_since < REST_S and self._rested_since > self._doubted_at
        return trusted and super().is_connected

    def connect(self) -> None:
        """Name look-up, TCP and TLS each have the whole time-out: what they left is the sending's."""
        limit_s = self.timeout
        began = time.monotonic()
        super().connect()
        if limit_s is not None:
            self.timeout = limit_s - (time.monotonic() - began)
            if self.timeout <= 0:
                self.close()
                raise ConnectTimeoutError(self, f"{self.host} was reached too late to send the request")
            self.sock.settimeout(self.timeout)

    def getresponse(self) -> Any:
        """The answer, which urllib3 has read to its end here; the rest begins."""
        try:
            answer = super().getresponse()
        except TimeoutError:
            _Connection._doubted_at = time.monotonic()
            raise
        self._rested_since = time.monotonic()
        return answer


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _SecureAging(_Aging, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _StreamPool(HTTPConnectionPool):
    ConnectionCls = _Aging


class _SecureStreamPool(HTTPSConnectionPool):
    ConnectionCls = _SecureAging


Pools = Mapping[str, type[HTTPConnectionPool]]
"""For a pool manager's ``pool_classes_by_scheme``."""
POOL_CLASSES: Final[Pools] = {"http": _Pool, "https": _SecurePool}
STREAM_POOL_CLASSES: Final[Pools] = {"http": _StreamPool, "https": _SecureStreamPool}
