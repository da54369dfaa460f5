"""Objects that the API server lets us not write to: why, and until when they are left alone.

A refusal comes from the object itself (no room in it) or from a policy. No event tells that a policy changed,
so each object is tried again after a while. Kept in memory: a new leader learns it from the first refusal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from vc_egpu.core.model.cluster import Instant, PodUid

AGAIN_S: Final = 600.0
"""As long as a suspension that failed. Decisions take it for a back-off, which may be 640 s long."""


@dataclass(frozen=True, slots=True)
class Barred:
    """A gang whose PodGroup takes no plan."""

    why: str
    not_before: Instant
    """Unix time, for decisions."""
    until: float
    """The same on the conductor's clock, which may stand still."""


@dataclass(slots=True)
class Refusals:
    """One thread owns it. Times are of the conductor's clock, unless they are called otherwise."""

    _pods: dict[PodUid, tuple[str, float]] = field(default_factory=dict)
    _gangs: dict[str, Barred] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything is left alone."""
        return bool(self._pods or self._gangs)

    def note_pod(self, uid: PodUid, why: str, clock: float) -> None:
        """This pod takes no cards."""
        self._pods[uid] = (why, clock + AGAIN_S)

    def note_gang(self, key: str, why: str, clock: float, now: Instant) -> None:
        """This PodGroup takes no plan."""
        self._gangs[key] = Barred(why, now + AGAIN_S, clock + AGAIN_S)

    def of_pod(self, uid: PodUid) -> str:
        """Why it takes no cards; empty where nothing is known of that."""
        return self._pods[uid][0] if uid in self._pods else ""

    @property
    def gangs(self) -> Mapping[str, Barred]:
        """The gangs that are not planned now."""
        return MappingProxyType(self._gangs)

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self._pods.pop(uid, None)

    def forget(self, key: str) -> None:
        """The gang is gone, or its PodGroup is another one now."""
        self._gangs.pop(key, None)

    def over(self, clock: float) -> tuple[list[PodUid], list[str]]:
        """Pods and gangs whose time has come; nothing is known of them any more."""
        pods = [uid for uid, (_, until) in self._pods.items() if until <= clock]
        gangs = [key for key, barred in self._gangs.items() if barred.until <= clock]
        for uid in pods:
            del self._pods[uid]
        for key in gangs:
            del self._gangs[key]
        return pods, gangs
