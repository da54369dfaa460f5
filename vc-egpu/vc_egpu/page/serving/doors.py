"""Two ways in: the secret URL of ``kubectl egpu ui``, and a token or a proxy for a page of several users."""

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from typing import Final, Protocol

from vc_egpu.page.serving.visitors import MOST_TOKEN, Visitor, Visitors
from vc_egpu.page.settings import Network

_SECURE_COOKIE: Final = "__Host-egpu-ui"
"""A browser takes a cookie of such a name over https alone, and no other host can set it."""


class Door(Protocol):
    """Says whose request it is."""

    cookie: str
    """The name of its cookie."""
    takes_tokens: bool
    """Whether users sign in here with a token."""

    def visitor(self, peer: str, cookie: str, headers: Mapping[str, str], /) -> Visitor | None:
        """The visitor behind a request; None: nobody is signed in. It may ask the API server.

        Raises :class:`~vc_egpu.kube.wire.errors.KubeError` and :class:`~.visitors.TooManyVisitorsError`.
        """
        ...

    def passed_on(self, peer: str, headers: Mapping[str, str], /) -> str:
        """The token that a proxy sent; empty where none did."""
        ...

    def exchange(self, secret: str, /) -> str:
        """The value of a cookie for the secret of a URL; empty where it is none."""
        ...


class SecretDoor:
    """A secret URL for one user on their own machine.

    Its other users may reach the port, and do not know the secret.
    """

    takes_tokens = False

    def __init__(self, port: int) -> None:
        self.secret = secrets.token_urlsafe(24)
        self.cookie = f"egpu-ui-{port}"  # browsers give the cookies of one port to all others of its host
        self._value = secrets.token_urlsafe(32)

    def knows(self, cookie: str) -> bool:
        """Whether this is the cookie that the secret was exchanged for."""
        return hmac.compare_digest(cookie.encode(), self._value.encode())

    def passed_on(self, _peer: str, _headers: Mapping[str, str]) -> str:
        """No proxy is known here."""
        return ""

    def exchange(self, secret: str) -> str:
        """As :class:`Door` says; a link may be used again as long as the command runs."""
        return self._value if hmac.compare_digest(secret.encode(), self.secret.encode()) else ""


class LocalDoor(SecretDoor):
    """One user and one cluster."""

    def __init__(self, visitor: Visitor, port: int) -> None:
        super().__init__(port)
        self._visitor = visitor

    def visitor(self, _peer: str, cookie: str, _headers: Mapping[str, str]) -> Visitor | None:
        """The user, for the cookie that the secret was exchanged for."""
        return self._visitor if self.knows(cookie) and not self._visitor.closed else None


class SharedDoor:
    """Several users: a cookie from the sign-in, or the token that a proxy of a named network passes on."""

    takes_tokens = True

    def __init__(
        self, visitors: Visitors, *, is_secure: bool, proxies: tuple[Network, ...], proxy_header: str
    ) -> None:
        self.cookie = _SECURE_COOKIE if is_secure else "egpu-ui"
        self._visitors = visitors
        self._proxies = proxies
        self._proxy_header = proxy_header

    def visitor(self, peer: str, cookie: str, headers: Mapping[str, str]) -> Visitor | None:
        """As :class:`Door` says. The header counts from a proxy alone; anybody else might have written it."""
        if (token := self.passed_on(peer, headers)) and len(token) <= MOST_TOKEN:
            return self._visitors.bearer(token)
        return self._visitors.of_cookie(cookie) if cookie else None

    def passed_on(self, peer: str, headers: Mapping[str, str]) -> str:
        """The token that a proxy sent; empty where none did."""
        if not self._proxies or not _is_among(peer, self._proxies):
            return ""
        return headers.get(self._proxy_header, "").removeprefix("Bearer ").strip()

    def exchange(self, _secret: str) -> str:
        """There is no secret URL here."""
        return ""


def _is_among(peer: str, networks: tuple[Network, ...]) -> bool:
    try:
        address = ipaddress.ip_address(peer.partition("%")[0].removeprefix("::ffff:"))
    except ValueError:
        return False
    return any(address in network for network in networks)
