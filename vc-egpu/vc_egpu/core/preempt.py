"""Make room."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vc_egpu.core.cluster import PodUid
from vc_egpu.core.gangs import GangView, Member
from vc_egpu.core.index import shares_of
from vc_egpu.core.plan import Eviction
from vc_egpu.core.trial import Seated, Trial


@dataclass(frozen=True, slots=True)
class Room:
    seated: tuple[Seated, ...]
    evictions: tuple[Eviction, ...]


def make_room(trial: Trial, view: GangView, members: Sequence[Member]) -> Room | None:
    return None


def make_room_for_some(trial: Trial, view: GangView, members: Sequence[Member]) -> Room | None:
    return None


def grouped(trial: Trial, uids: Iterable[PodUid]) -> tuple[Eviction, ...]:
    """Pods as evictions, one per gang."""
    by_gang: dict[str, set[PodUid]] = {}
    for uid in uids:
        pod = trial.index.pods.get(uid)
        if pod is not None and pod.gang is not None:
            by_gang.setdefault(pod.gang, set()).add(uid)
        else:
            by_gang.setdefault("a pod that is gone", set()).add(uid)
    result = []
    for key, pods in sorted(by_gang.items()):
        placed = trial.index.view(key).placed if key in trial.index.gangs else ()
        result.append(Eviction(key, frozenset(pods), whole={pod.uid for pod in placed} <= pods))
    return tuple(result)


def cost(trial: Trial, evictions: Iterable[Eviction]) -> int:
    """Cards held by the pods to be evicted."""
    pods = (trial.index.pods.get(uid) for eviction in evictions for uid in sorted(eviction.pods))
    return shares_of(pod for pod in pods if pod is not None)
