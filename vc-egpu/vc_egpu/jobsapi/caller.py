"""Whose request it is: the token that came with it, and the namespace of its service account. Pure.

Nothing here says that a token is good. The API server does, with the request that the token goes out with.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import orjson

from vc_egpu.jobsapi.request import RequestError

MOST_TOKEN: Final = 16 * 1024
LIMIT: Final = f"Authorization: Bearer TOKEN, at most {MOST_TOKEN} signs without spaces"


class NoTokenError(RequestError):
    """A request without a token that can be sent on."""

    def __init__(self, message: str) -> None:
        super().__init__("Authorization", message, LIMIT)


def token_of(headers: Mapping[str, str]) -> str:
    """The bearer token of a request. Raises :class:`NoTokenError`."""
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise NoTokenError("no bearer token came with the request")
    if len(token) > MOST_TOKEN or not (token.isascii() and token.isprintable()) or " " in token:
        raise NoTokenError("this is no token")
    return token


def own_namespace(token: str) -> str:
    """The namespace that the token of a service account names; empty for any other token.

    Nobody has checked the token yet. A forged one names any namespace, and opens none.
    """
    parts = token.split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return ""
    kubernetes: Any = claims.get("kubernetes.io") if isinstance(claims, dict) else None
    namespace = kubernetes.get("namespace") if isinstance(kubernetes, dict) else None
    return namespace if isinstance(namespace, str) else ""
