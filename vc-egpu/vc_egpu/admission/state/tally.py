"""What the living members of one gang say of it, counted, since thousands of them come and go one by one."""

from collections import Counter
from typing import NamedTuple

from vc_egpu.core.model.cluster import PodPhase, ShareClass
from vc_egpu.core.model.gangs import OVER
from vc_egpu.volcano.codec.pod_codec import DecodedPod


class _Said(NamedTuple):
    """What of one member counts. Gangs have few kinds of members, however many they have."""

    waits: bool
    asks: bool
    share_class: ShareClass | None
    """As what it runs, or asks to; None: it does not say."""
    priority_value: int
    queue: str


class Tally:
    """Fed with every change of a member; asked whenever the gang may have become another one."""

    def __init__(self) -> None:
        self._counts: Counter[_Said] = Counter()

    def change(self, before: DecodedPod | None, now: DecodedPod | None) -> None:
        """A member came (``before`` is None), went (``now`` is), or says something else."""
        said, says = _said(before), _said(now)
        if said == says:
            return
        if said is not None:
            self._counts[said] -= 1
            if not self._counts[said]:
                del self._counts[said]
        if says is not None:
            self._counts[says] += 1

    def rank(self, named: ShareClass) -> tuple[ShareClass, int]:
        """The gang's class, and the highest value of those of that class. ``named``: where members name none.

        Under one owner pods of one class may come after those of another: steps of a workflow, or replicas of
        a set that is changed. What runs keeps the class with which it was given its cards. So the gang has
        the class of its members that wait. Where none that needs cards waits, it has that of all.
        """
        waiting = {_or(named, said) for said in self._counts if said.waits and _names(said)}
        everybody = {_or(named, said) for said in self._counts if _names(said)}
        # The door refuses two classes in one gang; should they meet here, the gang gets the lower one.
        share_class = min(waiting or everybody, default=named)
        values = [said.priority_value for said in self._counts if _or(named, said) is share_class]
        return share_class, max(values, default=0)

    def queues(self) -> set[str]:
        """The queues that living members were checked for."""
        return {said.queue for said in self._counts if said.queue}


def _said(member: DecodedPod | None) -> _Said | None:
    if member is None or member.pod.phase in OVER:
        return None
    pod = member.pod
    return _Said(
        waits=pod.phase is PodPhase.GATED,
        asks=bool(pod.shape.asks),
        share_class=member.share_class if pod.runs_as is None else pod.runs_as,
        priority_value=member.priority_value,
        queue=pod.queue or "",
    )


def _names(said: _Said) -> bool:
    return said.asks or said.share_class is not None


def _or(named: ShareClass, said: _Said) -> ShareClass:
    return named if said.share_class is None else said.share_class
