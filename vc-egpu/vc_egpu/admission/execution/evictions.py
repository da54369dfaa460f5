"""Making pods go: all of a set or none begun, watched until they are on their way.

An eviction tries every pod dry first. A set in which one dry try fails is left alone. Then the plan of each
victim gang is taken off its PodGroup, and each pod is made to go by its UID.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from vc_egpu.admission.execution import writes
from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.execution.operations import ByCause, none_yet
from vc_egpu.admission.execution.outcomes import EvictionRun
from vc_egpu.admission.state import owners
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import PodPhase, PodUid
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import POD_GROUPS
from vc_egpu.kube.wire.errors import KubeError, NotFound
from vc_egpu.volcano.codec.cluster_codec import DecodedGroup
from vc_egpu.volcano.codec.pod_codec import DecodedPod


@dataclass(frozen=True, slots=True)
class EvictionOrder:
    """What to make go, for whom."""

    beneficiary: str
    """The gang that needs the room, or the one that is rolled back."""
    plan_id: str
    pods: tuple[DecodedPod, ...]
    cause: Cause | None
    """Why they go; None where an earlier order for the same pods said so already."""
    groups: tuple[DecodedGroup, ...] = ()
    """PodGroups of victims whose plan has to go first."""


def whole_gangs(
    mirror: Mirror, pods: Iterable[DecodedPod], victims: Collection[PodUid]
) -> tuple[DecodedGroup, ...]:
    """PodGroups with a plan of which no member stays: their plan goes first."""
    gangs = sorted({pod.pod.gang for pod in pods if pod.pod.gang is not None})
    return tuple(
        mirror.groups[gang].decoded
        for gang in gangs
        if gang in mirror.groups
        and mirror.groups[gang].decoded.plan_text
        and all(
            m.pod.phase is not PodPhase.PLACED or uid in victims
            for uid, m in mirror.members.get(gang, {}).items()
        )
    )


def plainly(pod: DecodedPod) -> EvictionOrder:
    """One pod by the Eviction API, whatever controller made it; apart from the orders of its gang."""
    owner = replace(pod.owner, kind="", api_version="") if pod.owner is not None else None
    return EvictionOrder(f"{pod.pod.gang or ''}#{pod.pod.uid}", "", (replace(pod, owner=owner),), cause=None)


def carry_out(api: ApiConnection, order: EvictionOrder) -> EvictionRun:
    """Do it; runs on a helper thread. The error, if any, is the first that stopped it."""
    done = EvictionRun(gang=order.beneficiary, plan_id=order.plan_id)
    try:
        for pod in order.pods:
            _unless_gone(owners.dry_run, api, pod)
        for group in order.groups:
            namespace, name = group.gang.key.split("/", 1)
            api.patch(POD_GROUPS, name, writes.strip_patch(group), namespace)
        for pod in order.pods:
            _unless_gone(owners.lever_of(pod.owner), api, pod)
    except KubeError as error:
        return replace(done, error=error)
    return done


def _unless_gone(action: owners.Lever, api: ApiConnection, pod: DecodedPod) -> None:
    try:
        action(api, pod)
    except NotFound:
        # Gone already is what was wanted.
        return


@dataclass(slots=True)
class Evictions:
    """What is under way. Times are of a clock that stands still while the API server is away."""

    begun: dict[PodUid, float] = field(default_factory=dict)
    """Pods asked to go and when; of an order on a thread, when it began."""
    pressed: set[PodUid] = field(default_factory=set)
    """Pods for which the plain eviction had to follow."""
    under_way: dict[str, EvictionOrder] = field(default_factory=dict)
    """Orders on a thread, by beneficiary."""
    stripped: set[str] = field(default_factory=set)
    """Gangs whose plan these orders take away: no other write of theirs begins meanwhile."""
    by_cause: ByCause = field(default_factory=none_yet)
    """Pods that were asked to go since this process leads, for the metrics."""

    def left(self, mirror: Mirror, victims: Collection[PodUid]) -> tuple[DecodedPod, ...]:
        """Victims that were not asked to go yet."""
        pods = (mirror.pods[uid] for uid in sorted(victims) if uid in mirror.pods and uid not in self.begun)
        return tuple(pod for pod in pods if pod.pod.phase is PodPhase.PLACED)

    def start(self, executor: Executor, api: ApiConnection, order: EvictionOrder, clock: float) -> None:
        """Begin an order, unless one for the same gang is under way."""
        if order.beneficiary in self.under_way:
            return
        self.under_way[order.beneficiary] = order
        if order.cause is not None:
            self.by_cause[order.cause] += len(order.pods)
        self.begun.update({pod.pod.uid: clock for pod in order.pods})
        self.stripped.update(group.gang.key for group in order.groups)
        failed = EvictionRun(gang=order.beneficiary, plan_id=order.plan_id)
        executor.helper(failed, lambda: carry_out(api, order))

    def finished(self, done: EvictionRun, clock: float) -> list[str]:
        """An order's thread is done: its pods were asked by now; after a failure none of them counts as such.

        Returns the gangs to look at again: that which the order was for, and those it was about.
        """
        order = self.under_way.pop(done.gang, None)
        if order is None:
            return []
        for uid in (pod.pod.uid for pod in order.pods):
            if done.error is not None:
                self.gone(uid)
            elif uid in self.begun:
                self.begun[uid] = clock
        about = [group.gang.key for group in order.groups]
        self.stripped.difference_update(about)
        return [order.beneficiary.partition("#")[0], *about]

    def gone(self, uid: PodUid) -> None:
        """The pod is gone or on its way out."""
        self.begun.pop(uid, None)
        self.pressed.discard(uid)

    def overdue(self, clock: float, is_leaving: Callable[[PodUid], bool]) -> list[PodUid]:
        """Pods that should be on their way out by now and are not; each is named once.

        Not those of orders on a thread: of a large gang the last are asked long after the first were tried.
        """
        under_way = {pod.pod.uid for order in self.under_way.values() for pod in order.pods}
        late = [
            uid
            for uid, since in self.begun.items()
            if clock - since >= owners.LEVER_TIMEOUT_S
            and uid not in under_way
            and uid not in self.pressed
            and not is_leaving(uid)
        ]
        self.pressed.update(late)
        return late
