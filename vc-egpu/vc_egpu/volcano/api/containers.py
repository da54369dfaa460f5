"""Which containers a pod has: the lists of its spec and of its status, for all that read them.

A sidecar is an entry of ``initContainers`` with ``restartPolicy: Always``. It runs next to the containers
proper, and may hold cards. So what reads one list reads the other as well. Code that counts ordinary init
containers in another way, as the sums of requests do, tells them apart with :func:`is_sidecar`.
"""

from collections.abc import Mapping
from typing import Any, Final

Container = dict[str, Any]

IN_SPEC: Final = ("initContainers", "containers")
"""Keys of a pod's spec, in the order in which the kubelet starts what is in them."""
IN_STATUS: Final = ("initContainerStatuses", "containerStatuses")
"""Keys of its status. Each has one entry per container that the kubelet knows, sorted by name."""
DEBUG_STATUS: Final = "ephemeralContainerStatuses"
"""A user adds these containers to look into a running pod. They hold no cards, and no start needs them."""


def containers_of(spec: Mapping[str, Any]) -> list[Container]:
    """All containers of a pod's spec. What is no list, or no object in it, is passed over.

    Templates of Jobs can hold anything: the API server checks only the pods that are made from them.
    """
    return _entries(spec, IN_SPEC)


def statuses_of(status: Mapping[str, Any], *, debug: bool = False) -> list[Container]:
    """What the kubelet says of all containers; ``debug``: also of those that a user added to look into it."""
    return _entries(status, (*IN_STATUS, DEBUG_STATUS) if debug else IN_STATUS)


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container goes on running next to the others."""
    return container.get("restartPolicy") == "Always"


def waiting_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Why a container does not run, by its status: ``reason`` and ``message``; empty where it does."""
    return (status.get("state") or {}).get("waiting") or {}


def end_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """How a container ended, by its status: ``exitCode``, ``finishedAt`` and more; empty where it has not."""
    return (status.get("state") or {}).get("terminated") or {}


def _entries(holder: Mapping[str, Any], keys: tuple[str, ...]) -> list[Container]:
    return [
        entry
        for key in keys
        if isinstance(entries := holder.get(key), list)
        for entry in entries
        if isinstance(entry, dict)
    ]
