"""What the leader does, counted for the metrics.

Each total stands at zero from the beginning of a leadership. A total that first appears as one has not grown,
as Prometheus sees it, and no alert would tell of the first failure.
"""

from typing import Final, Literal, get_args

Operation = Literal[
    "decisions",
    "enqueued",
    "enqueued_again",
    "ungated",
    "rolled_back",
    "orphans",
    "evicted",
    "evicted_broken",
    "suspend_orders",
    "suspensions_failed",
    "resumed",
    "found_unwatched",
    "watches_renewed",
    "lever_failed",
    "write_failures",
    "decisions_failed",
]
OPERATIONS: Final[tuple[Operation, ...]] = get_args(Operation)

Totals = dict[Operation, int]


def from_zero() -> Totals:
    """All of them."""
    return dict.fromkeys(OPERATIONS, 0)


WRITES: Final = (
    "plan",
    "strip",
    "enqueue",
    "reserve",
    "condition",
    "carry",
    "fence",
    "suspend",
    "resume",
    "evict",
    "lever",
    "orphan",
)
"""The kinds of writes, as logs and metrics call them."""

ByWrite = dict[str, int]
"""Writes that the API server refuses again and again, by kind."""


def none_refused() -> ByWrite:
    """All kinds."""
    return dict.fromkeys(WRITES, 0)
