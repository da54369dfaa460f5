"""Nodes that an operator drains: the gangs on them go, each as a whole, and are planned elsewhere."""

from collections.abc import Iterable

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Pod, PodUid
from vc_egpu.core.model.gangs import GangView
from vc_egpu.core.model.plan import Eviction
from vc_egpu.core.room.victims import may_go
from vc_egpu.core.trial.record import Recorder
from vc_egpu.core.trial.trial import Trial


def begin(trial: Trial, record: Recorder) -> None:
    """Evict the gangs with members on nodes that are drained. Suspended ones go as well.

    A gang goes whole, unless those elsewhere are enough for it. One with a pod that no controller makes again
    stays: users are told of it, and end it themselves. A silent node's pods would not go.
    """
    for key in _gangs(trial):
        view = trial.index.view(key)
        placed = [pod for pod in view.placed if pod.uid not in trial.leaving]
        there = {pod.uid for pod in placed if _is_drained(trial, pod)}
        going = _going_of(view, placed, there)
        if going:
            trial.leaving.update(dict.fromkeys(pod.uid for pod in going))
            uids = frozenset(pod.uid for pod in going)
            record.evicts(Eviction(key, uids, whole=len(going) == len(placed), cause=Cause.DRAIN))


def _going_of(view: GangView, placed: Iterable[Pod], there: set[PodUid]) -> tuple[Pod, ...]:
    """Which of a gang's placed pods go, so that none of ``there`` stays; none where a bare pod had to."""
    pods = tuple(placed)
    only_those = view.gang.single or may_go(view, pods, there)
    going = tuple(pod for pod in pods if pod.uid in there) if only_those else pods
    if view.gang.single:
        return tuple(pod for pod in going if not pod.bare)
    return () if not there or any(pod.bare for pod in going) else going


def _gangs(trial: Trial) -> list[str]:
    index = trial.index
    uids = (uid for name in index.drained for uid in index.pods_on.get(name, ()))
    keys = {index.pods[uid].gang for uid in uids}
    return sorted(key for key in keys if key is not None and key in index.gangs)


def _is_drained(trial: Trial, pod: Pod) -> bool:
    node = trial.index.nodes.get(pod.node) if pod.node is not None else None
    return node is not None and node.drained and not node.is_silent
