"""What a caller may ask and see: the API server says who it is, where it may make Jobs and list pods.

From the machine itself, where a port-forward ends, a request without a token sees everything.
"""

import hashlib
import ipaddress
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from vc_egpu.admission.serving.reviews import is_allowed, user_of
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS, VOLCANO_JOBS, Resource
from vc_egpu.kube.server import Request
from vc_egpu.kube.wire.limits import TokenBucket

Json = dict[str, Any]
Sees = Callable[[str], bool]
"""Whether the reader may list the pods of a namespace; of :data:`ANYWHERE`, of all."""
QUESTIONS_PER_S: Final = 0.2
"""One caller may ask so often."""
QUESTIONS_AT_ONCE: Final = 5
ANYWHERE: Final = ""
"""In place of a namespace: all of them."""
REMEMBER_S: Final = 60.0
REMEMBERED: Final = 1024
_REVIEWS_PER_S: Final = 10.0
_REVIEWS_AT_ONCE: Final = 40
MOST_REVIEWS: Final = 24
"""Namespaces that one question asks about. Others count as hidden."""


class BusyError(Exception):
    """So many are asked about already that the API server is not asked now."""


class Reader(Protocol):
    """What a caller may."""

    @property
    def name(self) -> str:
        """As the API server calls it; empty for a request from the machine itself."""
        ...

    @property
    def is_short(self) -> bool:
        """Whether something counted as hidden since it could not be asked about."""
        ...

    def sees(self, namespace: str) -> bool:
        """Whether it may know the names of what runs there."""
        ...

    def may_submit(self, namespace: str) -> bool:
        """Whether it may make Jobs there."""
        ...

    def lists(self, resource: Resource) -> bool:
        """Whether it may list all objects of a kind that has no namespaces."""
        ...


class Operator:
    """A request from the machine itself."""

    name = ""
    is_short = False

    def sees(self, _namespace: str) -> bool:
        """All."""
        return True

    def may_submit(self, _namespace: str) -> bool:
        """Anywhere."""
        return True

    def lists(self, _resource: Resource) -> bool:
        """All."""
        return True


class Caller:
    """One question's reader. Errors of the API server come out as they are: nobody sees more meanwhile."""

    def __init__(self, callers: "Callers", user: Json) -> None:
        self._callers, self._user = callers, user
        self.name = str(user.get("username"))
        self.is_short = False
        self._left = MOST_REVIEWS
        self._known: dict[str, bool] = {}

    def may_submit(self, namespace: str) -> bool:
        """Whether it may make Jobs there. Raises :class:`BusyError`."""
        allowed = self._callers.may(self._user, "create", VOLCANO_JOBS, namespace)
        if allowed is None:
            raise BusyError
        return allowed

    def lists(self, resource: Resource) -> bool:
        """Whether it may list all objects of that kind. Raises :class:`BusyError`."""
        allowed = self._callers.may(self._user, "list", resource, ANYWHERE)
        if allowed is None:
            raise BusyError
        return allowed

    def sees(self, namespace: str) -> bool:
        """Whether it may list the pods there."""
        if self._known.get(ANYWHERE):
            return True
        if namespace not in self._known:
            allowed: bool | None = None
            if self._left > 0:
                self._left -= 1
                allowed = self._callers.may(self._user, "list", PODS, namespace)
            self.is_short = self.is_short or allowed is None
            self._known[namespace] = bool(allowed)
        return self._known[namespace]


class Callers:
    """Asks and remembers. ``limit`` bounds the questions to the API server."""

    def __init__(self, api: ApiConnection, limit: TokenBucket | None = None) -> None:
        self._api = api
        self._limit = limit if limit is not None else TokenBucket(_REVIEWS_PER_S, _REVIEWS_AT_ONCE)
        self._lock = threading.Lock()
        self._answers: dict[tuple[str, str], tuple[float, Any]] = {}

    def reader(self, request: Request) -> Reader | None:
        """The one of this request; None where the API server does not know it. Raises :class:`BusyError`."""
        token = request.authorization.removeprefix("Bearer ").strip()
        if not request.authorization:
            local = ipaddress.ip_address(request.client.partition("%")[0]).is_loopback
            return Operator() if local else None
        if not token or token == request.authorization:
            return None
        return self.caller(token)

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

    def _remembered(self, key: tuple[str, str]) -> Any:
        with self._lock:
            at, answer = self._answers.get(key, (float("-inf"), None))
        return answer if time.monotonic() - at < REMEMBER_S else None

    def _remember(self, key: tuple[str, str], answer: Any) -> None:
        with self._lock:
            if len(self._answers) >= REMEMBERED:
                self._answers.clear()
            self._answers[key] = (time.monotonic(), answer)


class Rations:
    """How often each caller may ask: others get their turn."""

    def __init__(self, per_s: float = QUESTIONS_PER_S, at_once: int = QUESTIONS_AT_ONCE) -> None:
        self._per_s, self._at_once = per_s, at_once
        self._lock = threading.Lock()
        self._of: dict[str, TokenBucket] = {}

    def try_take(self, reader: Reader) -> bool:
        """Whether it asked seldom enough; the question is counted."""
        if not reader.name:
            return True
        with self._lock:
            if reader.name not in self._of:
                if len(self._of) >= REMEMBERED:
                    self._of.clear()
                self._of[reader.name] = TokenBucket(self._per_s, self._at_once)
            bucket = self._of[reader.name]
        return bucket.try_take()
