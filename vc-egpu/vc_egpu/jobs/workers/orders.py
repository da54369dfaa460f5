"""Commands as the workers take them: for which object, and which one first."""

from collections.abc import Iterable
from dataclasses import dataclass

from vc_egpu.kube import Json
from vc_egpu.volcano.api.command import Command


@dataclass(frozen=True, slots=True)
class Target:
    """What a Command is for.

    All of it has to be so, not only the UID: the door asked whether its author may update the object that is
    named, in the Command's own namespace.
    """

    kind: str
    namespace: str
    name: str
    uid: str


def first_of(commands: Iterable[Json]) -> Command | None:
    """The one that was given first; times are to the second and names are drawn, versions tell the order."""
    found = min(commands, key=lambda raw: int(raw["metadata"].get("resourceVersion") or 0), default=None)
    return Command.parse(found) if found is not None else None
