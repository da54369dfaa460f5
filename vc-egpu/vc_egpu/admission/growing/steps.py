"""What to do with the request for nodes of one model: keep it, take it back, or make one. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from vc_egpu.admission.growing.need import Need

STEADY_S: Final = 20.0
"""A need must stand for so long before nodes are asked for: a gang that ends now is faster than a node."""
SETTLE_S: Final = 300.0
"""Nodes that were promised have so long to come, and to tell of their cards."""
RETRY_S: Final = 300.0
"""After a request that failed, or that helped no gang; it doubles each time."""
MOST_RETRY_S: Final = 3600.0


class Stand(Enum):
    """What the request's conditions say."""

    OPEN = "open"
    """No answer yet, or one that may change."""
    PROVISIONED = "provisioned"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """The request that stands for a model."""

    name: str
    nodes: int
    stand: Stand
    message: str = ""
    """What its conditions say, for people."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is remembered of one model from one look to the next; it begins empty with each leader."""

    since: float | None = None
    """Since when there is a need."""
    provisioned_at: float | None = None
    """When the request that stands was first seen to be provisioned."""
    served: tuple[str, ...] = ()
    """The gangs that waited when the last request was provisioned."""
    not_before: float = 0.0
    retry_s: float = RETRY_S


@dataclass(frozen=True, slots=True)
class Make:
    """Make a request for so many nodes."""

    nodes: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Take this request back."""

    name: str


Step = Make | Remove


def step(
    memory: Memory, need: Need, room: int, request: Request | None, now: float
) -> tuple[Memory, Step | None]:
    """What to do now, and what to remember. ``room``: nodes that may still come; ``now``: any clock, seconds.

    A request is never changed: its API does not allow it. One that is open stays while there is a need, also
    if that is another one by now.
    """
    if not need.nodes:
        idle = replace(memory, since=None, provisioned_at=None, served=(), retry_s=RETRY_S)
        return idle, Remove(request.name) if request is not None else None
    since = now if memory.since is None else memory.since
    memory = replace(memory, since=since)
    if request is not None:
        return _with(request, memory, need, now)
    if room <= 0 or now - since < STEADY_S or now < memory.not_before:
        return memory, None
    return memory, Make(min(need.nodes, room))


def _with(request: Request, memory: Memory, need: Need, now: float) -> tuple[Memory, Step | None]:
    if request.stand is Stand.FAILED:
        return _later(memory, now), Remove(request.name)
    if request.stand is Stand.OPEN:
        return memory, None
    if memory.provisioned_at is None:
        return replace(memory, provisioned_at=now, served=need.gangs), None
    if now - memory.provisioned_at < SETTLE_S:
        return memory, None
    if set(memory.served) & set(need.gangs):  # the nodes came, and these gangs wait all the same
        return _later(memory, now), Remove(request.name)
    return replace(memory, provisioned_at=None, served=(), retry_s=RETRY_S), Remove(request.name)


def _later(memory: Memory, now: float) -> Memory:
    return replace(
        memory,
        provisioned_at=None,
        served=(),
        not_before=now + memory.retry_s,
        retry_s=min(2 * memory.retry_s, MOST_RETRY_S),
    )


def stand_of(document: Mapping[str, Any]) -> tuple[Stand, str]:
    """What the conditions of a ProvisioningRequest say. It is an object of others: any form is read."""
    status = document.get("status")
    found = status.get("conditions") if isinstance(status, Mapping) else None
    listed = found if isinstance(found, list) else []
    true = {
        str(one.get("type")): str(one.get("message") or "")
        for one in listed
        if isinstance(one, Mapping) and one.get("status") == "True"
    }
    for kind in ("Failed", "CapacityRevoked", "BookingExpired"):
        if kind in true and (kind != "BookingExpired" or "Provisioned" not in true):
            return Stand.FAILED, f"{kind}: {true[kind]}"
    if "Provisioned" in true:
        return Stand.PROVISIONED, true["Provisioned"]
    latest = next(iter(reversed(true.items())), None)
    return Stand.OPEN, f"{latest[0]}: {latest[1]}" if latest else ""
