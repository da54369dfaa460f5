"""What the user may list: everywhere, in some namespaces, or not at all. The API server is asked."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from vc_egpu.kube import ApiConnection, Resource
from vc_egpu.kube.resources import CORE_EVENTS, NODES, POD_GROUPS, PODS, QUEUES
from vc_egpu.kube.wire.errors import Forbidden, NotFound

KINDS: Final = {
    "nodes": NODES,
    "queues": QUEUES,
    "groups": POD_GROUPS,
    "pods": PODS,
    "events": CORE_EVENTS,
}
"""In the order in which they are read: what the page shows first comes first."""
MOST_NAMESPACES: Final = 8
"""Each costs three watches."""

Place = str | None
"""A namespace; None: all of them."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Where the user may list each kind of :data:`KINDS`."""

    places: dict[str, tuple[Place, ...]]
    absent: tuple[str, ...]
    """Kinds that the cluster does not have."""

    def is_whole(self, kind: str) -> bool:
        """Whether all objects of a kind are seen."""
        return self.places[kind] == (None,)


def scope_of(api: ApiConnection, namespaces: Iterable[str]) -> Scope:
    """Ask for one object of each kind. ``namespaces`` are tried where the user may not list all.

    Raises :class:`~vc_egpu.kube.wire.errors.KubeError` for everything but a refusal.
    """
    wished = tuple(dict.fromkeys(namespaces))[:MOST_NAMESPACES]
    places: dict[str, tuple[Place, ...]] = {}
    absent = []
    for kind, resource in KINDS.items():
        try:
            places[kind] = _places(api, resource, wished)
        except NotFound:
            places[kind] = ()
            absent.append(kind)
    return Scope(places, tuple(absent))


def _places(api: ApiConnection, resource: Resource, wished: tuple[str, ...]) -> tuple[Place, ...]:
    if _may_list(api, resource, None):
        return (None,)
    if not resource.namespaced:
        return ()
    return tuple(place for place in wished if _may_list(api, resource, place))


def _may_list(api: ApiConnection, resource: Resource, place: Place) -> bool:
    try:
        api.request("GET", resource.path(place), query={"limit": 1})
    except Forbidden:
        return False
    return True
