"""What the answer to a write means: the one place that reads it off an error. Pure.

Every write ends as one of five. Each caller says what it does with each of them: it matches on
:data:`Result`, with :func:`typing.assert_never` at the end::

    Written     it happened
    Overtaken   nothing happened: the object is gone, or another client wrote first. Read, and decide again
    Later       nothing happened, and the same write may succeed later
    Unknown     no answer says whether it happened
    Denied      nothing happened, and the same write is refused again: it needs another way
"""

from dataclasses import dataclass

from vc_egpu.kube.wire.errors import (
    Invalid,
    KubeError,
    Refused,
    Stale,
    Temporary,
    TooManyRequests,
    Unauthorized,
)


class NotSent(Invalid):
    """A write that cannot be made as it is. Nothing was sent; it counts as refused."""


@dataclass(frozen=True, slots=True)
class Written:
    """It happened."""


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The object is gone, or another client wrote first."""


@dataclass(frozen=True, slots=True)
class Later:
    """Nothing happened; the same write may succeed later."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer says whether it happened."""

    is_fault: bool = False
    """A fault of ours, which comes again: no time-out and no broken connection."""


@dataclass(frozen=True, slots=True)
class Denied:
    """The same write is refused again: the object does not take it, or a policy forbids it."""

    reason: str
    """As the API server says it."""


Result = Written | Overtaken | Later | Unknown | Denied


def result_of(error: KubeError | None) -> Result:
    """What this error says about a write; None: the write succeeded."""
    match error:
        case None:
            return Written()
        case Stale():
            return Overtaken()
        case TooManyRequests() | Unauthorized():
            # Credentials are read again before the next request: a token that ran out forbids nothing.
            return Later()
        case Refused():
            return Denied(error.message)
        case _:
            return Unknown(is_fault=not isinstance(error, Temporary))
