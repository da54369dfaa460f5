"""Which version of an object is news. Answers to own writes and watch events come on different ways."""

from typing import Final

_REMEMBERED: Final = 50_000
"""Objects that are gone; an answer is late by seconds, so that even a cluster that empties itself fits."""

Identity = tuple[str, str]
"""(plural, UID)"""


class Versions:
    """The newest version seen of each object, and which objects are gone for good: a UID never comes back."""

    def __init__(self) -> None:
        self._newest: dict[Identity, int] = {}
        self._gone: dict[Identity, None] = {}

    def is_news(self, identity: Identity, version: int, *, deleted: bool) -> bool:
        """Whether to take this version in; it counts as seen from now on."""
        if deleted:
            self._newest.pop(identity, None)
            self._gone[identity] = None
            if len(self._gone) > _REMEMBERED:
                del self._gone[next(iter(self._gone))]
            return True
        if identity in self._gone or self._newest.get(identity, -1) >= version:
            return False
        self._newest[identity] = version
        return True
