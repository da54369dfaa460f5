"""Probes, metrics, and a read-only view for the command line.

``/healthz`` and ``/readyz`` are open to all clients that reach the port. ``/v1/view`` and ``/v1/what-if``
tell each caller what that one may see. ``/metrics``, the pages below it and ``/v1/snapshot`` tell names of
tenants' pods. They are open from the machine itself: a port-forward ends there, and has its own RBAC. From
elsewhere they need a bearer token that may ``get`` that non-resource URL.
TokenReview and SubjectAccessReview decide that, and the answer holds for a minute. A reader that was allowed
stays so for five while the API server is away or the limit of questions is reached.
"""

import hashlib
import ipaddress
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from vc_egpu.admission.loop import Loop
from vc_egpu.admission.serving.callers import Callers
from vc_egpu.admission.serving.foresight import what_if
from vc_egpu.admission.serving.foresight.what_if import WhatIf
from vc_egpu.admission.serving.metrics import PROCESS, Level1
from vc_egpu.admission.serving.redacted import edge
from vc_egpu.admission.serving.redacted.edge import ViewEdge
from vc_egpu.admission.serving.reviews import is_allowed, user_of
from vc_egpu.admission.serving.snapshot import document
from vc_egpu.admission.settings import Settings
from vc_egpu.admission.view import View
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.server import Answer, GetServer, Request, check_page
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.kube.wire.limits import TokenBucket
from vc_egpu.metrics.text import CONTENT_TYPE
from vc_egpu.report import snapshot_codec

REMEMBER_S: Final = 60.0
"""How long an answer holds without another question."""
AT_MOST_S: Final = 300.0
"""How long a reader that was allowed stays so while no question can be asked."""
REMEMBERED: Final = 256
"""Answers that are kept of each kind."""
_REVIEWS_PER_S: Final = 5.0
"""A reader that sends ever new tokens must not use up what the API server allows this process."""

logger = logging.getLogger(__name__)
Json = dict[str, Any]


class Access:
    """Which readers may read what; answers are remembered by a hash of the token.

    ``limit`` bounds the questions to the API server.
    """

    def __init__(self, api: ApiConnection, limit: TokenBucket | None = None) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._known: dict[bool, dict[tuple[str, str], float]] = {True: {}, False: {}}
        """When a reader was allowed, and when refused: refusals push no allowed reader out."""
        self._limit = limit if limit is not None else TokenBucket(_REVIEWS_PER_S, 10)

    def allows(self, client: str, authorization: str, path: str) -> bool:
        """Whether this client may GET this path."""
        if ipaddress.ip_address(client.partition("%")[0]).is_loopback:
            return True
        token = authorization.removeprefix("Bearer ").strip()
        if not token or token == authorization:
            return False
        key = (hashlib.sha256(token.encode()).hexdigest(), path)
        now = time.monotonic()
        with self._lock:
            allowed_at, refused_at = (self._known[answer].get(key, float("-inf")) for answer in (True, False))
        if now - max(allowed_at, refused_at) < REMEMBER_S:
            return allowed_at > refused_at
        lately = now - allowed_at < AT_MOST_S
        if not self._limit.try_take():
            return lately
        try:
            allowed = self._ask(token, path)
        except KubeError as error:
            logger.warning("a reader of %s could not be checked: %s", path, error)
            return lately
        self._remember(key, now, allowed=allowed)
        return allowed

    def _remember(self, key: tuple[str, str], now: float, *, allowed: bool) -> None:
        with self._lock:
            self._known[not allowed].pop(key, None)
            if len(self._known[allowed]) >= REMEMBERED:
                self._known[allowed].clear()
            self._known[allowed][key] = now

    def _ask(self, token: str, path: str) -> bool:
        user = user_of(self._api, token)
        if user is None:
            return False
        return is_allowed(self._api, user, {"nonResourceAttributes": {"path": path, "verb": "get"}})


class Server:
    """Serves on a thread of its own. ``loop`` gives the leader's loop, or None on a standby."""

    def __init__(self, api: ApiConnection, settings: Settings, loop: Callable[[], Loop | None]) -> None:
        self._access = Access(api)
        self._loop = loop
        self._level1 = Level1(self._view_for_metrics, shares=settings.share_metrics, rests=self.rests)
        self._last: tuple[Loop, View] | None = None
        self._server: GetServer | None = None
        self._redacted: ViewEdge | None = None
        if settings.port >= 0:
            callers = Callers(api)
            asked = WhatIf(api, self.view, rests=self.rests, callers=callers)
            self._redacted = ViewEdge(callers, self.view, rests=self.rests)
            self._server = GetServer(
                (settings.bind_address, settings.port), self.answer, posts={what_if.PATH: asked.answer}
            )

    @property
    def port(self) -> int:
        """The port it listens on; -1 without a server."""
        return self._server.port if self._server is not None else -1

    def start(self) -> None:
        """Begin to serve."""
        if self._server is not None:
            self._server.start()
            self._level1.start()

    def stop(self) -> None:
        """Serve no longer."""
        if self._server is not None:
            self._level1.stop()
            self._server.stop()

    def view(self) -> View | None:
        """A moment of the cluster, where this process leads."""
        loop = self._loop()
        return loop.view() if loop is not None else None

    def rests(self, timeout_s: float) -> bool:
        """Wait until no decision is under way; whether that came in time."""
        loop = self._loop()
        return loop is None or loop.rests(timeout_s)

    def _view_for_metrics(self) -> View | None:
        """The same. While a long decision is made, it is the moment that was seen last."""
        loop, last = self._loop(), self._last
        if loop is None:
            self._last = None
            return None
        view = loop.view()
        if view is not None:
            self._last = loop, view
            return view
        return last[1] if last is not None and last[0] is loop else None

    def answer(self, request: Request) -> Answer:
        """What a GET gets."""
        if request.path in {"/healthz", "/readyz"}:
            loop = self._loop()
            return check_page("" if loop is None or loop.alive() else "the loop does not turn")
        if request.path == edge.PATH and self._redacted is not None:
            return self._redacted.answer(request)
        return self._page(request)

    def _page(self, request: Request) -> Answer:
        """A page that names what is of tenants."""
        path, client, authorization, takes_gzip = request[:4]
        if path not in {*self._level1.paths, "/v1/snapshot"}:
            return Answer(
                404, f"/healthz /readyz {' '.join(self._level1.paths)} /v1/snapshot {edge.PATH}\n".encode()
            )
        if not self._access.allows(client, authorization, path):
            return Answer(403, f"needs a bearer token that may get {path}\n".encode())
        if path in self._level1.paths:
            packed = takes_gzip and path != PROCESS
            body = self._level1.answer(path, gzip=packed)
            return Answer(200, body, CONTENT_TYPE, "gzip" if packed else "")
        view = self.view()
        if view is None:
            return check_page("this replica does not lead")
        return Answer(200, snapshot_codec.to_json(document(view)), "application/json")
