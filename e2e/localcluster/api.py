"""Just enough of a Kubernetes client to bring a cluster up: JSON over one TLS connection per thread."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from localcluster.errors import LocalClusterError
from localcluster.patience import VARIABLE, stretched
from localcluster.pki import Authority, KeyPair

_TIMEOUT_S = 15.0
_FIELD_MANAGER = "vc-egpu-localcluster"


class ApiError(LocalClusterError):
    """An answer other than 2xx; ``status`` is the HTTP status, 0 where there was no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """Client of one API server. Safe to use from several threads."""

    def __init__(self, server: str, authority: Authority, user: KeyPair) -> None:
        parts = urlsplit(server)
        if parts.hostname is None or parts.port is None:
            raise LocalClusterError(f"server {server!r}: https://<host>:<port> is needed")
        self._address = (parts.hostname, parts.port)
        self._tls = ssl.create_default_context(cafile=authority.pair.certificate)
        self._tls.load_cert_chain(user.certificate, user.key)
        self._local = threading.local()

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            host, port = self._address
            connection = http.client.HTTPSConnection(
                host, port, context=self._tls, timeout=stretched(_TIMEOUT_S)
            )
            self._local.connection = connection
        return connection

    def _drop(self) -> None:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def close(self) -> None:
        """Close this thread's connection."""
        self._drop()

    def request(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> Any:
        """One request; returns the decoded answer (text where it is no JSON)."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "Content-Type": content_type}
        connection = self._connection()
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            raise ApiError(0, f"{method} {path}: {error}") from error
        if response.status >= 300:
            raise ApiError(response.status, f"{method} {path}: {response.status} {_message(text)}")
        try:
            return json.loads(text)
        except ValueError:
            return text.decode(errors="replace")

    def get(self, path: str) -> Any:
        """Read one object or list."""
        return self.request("GET", path)

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object; it may exist already."""
        try:
            return self.request("POST", path, body)
        except ApiError as error:
            if error.status != 409:
                raise
            return None

    def apply(self, path: str, body: Mapping[str, Any]) -> Any:
        """Server-side apply; ``path`` ends with the object's name."""
        url = f"{path}?fieldManager={_FIELD_MANAGER}&force=true"
        return self.request("PATCH", url, body, "application/apply-patch+yaml")

    def create_all(self, path: str, bodies: Iterable[Mapping[str, Any]], threads: int = 16) -> int:
        """Create many objects of one collection at once; returns how many."""
        items = list(bodies)
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda body: self.create(path, body), items):
                pass
        return len(items)

    def ready(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            self.request("GET", "/readyz")
        except ApiError:
            return False
        return True


def wait_until(
    what: str, check: Callable[[], bool], timeout_s: float, alive: Callable[[], None] | None = None
) -> None:
    """Poll ``check`` until it holds; ``alive`` may raise when there is no use in waiting longer.

    ``timeout_s`` is that of a usual machine: see :mod:`localcluster.patience`.
    """
    timeout_s = stretched(timeout_s)
    deadline = time.monotonic() + timeout_s
    pause_s = 0.02
    while not check():
        if alive is not None:
            alive()
        if time.monotonic() > deadline:
            raise LocalClusterError(
                f"{what} did not happen within {timeout_s:.0f} s ({VARIABLE}=10 waits longer)"
            )
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 0.25)


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:500]
