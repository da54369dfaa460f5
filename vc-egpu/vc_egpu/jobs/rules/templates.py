"""The shape of pod templates, as far as we read or write in them.

The API server does not check the template of a Volcano Job, so it may hold anything. It refuses what is wrong
only when a pod is made from it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from vc_egpu.volcano.api.containers import IN_SPEC

_LISTS: Final = (*IN_SPEC, "volumes")
_OBJECTS: Final = ("overhead", "resources")
_TEXTS: Final = ("hostname", "subdomain", "schedulerName", "priorityClassName")
_LISTS_OF_CONTAINER: Final = ("env", "ports", "volumeMounts")
_AMOUNTS: Final = ("limits", "requests")


def misshapen(spec: Mapping[str, Any], where: str) -> Iterator[str]:
    """One sentence for each part of a pod spec that is not what it has to be; none: it can be read."""
    for key in _LISTS:
        yield from _list(spec, key, where)
    for key in _OBJECTS:
        yield from _object(spec, key, where)
    for key in _TEXTS:
        if not isinstance(spec.get(key), (str, type(None))):
            yield f"{where}.{key}: must be a text"
    yield from _amounts(spec, where)
    for kind in IN_SPEC:
        items = spec.get(kind)
        for index, container in enumerate(items if isinstance(items, list) else ()):
            if isinstance(container, dict):
                yield from _container(container, f"{where}.{kind}[{index}]")


def _container(container: Mapping[str, Any], where: str) -> Iterator[str]:
    for key in _LISTS_OF_CONTAINER:
        yield from _list(container, key, where)
    yield from _object(container, "resources", where)
    yield from _amounts(container, where)


def _amounts(holder: Mapping[str, Any], where: str) -> Iterator[str]:
    resources = holder.get("resources")
    if isinstance(resources, dict):
        for key in _AMOUNTS:
            yield from _object(resources, key, f"{where}.resources")


def _list(holder: Mapping[str, Any], key: str, where: str) -> Iterator[str]:
    value = holder.get(key)
    is_right = value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))
    if not is_right:
        yield f"{where}.{key}: must be a list of objects"


def _object(holder: Mapping[str, Any], key: str, where: str) -> Iterator[str]:
    if not isinstance(holder.get(key), (dict, type(None))):
        yield f"{where}.{key}: must be an object"
