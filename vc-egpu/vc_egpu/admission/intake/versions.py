"""Which version of an object is news. Answers to own writes and watch events come on different ways.

What the watch itself takes back is so. An API server whose history was set back (restored from a backup)
tells of older versions. It also tells again of objects whose end it had told. Answers to own writes never do.
"""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.kube.watch import Change, ChangeKind

_REMEMBERED: Final = 50_000
"""Objects that are gone; an answer is late by seconds, so that even a cluster that empties itself fits."""

Identity = tuple[str, str]
"""(plural, UID)"""


class Versions:
    """The newest version seen of each object, and which objects are gone: only the watch brings one back."""

    def __init__(self) -> None:
        self._newest: dict[Identity, int] = {}
        self._gone: dict[Identity, None] = {}

    def is_news(self, identity: Identity, change: Change) -> bool:
        """Whether to take this in; it counts as seen from now on. Raises ``ValueError`` for no version."""
        if change.kind is ChangeKind.DELETED:
            self._newest.pop(identity, None)
            self._gone[identity] = None
            if len(self._gone) > _REMEMBERED:
                del self._gone[next(iter(self._gone))]
            return True
        version = _of(change.object)
        if change.kind is ChangeKind.ADDED:
            self._gone.pop(identity, None)
        elif change.old is not None and _of(change.old) > version:
            self._newest.pop(identity, None)
        if identity in self._gone or self._newest.get(identity, -1) >= version:
            return False
        self._newest[identity] = version
        return True


def _of(document: Mapping[str, Any]) -> int:
    return int((document.get("metadata") or {}).get("resourceVersion") or 0)
