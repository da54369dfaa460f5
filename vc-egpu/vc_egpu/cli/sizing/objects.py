"""Objects that a report speaks of: read, decided on, and written against the state that was read."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import DEPLOYMENTS, STATEFUL_SETS, VOLCANO_JOBS, Resource
from vc_egpu.kube.wire.errors import Conflict, KubeError, NotFound

Json = dict[str, Any]
TRIES: Final = 5
"""Controllers write these objects' status all the time."""
KINDS: Final[Mapping[str, Resource]] = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "Job": VOLCANO_JOBS,
}
WRITTEN: Final = frozenset({"Deployment", "StatefulSet"})
"""Kinds whose templates can change in place."""
Decided = TypeVar("Decided")


def settled(
    api: ApiConnection,
    resource: Resource,
    name: str,
    namespace: str,
    decide: Callable[[Json], tuple[Decided, Json | None]],
    *,
    field_manager: str,
) -> tuple[Json, Decided]:
    """Read an object, decide, and write the patch, if there is one. Another writer makes it begin again.

    The patch holds the version that was read. Raises :class:`KubeError`.
    """
    for left in reversed(range(TRIES)):
        live = api.get(resource, name, namespace)
        decided, patch = decide(live)
        if patch is None:
            return live, decided
        try:
            api.patch(resource, name, patch, namespace, kind="strategic", field_manager=field_manager)
            return live, decided
        except Conflict:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def said(error: KubeError, kind: str) -> str:
    """Why an object of this kind could not be read or written."""
    if isinstance(error, NotFound):
        return f"there is no such {kind} now; another controller may have made its pods"
    if isinstance(error, Conflict):
        return "it changes all the time: try again"
    return error.message
