"""Making pods go: all of a set or none begun, watched until they are on their way.

An eviction tries dry first what follows: to evict each victim, and to give each member of the gang that needs
the room its cards. A set in which one dry try fails is left alone. Then the plan of each victim gang is taken
off its PodGroup, and each pod is made to go by its UID.

A pod whose controller cannot be asked (its annotations are full, or a policy forbids it) goes by the Eviction
API at once.
"""

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from vc_egpu.admission.execution import writes
from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.execution.outcomes import EvictionRun, Json
from vc_egpu.admission.execution.results import Denied, result_of
from vc_egpu.admission.figures import Figures
from vc_egpu.admission.state import owners
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import Instant, PodPhase, PodUid
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import POD_GROUPS, PODS
from vc_egpu.kube.wire.errors import KubeError, NotFound, Stale
from vc_egpu.volcano.codec.cluster_codec import DecodedGroup
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.podspec.way import is_direct

PRESS_AGAIN_S: Final = 60.0
"""A pod that stays although its eviction was taken is evicted once more after this long."""
_TRIED_AT_ONCE: Final = 8
"""Dry tries of members under way: they take little of the API server, and 2,048 take seconds."""
_FEW: Final = 8
"""So few are tried one after the other."""


MemberWrite = tuple[DecodedPod, Callable[[], Json]]
"""A pod, and what makes the body of the write that will give it its cards: of 2,048 that takes a while."""


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
    noted_at: Instant | None = None
    """What they remember as the moment when their gangs went for others; None: these go for themselves."""
    members: tuple[MemberWrite, ...] = ()
    """Pods that need the room: these writes are tried dry first."""


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
    about, plainly = "", []
    try:
        for pod in order.pods:
            about = pod.pod.gang or ""
            _unless_gone(owners.dry_run, api, pod)
        if (refused := _refused(api, order.members)) is not None:
            return replace(done, member=refused[0], error=refused[1])
        for group in order.groups:
            about = group.gang.key
            namespace, name = group.gang.key.split("/", 1)
            api.patch(POD_GROUPS, name, writes.strip_patch(group, victim_at=order.noted_at), namespace)
        for pod in order.pods:
            about = pod.pod.gang or ""
            if _make_go(api, pod):
                plainly.append(pod.pod.uid)
    except KubeError as error:
        return replace(done, error=error, stopped_by=about, plainly=tuple(plainly))
    return replace(done, plainly=tuple(plainly))


_Refused = tuple[PodUid, KubeError] | None


def _refused(api: ApiConnection, members: tuple[MemberWrite, ...]) -> _Refused:
    """The first of these to which its cards cannot be given, and why; None where they can, all of them."""

    def tried(entry: MemberWrite) -> _Refused:
        pod, body = entry
        try:
            if is_direct(pod.source["spec"]):
                api.bind(body(), dry_run=True)
            else:
                api.patch(PODS, pod.pod.name, body(), pod.pod.namespace, dry_run=True)
        except Stale:
            return None  # it changed meanwhile, which the plan is looked at for anyway
        except KubeError as error:
            return pod.pod.uid, error
        return None

    if len(members) <= _FEW:
        return next((found for entry in members if (found := tried(entry)) is not None), None)
    with ThreadPoolExecutor(_TRIED_AT_ONCE, thread_name_prefix="dry") as threads:
        answers = list(threads.map(tried, members))
    return next((one for one in answers if one is not None), None)


def _make_go(api: ApiConnection, pod: DecodedPod) -> bool:
    """Make a pod go; whether it had to be evicted plainly although it has a controller to ask."""
    lever = owners.lever_of(pod.owner)
    if lever is not owners.volcano_job:
        _unless_gone(lever, api, pod)
        return False
    try:
        if owners.has_lever(pod):
            _unless_gone(lever, api, pod)
            return False
    except KubeError as error:
        if not isinstance(result_of(error), Denied):
            raise
    _unless_gone(owners.evicted, api, pod)
    return True


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
    figures: Figures = field(default_factory=Figures)

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
            self.figures.evicted(order.pods, order.cause)
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
        self.pressed.update(uid for uid in done.plainly if uid in self.begun)
        about = [group.gang.key for group in order.groups]
        self.stripped.difference_update(about)
        return [order.beneficiary.partition("#")[0], *about]

    def gone(self, uid: PodUid) -> None:
        """The pod is gone or on its way out."""
        self.begun.pop(uid, None)
        self.pressed.discard(uid)

    def overdue(self, clock: float, is_leaving: Callable[[PodUid], bool]) -> list[PodUid]:
        """Pods that should be on their way out by now and are not; each is named once in a while.

        Not those of orders on a thread: of a large gang the last are asked long after the first were tried.
        """
        under_way = {pod.pod.uid for order in self.under_way.values() for pod in order.pods}
        late = [
            uid
            for uid, since in self.begun.items()
            if clock - since >= (PRESS_AGAIN_S if uid in self.pressed else owners.LEVER_TIMEOUT_S)
            and uid not in under_way
            and not is_leaving(uid)
        ]
        self.pressed.update(late)
        return late
