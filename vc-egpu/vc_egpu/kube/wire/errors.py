"""What can go wrong between us and the API server: whose fault it is, and whether to try again.

The type answers both questions, so that callers never compare status codes::

    KubeError
    ├── Temporary               neither side's fault: the call may succeed later (`retry_after_s`)
    │   ├── Unavailable         not reached, connection broken, or 5xx; a write may have happened
    │   ├── RequestTimeout      no answer in time; a write may have happened
    │   └── TooManyRequests     429; nothing happened
    │       └── BudgetExhausted     an eviction that a PodDisruptionBudget does not allow now
    ├── Stale                   the world is not as we thought: read again, decide again
    │   ├── NotFound            404
    │   │   └── ImpossibleName      not sent: no object can have this name, and it would address another
    │   ├── AlreadyExists       409 on create
    │   ├── Conflict            409: another writer was first, or a precondition (UID, version) failed
    │   └── Gone                410: that version is too old to go on from; list again
    ├── Refused                 ours, or our permissions': the same call fails again
    │   ├── Invalid             400, 415, 422: the object or the request is wrong
    │   ├── Unauthorized        401
    │   └── Forbidden           403: RBAC, an admission policy or a webhook says no
    └── LeaseLost               we are not (or no longer surely) the leader: write nothing

The HTTP library and the `kubernetes` package can be replaced; their exceptions are chained, never raised.
"""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.volcano.api.paths import PathNameError


class KubeError(Exception):
    """Root of the tree. ``status`` is the HTTP status (0 where there was no answer)."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason


class Temporary(KubeError):  # noqa: N818 - the name says what to do about it
    """The same call may succeed later; ``retry_after_s`` is the server's hint, or None."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class Unavailable(Temporary):
    """The server was not reached, broke off, or answered 5xx. A write may have happened."""


class RequestTimeout(Temporary):
    """No answer within the time-out. A write may have happened."""


class TooManyRequests(Temporary):
    """429: the server refused before it did anything."""


class BudgetExhausted(TooManyRequests):
    """An eviction that a PodDisruptionBudget does not allow now."""


class Stale(KubeError):  # noqa: N818 - the name says what to do about it
    """The world is not as the caller thought."""


class NotFound(Stale):
    """No such object (or no such API)."""


class ImpossibleName(NotFound, PathNameError):  # noqa: N818 - as all of these
    """No object can have this name: ``.``, ``..``, an empty one, one with ``/`` or ``%``. Nothing was sent.

    Names come out of objects that tenants write. So it is first of all what the server would have answered.
    """


class AlreadyExists(Stale):
    """An object of that name is there already."""


class Conflict(Stale):
    """Another writer was first, or a precondition on UID or resourceVersion failed."""


class Gone(Stale):
    """The version asked for is compacted away: list again."""


class Refused(KubeError):  # noqa: N818 - the name says what to do about it
    """The same call will fail again."""


class Invalid(Refused):
    """The API server does not accept this object or request."""


class Unauthorized(Refused):
    """The credentials are not accepted."""


class Forbidden(Refused):
    """RBAC, an admission policy or a webhook says no; the message says which."""


class LeaseLost(KubeError):  # noqa: N818 - the name says what to do about it
    """A write was held back because the lease may belong to another process by now."""


_MAX_MESSAGE: Final = 2000
_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: Invalid,
    409: Conflict,
    410: Gone,
    413: Invalid,
    415: Invalid,
    422: Invalid,
}
_TIMEOUT_STATUSES: Final = frozenset({408, 504})


def error_of(
    status: int, body: Mapping[str, Any] | None, *, context: str = "", retry_after_s: float | None = None
) -> KubeError:
    """The error for an answer with this HTTP status and (where it was one) Status object."""
    document = body if body is not None else {}
    reason = str(document.get("reason") or "")
    message = str(document.get("message") or f"HTTP status {status}")[:_MAX_MESSAGE]
    text = f"{context}: {message}" if context else message
    raw_details = document.get("details")
    details: Mapping[str, Any] = raw_details if isinstance(raw_details, Mapping) else {}
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(text, status=status, reason=reason)
    if status == 429:
        causes = details.get("causes") or ()
        budget = any(isinstance(c, Mapping) and c.get("reason") == "DisruptionBudget" for c in causes)
        kind = BudgetExhausted if budget else TooManyRequests
        return kind(text, status=status, reason=reason, retry_after_s=retry_after_s)
    if status in _TIMEOUT_STATUSES:
        return RequestTimeout(text, status=status, reason=reason, retry_after_s=retry_after_s)
    known = _BY_STATUS.get(status)
    if known is not None:
        return known(text, status=status, reason=reason)
    if 400 <= status < 500:
        return Refused(text, status=status, reason=reason)
    return Unavailable(text, status=status, reason=reason, retry_after_s=retry_after_s)
