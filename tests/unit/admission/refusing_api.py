"""The API server of the tests without a socket. It refuses at random: once, or the same write each time."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from unit.admission.build import Json
from unit.kube.tiny_api import TinyApi, status
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import LeaseLost, error_of
from vc_egpu.kube.wire.transport import JSON, READ_METHODS, Fence, Query, Transport

ONCE = (
    (409, "Conflict"),
    (404, "NotFound"),
    (429, "TooManyRequests"),
    (503, "ServiceUnavailable"),
    (504, "Timeout"),
    (422, "Invalid"),
    (403, "Forbidden"),
)
"""A refusal of one request: stale, temporary, or for the object as it is."""
STANDING = ((422, "Invalid"), (403, "Forbidden"), (404, "NotFound"))
"""What is answered to the same write each time, until the trouble is over."""
LIE = 404
"""No server answers a read so while the object is there."""
WRITES = (
    ("PATCH", "/pods/", "cards"),
    ("PATCH", "/pods/", "suspend"),
    ("PATCH", "/pods/", "out-of-sync"),
    ("PATCH", "/pods/", "conditions"),
    ("PATCH", "/podgroups/", "egpu.volcano.sh/plan"),
    ("PATCH", "/podgroups/", "rolled-back"),
    ("PATCH", "/podgroups/", "conditions"),
    ("PATCH", "/podgroups/", ""),
    ("PATCH", "/pods/", ""),
    ("POST", "/eviction", ""),
    ("GET", "/pods/", ""),
    ("GET", "/podgroups/", ""),
)
"""(verb, part of the path, part of the body)"""


@dataclass
class Refusals:
    """Draws what is refused. Between two runs with one seed nothing differs."""

    draw: random.Random
    chance: float
    """Of each request to be refused once."""
    standing: list[tuple[str, str, str, str, tuple[int, str]]] = field(default_factory=list)
    """(verb, part of the path, part of the body, name of the object or nothing, answer)"""
    are_over: bool = False
    lost: int = 0
    """Writes that happened although the answer says that nothing is known of them."""

    def begin(self, names: list[str]) -> None:
        """From now on a kind of write is refused: of all objects, or of one."""
        verb, path, body = self.draw.choice(WRITES)
        name = self.draw.choice([*names, ""])
        self.standing.append((verb, path, body, name, self.draw.choice(STANDING)))

    def end(self) -> None:
        """One of them is refused no more."""
        if self.standing:
            self.standing.pop(self.draw.randrange(len(self.standing)))

    def refuse(self, method: str, path: str, body: Any) -> tuple[int, Json] | None:
        """The answer instead of the usual one."""
        if self.are_over:
            return None
        text = str(body)
        for verb, part, said, name, (code, reason) in self.standing:
            hit = method == verb and part in path and said in text
            if hit and (not name or f"/{name}" in path.partition("?")[0]):
                if code == LIE and method in READ_METHODS:
                    return None
                return code, status(code, reason, "a policy says no")
        if self.draw.random() >= self.chance:
            return None
        code, reason = self.draw.choice(ONCE)
        if code == LIE and method in READ_METHODS:
            return None
        return code, status(code, reason, "by chance")

    def loses(self, method: str) -> bool:
        """Whether a write happens, and its answer is lost."""
        lost = not self.are_over and method not in READ_METHODS and self.draw.random() < self.chance / 3
        self.lost += lost
        return lost


class InMemory(Transport):
    """Exchanges with such a server. Events are taken and not kept: another thread sends them."""

    def __init__(self, server: TinyApi, refusals: Refusals, evicted: Callable[[str], None]) -> None:
        self._server = server
        self._refusals = refusals
        self._evicted = evicted

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
        if "/events" in path:
            return b"{}"
        if fence is not None and method not in READ_METHODS and fence.remaining_s() <= 0:
            raise LeaseLost("the lease is lost")
        asked = "&".join(f"{key}={value}" for key, value in (query or {}).items() if value is not None)
        full = f"{path}?{asked}" if asked else path
        with self._server.lock:
            document = orjson.loads(orjson.dumps(body)) if body is not None else None
            self._server.requests.append((method, full, document))
            code, answer = self._server.answer(method, full, document)
        if code >= 400:
            raise error_of(code, answer, context=f"{method} {path}")
        if path.endswith("/eviction") and document is not None and "dryRun" not in document["deleteOptions"]:
            self._evicted(path.removesuffix("/eviction"))
        if self._refusals.loses(method):
            raise error_of(503, status(503, "ServiceUnavailable", "its answer is lost"))
        data: bytes = orjson.dumps(answer)
        return data

    def close(self) -> None:
        """Nothing is open."""


def connected(server: TinyApi, refusals: Refusals, evicted: Callable[[str], None]) -> ApiConnection:
    """A connection to this server. ``evicted`` is told the path of each pod that is evicted."""
    server.refuses = refusals.refuse
    return ApiConnection(InMemory(server, refusals, evicted))
