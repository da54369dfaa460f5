"""Which requests are looked at, and the headers of every answer. Pure: values in, words out.

Another page in the same browser may send requests here, and a name that it controls may lead here. So the
``Host`` must be the page's own, and a request that another origin caused is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), usb=(), payment=()",
    "Cache-Control": "no-store",
}
"""On every answer, refusals too."""
FIRST_VISIT: Final = frozenset({"none", "same-origin"})
"""``Sec-Fetch-Site`` of what the user or this page did. The API is for this page alone."""


@dataclass(frozen=True, slots=True)
class Address:
    """Under which names the page is reached."""

    origins: frozenset[str]
    """``scheme://host:port``, without the port that belongs to the scheme."""

    @property
    def hosts(self) -> frozenset[str]:
        """What may stand in ``Host``."""
        return frozenset(origin.partition("://")[2] for origin in self.origins)

    @property
    def is_secure(self) -> bool:
        """Whether all of it is https: then cookies are for https alone."""
        return all(origin.startswith("https://") for origin in self.origins)


def address_of(*urls: str) -> Address:
    """The address of a page that has these URLs."""
    return Address(frozenset(f"{(parts := urlsplit(url)).scheme}://{parts.netloc.lower()}" for url in urls))


def refusal(address: Address, method: str, path: str, headers: Mapping[str, str]) -> str:
    """Why a request is not looked at; empty where it is.

    A POST must say where it comes from, since it changes who is signed in. Links from elsewhere may lead to
    the page itself, and to nothing else.
    """
    if headers.get("Host", "").lower() not in address.hosts:
        return "this host name does not lead here"
    origin = headers.get("Origin")
    if origin is not None and origin not in address.origins:
        return "another origin asks"
    if method == "POST" and origin is None:
        return "a POST without an origin"
    site = headers.get("Sec-Fetch-Site", "none")
    if path.startswith("/api/") and site not in FIRST_VISIT:
        return "another site asks"
    return ""
