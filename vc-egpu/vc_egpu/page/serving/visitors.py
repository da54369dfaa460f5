"""Whose request it is: each visitor has a connection with their own credentials and a live copy.

A token is kept in memory only, under the hash of itself. The browser has a cookie with a random number.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

from vc_egpu.kube import ApiConnection, TokenBucket
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.page.cluster.live import LiveCluster
from vc_egpu.page.cluster.others import AskOthers

MOST_TOKEN: Final = 16 * 1024
MOST_TABS: Final = 16
"""Streams of one visitor at the same time."""
REQUESTS_PER_S: Final = 20.0
BURST: Final = 80
LONGEST_S: Final = 12 * 3600.0
"""After this a visitor signs in again, however busy."""
CHECK_S: Final = 60.0
"""So often is the API server asked whether a token is still good."""


class TooManyVisitorsError(Exception):
    """There is no room for another user."""


class Visitor:
    """One user: who it is for the API server, and what it sees. ``others``: see :class:`LiveCluster`."""

    def __init__(
        self, api: ApiConnection, user: str, namespaces: tuple[str, ...], others: AskOthers | None = None
    ) -> None:
        self.api = api
        self._others = others
        self.user = user
        self.namespaces = namespaces
        self.bucket = TokenBucket(REQUESTS_PER_S, BURST)
        self.tabs = 0
        self.closed = False
        self.since = self.seen = self.checked = time.monotonic()
        self._lock = threading.Lock()
        self._live: LiveCluster | None = None

    def live(self) -> LiveCluster:
        """The live copy. It is made at the first look, and again where its rights had changed."""
        with self._lock:
            if self._live is not None and self._live.ended == "rights":
                threading.Thread(target=self._live.stop, daemon=True).start()
                self._live = None
            if self._live is None:
                self._live = LiveCluster(self.api, self.namespaces, self._others).start()
            return self._live

    @property
    def ended(self) -> str:
        """Why its copy tells nothing any more; empty while it does, or where it was not asked for."""
        with self._lock:
            return self._live.ended if self._live is not None else ""

    def close(self) -> None:
        """End its watches and its connections."""
        self.closed = True
        with self._lock:
            live, self._live = self._live, None
        if live is not None:
            live.stop()
        self.api.close()

    def is_expired(self, now: float, idle_s: float) -> bool:
        """Whether to forget it."""
        return (not self.tabs and now - self.seen > idle_s) or now - self.since > LONGEST_S


def user_of(api: ApiConnection) -> str:
    """What the API server calls the bearer of this connection's credentials. Raises :class:`KubeError`."""
    info = (api.own_review().get("status") or {}).get("userInfo") or {}
    return str(info.get("username") or "")[:256]


class Visitors:
    """All users that are signed in. ``connect`` makes a connection with a token, and ``others`` a way to
    ask what others hold."""

    def __init__(
        self,
        connect: Callable[[str], ApiConnection],
        *,
        most: int,
        idle_s: float,
        others: Callable[[str], AskOthers] | None = None,
    ) -> None:
        self._connect = connect
        self._others = others
        self._most = most
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._by_token: dict[str, Visitor] = {}
        self._cookies: dict[str, str] = {}
        """Hash of a cookie's value to hash of the token."""

    def sign_in(self, token: str, namespaces: tuple[str, ...] = ()) -> str:
        """Ask the API server for the bearer of this token; returns the value of a cookie.

        Raises :class:`KubeError` where the token is not good, and :class:`TooManyVisitorsError`.
        """
        self.bearer(token, namespaces)
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._cookies[_hash(cookie)] = _hash(token)
        return cookie

    def bearer(self, token: str, namespaces: tuple[str, ...] = ()) -> Visitor:
        """The visitor of this token; a new one is asked for first. Raises as :meth:`sign_in`."""
        key = _hash(token)
        with self._lock:
            known = self._by_token.get(key)
        if known is not None and (not namespaces or namespaces == known.namespaces):
            known.seen = time.monotonic()
            return known
        api = self._connect(token)
        try:
            others = self._others(token) if self._others is not None else None
            fresh = Visitor(api, user_of(api), namespaces, others)
        except KubeError:
            api.close()
            raise
        self.forget_idle()
        with self._lock:
            if key not in self._by_token and len(self._by_token) >= self._most:
                api.close()
                raise TooManyVisitorsError
            former = self._by_token.get(key)
            self._by_token[key] = fresh
        if former is not None:
            former.close()
        return fresh

    def of_cookie(self, cookie: str) -> Visitor | None:
        """The visitor that signed in with this cookie."""
        with self._lock:
            visitor = self._by_token.get(self._cookies.get(_hash(cookie), ""))
        if visitor is not None:
            visitor.seen = time.monotonic()
        return visitor

    def sign_out(self, cookie: str) -> None:
        """Forget the cookie; the token too, where no other cookie is for it."""
        with self._lock:
            key = self._cookies.pop(_hash(cookie), "")
            last = key not in self._cookies.values()
            visitor = self._by_token.pop(key, None) if last else None
        if visitor is not None:
            visitor.close()

    def forget(self, visitor: Visitor) -> None:
        """Its token is no longer good."""
        with self._lock:
            keys = [key for key, known in self._by_token.items() if known is visitor]
            for key in keys:
                del self._by_token[key]
            self._cookies = {one: key for one, key in self._cookies.items() if key in self._by_token}
        visitor.close()

    def forget_idle(self) -> None:
        """Forget those that have not looked for long."""
        now = time.monotonic()
        with self._lock:
            late = [one for one in self._by_token.values() if one.is_expired(now, self._idle_s)]
        for visitor in late:
            self.forget(visitor)

    def count(self) -> int:
        """How many there are."""
        with self._lock:
            return len(self._by_token)

    def all(self) -> list[Visitor]:
        """All of them."""
        with self._lock:
            return list(self._by_token.values())


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
