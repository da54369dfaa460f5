"""The admission controller that leads: found among its replicas, and asked with the caller's own token."""

import logging
import socket
from collections.abc import Sequence
from typing import Final, TypeVar
from urllib.parse import urlencode, urlsplit

import orjson
import urllib3
from pydantic import BaseModel, ValidationError

from vc_egpu.jobsapi.what_if.documents import Json, WhatIfAnswer
from vc_egpu.jobsapi.what_if.view import ViewAnswer

PATH: Final = "/v1/what-if"
VIEW_PATH: Final = "/v1/view"
CONNECT_S: Final = 2.0
MOST_ANSWER_BYTES: Final = 1 << 25
"""A view has a row for each card: answers of large clusters have megabytes."""
NOT_LEADING: Final = "this replica does not lead"
"""How a replica begins its answer that does not lead."""
_SAME: Final = frozenset({400, 403, 429})
"""What a leader refuses with is told with the same status."""

_Answer = TypeVar("_Answer", bound=BaseModel)

logger = logging.getLogger(__name__)


class LeaderError(Exception):
    """There is no answer; the text says why, for the caller."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """Our answer has it."""


class Leader:
    """Thread-safe. ``url`` is that of all replicas: its name has their addresses. Empty: there is no way."""

    def __init__(self, url: str, timeout_s: float = 15.0) -> None:
        parts = urlsplit(url)
        if url and (parts.scheme != "http" or not parts.hostname or not parts.port):
            raise ValueError(f"{url!r} is not http://HOST:PORT")
        self._host, self._port = parts.hostname or "", parts.port or 0
        self._last = ""
        timeout = urllib3.Timeout(connect=CONNECT_S, read=timeout_s)
        self._pool = urllib3.PoolManager(retries=False, timeout=timeout)

    def ask(self, token: str, job: Json, changes: list[Json]) -> WhatIfAnswer:
        """What would happen, for the bearer of this token. Raises :class:`LeaderError`."""
        body = orjson.dumps({"job": job, "changes": changes})
        return _read(WhatIfAnswer, self._found("POST", PATH, token, body))

    def view(self, token: str, namespaces: Sequence[str]) -> ViewAnswer:
        """What the bearer of this token may see. Raises :class:`LeaderError`.

        ``namespaces`` are those that it wants to see; empty: those that the controller thinks of.
        """
        query = f"?{urlencode({'namespaces': ','.join(namespaces)})}" if namespaces else ""
        return _read(ViewAnswer, self._found("GET", VIEW_PATH + query, token, b""))

    def _found(self, method: str, path: str, token: str, body: bytes) -> bytes:
        if not self._host:
            raise LeaderError(404, "this server has no way to the admission controller (its flag --leader)")
        for address in self._addresses():
            found = self._asked(address, method, path, token, body)
            if found is not None:
                self._last = address
                return found
        raise LeaderError(503, "no admission controller that leads was found; ask again in some seconds")

    def _addresses(self) -> list[str]:
        """The one that led last comes first."""
        try:
            found = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise LeaderError(503, "the admission controller has no address at present") from error
        each = dict.fromkeys(str(entry[4][0]) for entry in found)
        return sorted(each, key=lambda address: address != self._last)

    def _asked(self, address: str, method: str, path: str, token: str, body: bytes) -> bytes | None:
        """The answer as it came. None: another replica may lead."""
        host = f"[{address}]" if ":" in address else address
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        try:
            with self._pool.request(
                method,
                f"http://{host}:{self._port}{path}",
                body=body or None,
                headers=headers,
                redirect=False,
                preload_content=False,
            ) as answer:
                status, data = answer.status, answer.read(MOST_ANSWER_BYTES)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise LeaderError(504, "the admission controller did not answer in time") from error
        except urllib3.exceptions.HTTPError as error:
            logger.info("%s: %s", host, error)
            return None
        if status == 200:
            return data
        text = data.decode(errors="replace").strip()
        if status == 503:
            if text.startswith(NOT_LEADING):
                return None
            raise LeaderError(503, text)
        raise LeaderError(status if status in _SAME else 502, text)


def _read(kind: type[_Answer], data: bytes) -> _Answer:
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise LeaderError(502, "the admission controller's answer is none of ours") from error
