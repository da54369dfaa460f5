"""An API server that knows users by their tokens, and what each of them may do."""

from typing import Any

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import TOKEN_REVIEWS, Resource
from vc_egpu.kube.wire.errors import Unavailable

Ask = tuple[str, str, str]
"""Verb, plural and namespace; an empty one: all of them."""


class RightsApi(ApiConnection):
    """``rights`` by user; a user's name is the token, too."""

    def __init__(self, rights: dict[str, set[Ask]]) -> None:
        self.rights = rights
        self.away = False

    def create(
        self,
        resource: Resource,
        body: dict[str, Any],
        namespace: str | None = None,
        *,
        subresource: tuple[str, str] | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, Any]:
        if self.away:
            raise Unavailable("away")
        spec = body["spec"]
        if resource is TOKEN_REVIEWS:
            name = spec["token"]
            known = name in self.rights
            return {"status": {"authenticated": known, "user": {"username": name} if known else {}}}
        asked = spec["resourceAttributes"]
        own = self.rights[spec["user"]]
        places = (asked["namespace"], "")
        return {"status": {"allowed": any((asked["verb"], asked["resource"], one) in own for one in places)}}
