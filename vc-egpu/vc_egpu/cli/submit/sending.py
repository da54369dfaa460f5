"""One create, and what became of it. A second one is never sent while the first is unclear."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from vc_egpu.kube.resources import VOLCANO_JOBS, Resource
from vc_egpu.kube.wire.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    NotFound,
    Refused,
    Temporary,
    TooManyRequests,
)
from vc_egpu.volcano.words import names

SUBMIT_ID: Final = f"{names.DOMAIN}/submit-id"
"""Annotation: which try a Job comes from. The same try never makes two."""
PAUSE_S: Final = 1.0

Json = dict[str, Any]
State = Literal["there", "another", "none", "unclear"]


class Cluster(Protocol):
    """The two calls that are needed."""

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json:
        """One object."""
        ...

    def create(self, resource: Resource, body: Json, namespace: str | None = None) -> Json:
        """Make it."""
        ...


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of it in one cluster."""

    state: State
    """``there``: it has this very Job. ``another``: one of this name that comes from elsewhere. ``none``: it
    does not have it, and will not. ``unclear``: nobody knows."""
    why: str = ""


def look(cluster: Cluster, job: Json) -> Sent:
    """Whether the cluster has it already. Reads once."""
    metadata = job["metadata"]
    try:
        found = cluster.get(VOLCANO_JOBS, metadata["name"], metadata["namespace"])
    except NotFound:
        return Sent("none")
    except KubeError as error:
        return Sent("unclear", error.message)
    if (found["metadata"].get("annotations") or {}).get(SUBMIT_ID) == metadata["annotations"][SUBMIT_ID]:
        return Sent("there")
    return Sent("another", f"a Job {metadata['namespace']}/{metadata['name']} of another origin is there")


def send(
    cluster: Cluster,
    job: Json,
    within_s: float,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Sent:
    """Create it, once. Where the answer is unclear, the cluster is read until it has it.

    That it does not have it yet proves nothing then: the create may still be on its way. So the outcome
    stays unclear, and another cluster must not be tried.
    """
    try:
        cluster.create(VOLCANO_JOBS, job, job["metadata"]["namespace"])
        return Sent("there")
    except (AlreadyExists, Conflict):
        return look(cluster, job)
    except (Refused, NotFound, TooManyRequests) as error:
        return Sent("none", error.message)
    except Temporary as error:
        unclear = error.message
    end = monotonic() + within_s
    while True:
        seen = look(cluster, job)
        if seen.state in {"there", "another"}:
            return seen
        if monotonic() >= end:
            return Sent("unclear", unclear)
        pause(PAUSE_S)
