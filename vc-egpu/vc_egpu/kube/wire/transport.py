"""One HTTP exchange with the API server: connection pools, time-outs, the fence, and errors of our own.

Bodies are plain JSON documents (dicts) read and written with orjson; nothing here knows what they mean.
"""

import copy
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import orjson
import urllib3
from urllib3.exceptions import ConnectTimeoutError, EmptyPoolError, HTTPError, MaxRetryError, ReadTimeoutError
from urllib3.exceptions import TimeoutError as HTTPTimeoutError

from vc_egpu.kube.wire.config import Endpoint
from vc_egpu.kube.wire.errors import (
    KubeError,
    LeaseLost,
    RequestTimeout,
    Temporary,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    error_of,
)
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.kube.wire.pool import CONNECT_TIMEOUT_S, POOL_CLASSES, STREAM_POOL_CLASSES, TimeLeft
from vc_egpu.kube.wire.reading import read

Json = dict[str, Any]
Query = Mapping[str, str | int | bool | None]

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
METADATA_WATCH: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
"""Objects without spec and status: of 28,000 pods 32 MB instead of 150."""
READ_METHODS: Final = frozenset({"GET", "HEAD"})
_MIN_WRITE_S: Final = 0.05
"""A write that has less time than this left under the lease is not even begun."""
_MOST_AT_ONCE: Final = 1 << 16
MOST_RETRY_AFTER_S: Final = 60.0
"""API servers say about a second. A proxy in between must not stop a watch for hours."""
_LEAST_PAUSE_S: Final = 0.05
_NEVER_AGAIN: Final = urllib3.Retry(total=False)
_ONCE_MORE: Final = urllib3.Retry(1, connect=0, respect_retry_after_header=False)
"""For reads: the server may have closed the connection they went out on. Both tries have one deadline."""

logger = logging.getLogger(__name__)


class Fence(Protocol):
    """Says for how long this process may still write; a leader lease is one."""

    def remaining_s(self) -> float:
        """Seconds left; zero or less: no write may be sent."""
        ...


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    data: bytes | None
    content_type: str
    query: Query | None
    timeout_s: float
    fence: Fence | None
    most_bytes: int | None


class TooLargeError(Exception):
    """An answer is larger than was to be read."""


class Stream:
    """The lines of a watch. ``close`` may be called from another thread and ends the iteration.

    ``line_timeout_s`` bounds the time from a line's first byte to its end.
    """

    def __init__(self, response: Any, what: str, line_timeout_s: float) -> None:
        self._response = response
        self._what = what
        self._line_timeout_s = line_timeout_s
        self._closed = threading.Event()

    def lines(self) -> Iterator[bytes]:
        """Whole lines as they arrive, until the server ends the stream; raises :class:`Temporary`."""
        rest, began = b"", 0.0
        try:
            for chunk in self._chunks():
                began = began if rest else time.monotonic()
                rest += chunk
                if b"\n" in chunk:
                    *whole, rest = rest.split(b"\n")
                    yield from (line for line in whole if line)
                    began = time.monotonic()
                elif time.monotonic() - began > self._line_timeout_s:
                    raise RequestTimeout(f"{self._what}: a line did not end in time")
        except ReadTimeoutError as error:
            raise RequestTimeout(f"{self._what}: nothing arrived in time") from error
        except (HTTPError, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: the response was closed under the reader by close().
            if not self._closed.is_set():
                raise Unavailable(f"{self._what}: the stream broke: {error}") from error

    def _chunks(self) -> Iterator[bytes]:
        """What arrives, as it arrives."""
        if self._response.chunked:
            return iter(self._response.stream(_MOST_AT_ONCE, decode_content=True))
        # Where a proxy took the chunks away, stream() would wait until so many bytes have come: for hours.
        return iter(lambda: self._response.read1(_MOST_AT_ONCE, decode_content=True), b"")

    def close(self) -> None:
        """Wake a reader and give the connection up."""
        self._closed.set()
        try:
            self._response.shutdown()
        except (HTTPError, OSError, ValueError, RuntimeError, AttributeError):
            logger.debug("%s: the stream was down already", self._what)
        self._response.close()


class Transport:
    """Thread-safe exchanges over keep-alive connections, at most ``pool_size`` at a time."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        pool_size: int = 32,
        timeout_s: float = 30.0,
        user_agent: str = "vc-egpu",
        limit: TokenBucket | None = None,
        patience_s: float = 0.0,
    ) -> None:
        """``patience_s``: for so long is sent again what the server wants to be asked later, where it says
        when; with 0 the caller is told."""
        if pool_size < 1 or timeout_s <= 0:
            raise ValueError(f"pool_size and timeout_s must be positive, got {pool_size} and {timeout_s}")
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._limit = limit
        self._patience_s = patience_s
        self._bearer: str | None = None
        self._headers = {"Accept": JSON, "User-Agent": user_agent}
        self._stream_headers = self._headers
        self._requests = endpoint.pool_manager(pool_size=pool_size, block=True)
        self._requests.pool_classes_by_scheme = POOL_CLASSES
        # Watches live for minutes: from the blocking pool they would take the requests' places.
        self._streams = endpoint.pool_manager(pool_size=1, block=False)
        self._streams.pool_classes_by_scheme = STREAM_POOL_CLASSES
        self._send = _opener(self._requests, endpoint)
        self._open_stream = _opener(self._streams, endpoint)

    def metadata_only(self) -> "Transport":
        """The same connections, on which reads ask for the metadata of objects alone."""
        other = copy.copy(self)
        other._headers = {**self._headers, "Accept": METADATA_LIST}
        other._stream_headers = {**self._headers, "Accept": METADATA_WATCH}
        return other

    def bearing(self, token: str) -> "Transport":
        """The same connections, with requests of the bearer of this token alone.

        Raises :class:`Unauthorized` for what no header may have.
        """
        if not token or not (token.isascii() and token.isprintable()) or " " in token:
            raise Unauthorized("the token has characters that no header may have", status=401)
        other = copy.copy(self)
        other._bearer = f"Bearer {token}"
        return other

    def bearer_token(self) -> str | None:
        """The token of the Authorization header; None where there is none. Raises :class:`Unauthorized`."""
        header = self._bearer or self._endpoint.authorization() or ""
        scheme, _, token = header.partition(" ")
        return token.strip() or None if scheme.lower() == "bearer" else None

    def exchange(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        query: Query | None = None,
        timeout_s: float | None = None,
        fence: Fence | None = None,
        limited: bool = True,
        most_bytes: int | None = None,
    ) -> bytes:
        """Send one request and return the raw answer of a success; raises :class:`KubeError`, and
        :class:`TooLargeError` where it has more than ``most_bytes``.

        A read is sent again when a kept-alive connection turns out to be closed; a write is only if the
        server certainly did nothing.
        """
        if self._limit is not None and limited:
            self._limit.take()
        data = None if body is None else (body if isinstance(body, bytes) else orjson.dumps(body))
        writing = method not in READ_METHODS
        request = _Request(
            method,
            path,
            data,
            content_type,
            query,
            timeout_s if timeout_s is not None else self._timeout_s,
            fence if writing else None,
            most_bytes,
        )
        until = time.monotonic() + self._patience_s
        while True:
            try:
                return self._answered(request)
            except Temporary as error:
                # 429 as well as 401 comes before anything is done; what a budget says is no matter of load.
                again = type(error) is TooManyRequests or not writing
                after_s = error.retry_after_s
                if not again or after_s is None or time.monotonic() + after_s > until:
                    raise
            time.sleep(max(after_s, _LEAST_PAUSE_S))

    def _answered(self, request: "_Request") -> bytes:
        try:
            return self._once(request)
        except Unauthorized:
            # 401 comes before anything is done, so even a write may be repeated with a fresh token.
            if self._bearer is not None or self._endpoint.authorization(renew=True) is None:
                raise
        return self._once(request)

    def _once(self, request: "_Request") -> bytes:
        query, limit_s, what = request.query, request.timeout_s, f"{request.method} {request.path}"
        headers = self._request_headers(request.data, request.content_type)
        if request.fence is not None:
            limit_s = min(limit_s, _time_to_write(request.fence, what))
            # The server gives up as well: a write must not be done long after we stopped waiting for it.
            query = {**(query or {}), "timeout": f"{max(1, int(limit_s))}s"}
        try:
            answer = self._send(
                request.method,
                self._target(request.path, query),
                body=request.data,
                headers=headers,
                timeout=TimeLeft(limit_s),
                retries=_ONCE_MORE if request.method in READ_METHODS else _NEVER_AGAIN,
                redirect=False,
                pool_timeout=limit_s,
                preload_content=request.most_bytes is None,
            )
            data = answer.data if request.most_bytes is None else _at_most(request.most_bytes, answer)
        except (HTTPError, OSError) as error:
            raise _failure(what, limit_s, error) from error
        if 200 <= answer.status < 300:
            return bytes(data)
        raise _refusal(what, answer.status, data, answer.headers)

    def stream(self, path: str, query: Query, *, idle_timeout_s: float) -> Stream:
        """Open a watch; ``idle_timeout_s`` bounds the silence between two arrivals."""
        what = f"WATCH {path}"
        timeout = urllib3.Timeout(connect=CONNECT_TIMEOUT_S, read=idle_timeout_s)
        try:
            answer = self._open_stream(
                "GET",
                self._target(path, query),
                headers=self._request_headers(None, JSON, self._stream_headers),
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            if answer.status == 200:
                return Stream(answer, what, idle_timeout_s)
            data = answer.read()
        except ReadTimeoutError as error:
            raise RequestTimeout(f"{what}: no answer within {idle_timeout_s:.1f} s") from error
        except (HTTPError, OSError) as error:
            raise Unavailable(f"{what}: the API server was not reached: {error}") from error
        answer.close()
        raise _refusal(what, answer.status, data, answer.headers)

    def close(self) -> None:
        """Give up idle connections."""
        self._requests.clear()
        self._streams.clear()

    def _request_headers(
        self, data: bytes | None, content_type: str, usual: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        headers = dict(self._headers if usual is None else usual)
        authorization = self._bearer or self._endpoint.authorization()
        if authorization:
            headers["Authorization"] = authorization
        if data is not None:
            headers["Content-Type"] = content_type
        return headers

    def _target(self, path: str, query: Query | None) -> str:
        target = self._endpoint.path_prefix + path
        if query:
            pairs = {key: _query_value(value) for key, value in query.items() if value is not None}
            if pairs:
                target += "?" + urlencode(pairs)
        return self._endpoint.base_url + target if self._endpoint.uses_proxy else target


def parse(data: bytes, what: str) -> Json:
    """The JSON document of an answer; :class:`Unavailable` when something in between answered otherwise."""
    try:
        document = read(data, what)
    except orjson.JSONDecodeError as error:
        raise Unavailable(f"{what}: the answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise Unavailable(f"{what}: the answer is no JSON object")
    return document


def _at_most(most_bytes: int, answer: Any) -> bytes:
    pieces, size = [], 0
    try:
        for piece in answer.stream(_MOST_AT_ONCE, decode_content=True):
            size += len(piece)
            if size > most_bytes:
                raise TooLargeError(f"more than {most_bytes} bytes")
            pieces.append(piece)
    except BaseException:
        answer.close()
        raise
    finally:
        answer.release_conn()  # closed or not: it has a place, and there are only so many
    return b"".join(pieces)


def _query_value(value: str | int | bool) -> str:  # noqa: FBT001 - a value, not a switch
    return str(value).lower() if isinstance(value, bool) else str(value)


def _opener(manager: Any, endpoint: Endpoint) -> Any:
    """What sends a request: the one pool itself, where no proxy's rules have to be gone through for each."""
    return (manager if endpoint.uses_proxy else manager.connection_from_url(endpoint.base_url)).urlopen


def _failure(what: str, limit_s: float, error: Exception) -> KubeError:
    """Ours for urllib3's. Its texts have host, port and path, never headers."""
    if isinstance(error, MaxRetryError) and error.reason is not None:
        error = error.reason
    if isinstance(error, EmptyPoolError):
        return Unavailable(f"{what}: not sent, no connection became free within {limit_s:.1f} s")
    if isinstance(error, HTTPTimeoutError) and not isinstance(error, ConnectTimeoutError):
        return RequestTimeout(f"{what}: no answer within {limit_s:.1f} s")
    return Unavailable(f"{what}: the API server was not reached or broke off: {error}")


def _time_to_write(fence: Fence, what: str) -> float:
    remaining_s = fence.remaining_s()
    if remaining_s < _MIN_WRITE_S:
        raise LeaseLost(f"{what}: held back, the lease was not renewed in time")
    return remaining_s


def _refusal(what: str, status: int, data: bytes, headers: Mapping[str, str]) -> KubeError:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        document = {"message": data[:500].decode("utf-8", "replace").strip() or f"HTTP status {status}"}
    body = document if isinstance(document, dict) else None
    retry_after_s = _retry_after_s(headers.get("Retry-After") or "")
    return error_of(status, body, context=what, retry_after_s=retry_after_s)


def _retry_after_s(text: str) -> float | None:
    """Seconds, as API servers say it; a date, or digits of other kinds (``²`` is one), says nothing."""
    if not (text.isascii() and text.isdigit()):
        return None
    return min(float(text), MOST_RETRY_AFTER_S)
