"""What a caller may see: the API server says who it is, and which namespaces' pods it may list."""

import hashlib
import threading
import time
from typing import Any, Final

from vc_egpu.admission.serving.questions import ANYWHERE
from vc_egpu.admission.serving.reviews import is_allowed, user_of
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.limits import TokenBucket

Json = dict[str, Any]
REMEMBER_S: Final = 60.0
REMEMBERED: Final = 1024
MOST_REVIEWS: Final = 24
"""Namespaces that one question asks about. Others count as hidden."""


class Caller:
    """One question's reader. Errors of the API server come out as they are: nobody sees more meanwhile."""

    def __init__(self, callers: "Callers", user: Json) -> None:
        self._callers, self._user = callers, user
        self._left = MOST_REVIEWS
        self._known: dict[str, bool] = {}

    def sees(self, namespace: str) -> bool:
        """Whether it may list the pods there."""
        if self._known.get(ANYWHERE):
            return True
        if namespace not in self._known:
            if self._left <= 0:
                return False
            self._left -= 1
            self._known[namespace] = self._callers.may_list(self._user, namespace)
        return self._known[namespace]


class Callers:
    """Asks and remembers. ``limit`` bounds the questions to the API server."""

    def __init__(self, api: ApiConnection, limit: TokenBucket) -> None:
        self._api, self._limit = api, limit
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}

    def caller(self, token: str) -> Caller | None:
        """Whose token it is; None where the API server does not know it."""
        key = ("", hashlib.sha256(token.encode()).hexdigest())
        user = self._remembered(key)
        if user is None:
            if not self._limit.try_take():
                return None
            user = user_of(self._api, token) or {}
            self._remember(key, user)
        if not user:
            return None
        found = Caller(self, user)
        found.sees(ANYWHERE)
        return found

    def may_list(self, user: Json, namespace: str) -> bool:
        """Whether this user may list the pods of a namespace, or of all."""
        key = (namespace or "*", repr((user.get("username"), user.get("uid"), user.get("groups"))))
        allowed = self._remembered(key)
        if allowed is None:
            if not self._limit.try_take():
                return False
            asked = {"verb": "list", "resource": "pods", "namespace": namespace}
            allowed = is_allowed(self._api, user, {"resourceAttributes": asked})
            self._remember(key, allowed)
        return bool(allowed)

    def _remembered(self, key: tuple[str, str]) -> Any:
        with self._lock:
            at, answer = self._answers.get(key, (float("-inf"), None))
        return answer if time.monotonic() - at < REMEMBER_S else None

    def _remember(self, key: tuple[str, str], answer: Any) -> None:
        with self._lock:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            self._answers[key] = (time.monotonic(), answer)
