"""Whether an answer is what was asked for.

A proxy before an API server may answer with JSON of its own and with the HTTP status of a success. That is no
object. A caller that took it for one would miss the fields that objects have, and would crash.
"""

from typing import Final

from vc_egpu.kube.resources import Resource
from vc_egpu.kube.wire.errors import Unavailable
from vc_egpu.kube.wire.transport import Json

_OF_THE_WHOLE: Final = frozenset({None, "status"})
"""Subresources that answer with the object itself."""


def one(resource: Resource, document: Json, what: str, subresource: str | None = None) -> Json:
    """This answer as an object of that resource; :class:`Unavailable` where it is none."""
    kind = document.get("kind")
    fits = kind == resource.kind if kind is not None else isinstance(document.get("metadata"), dict)
    if not fits and subresource in _OF_THE_WHOLE:
        raise Unavailable(f"{what}: the answer is no {resource.kind}")
    return document


def page(document: Json, what: str) -> Json:
    """This answer as a page of a list. Any other document is not taken for an empty page: all objects would
    count as deleted."""
    if "items" not in document:
        raise Unavailable(f"{what}: the answer is no list")
    return document
