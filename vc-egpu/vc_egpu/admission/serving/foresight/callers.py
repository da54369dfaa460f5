"""What a caller may ask and see: the API server says who it is, where it may make Jobs and list pods."""

import hashlib
import threading
import time
from typing import Any, Final

from vc_egpu.admission.serving.foresight.questions import ANYWHERE
from vc_egpu.admission.serving.reviews import is_allowed, user_of
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS, VOLCANO_JOBS, Resource
from vc_egpu.kube.wire.limits import TokenBucket

Json = dict[str, Any]
QUESTIONS_PER_S: Final = 0.2
"""One caller may ask so often: others get their turn."""
QUESTIONS_AT_ONCE: Final = 5
REMEMBER_S: Final = 60.0
REMEMBERED: Final = 1024
MOST_REVIEWS: Final = 24
"""Namespaces that one question asks about. Others count as hidden."""


class BusyError(Exception):
    """So many are asked about already that the API server is not asked now."""


class Caller:
    """One question's reader. Errors of the API server come out as they are: nobody sees more meanwhile."""

    def __init__(self, callers: "Callers", user: Json) -> None:
        self._callers, self._user = callers, user
        self._left = MOST_REVIEWS
        self._known: dict[str, bool] = {}

    def may_submit(self, namespace: str) -> bool:
        """Whether it may make Jobs there. Raises :class:`BusyError`."""
        allowed = self._callers.may(self._user, "create", VOLCANO_JOBS, namespace)
        if allowed is None:
            raise BusyError
        return allowed

    def may_ask_now(self) -> bool:
        """Take one of the questions that this caller may ask in a while."""
        return self._callers.ration(str(self._user.get("username"))).try_take()

    def sees(self, namespace: str) -> bool:
        """Whether it may list the pods there."""
        if self._known.get(ANYWHERE):
            return True
        if namespace not in self._known:
            if self._left <= 0:
                return False
            self._left -= 1
            self._known[namespace] = bool(self._callers.may(self._user, "list", PODS, namespace))
        return self._known[namespace]


class Callers:
    """Asks and remembers. ``limit`` bounds the questions to the API server."""

    def __init__(self, api: ApiConnection, limit: TokenBucket) -> None:
        self._api, self._limit = api, limit
        self._rations: dict[str, TokenBucket] = {}
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}

    def caller(self, token: str) -> Caller | None:
        """Whose token it is; None where the API server does not know it. Raises :class:`BusyError`."""
        key = ("", hashlib.sha256(token.encode()).hexdigest())
        user = self._remembered(key)
        if user is None:
            if not self._limit.try_take():
                raise BusyError
            user = user_of(self._api, token) or {}
            self._remember(key, user)
        if not user:
            return None
        found = Caller(self, user)
        found.sees(ANYWHERE)
        return found

    def may(self, user: Json, verb: str, resource: Resource, namespace: str) -> bool | None:
        """Whether this user may do that in a namespace, or in all; None: too much is asked at present."""
        who = repr((user.get("username"), user.get("uid"), user.get("groups")))
        key = (f"{verb} {resource.plural} {namespace or '*'}", who)
        allowed = self._remembered(key)
        if allowed is None:
            if not self._limit.try_take():
                return None
            asked = {
                "verb": verb,
                "group": resource.group,
                "resource": resource.plural,
                "namespace": namespace,
            }
            allowed = is_allowed(self._api, user, {"resourceAttributes": asked})
            self._remember(key, allowed)
        return bool(allowed)

    def ration(self, name: str) -> TokenBucket:
        """What this user may ask in a while."""
        with self._lock:
            if name not in self._rations:
                if len(self._rations) >= REMEMBERED:
                    self._rations.clear()
                self._rations[name] = TokenBucket(QUESTIONS_PER_S, QUESTIONS_AT_ONCE)
            return self._rations[name]

    def _remembered(self, key: tuple[str, str]) -> Any:
        with self._lock:
            at, answer = self._answers.get(key, (float("-inf"), None))
        return answer if time.monotonic() - at < REMEMBER_S else None

    def _remember(self, key: tuple[str, str], answer: Any) -> None:
        with self._lock:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            self._answers[key] = (time.monotonic(), answer)
