"""What is known of a pod and its node that decides whether it can be suspended. Judged elsewhere."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vc_egpu.volcano.words.annotations import AnnotationError, Cards

from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import ContainerOfProcess, Host
from vc_egpu_node.isolation.control import shared
from vc_egpu_node.suspension.machine import Process
from vc_egpu_node.suspension.room import Limited, MemoryLimits, free_mib
from vc_egpu_node.suspension.signals import deaf
from vc_egpu_node.suspension.verdict import Facts, HostRoom, MemoryRoom
from vc_egpu_node.wall.wall import Look

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LowPod:
    """A pod of class low with shares on this node."""

    view: PodView
    grants: tuple[Grant, ...]

    @property
    def uid(self) -> str:
        """UID of the pod."""
        return self.view.uid

    @property
    def book_mib(self) -> int:
        """The most that it may hold on its cards: what its suspension takes of the host's budget."""
        return sum(share.on_card_mib for grant in self.grants for share in grant.shares)

    @property
    def containers(self) -> frozenset[str]:
        """Those with shares: let in, or yet to come, as while an image is pulled."""
        let_in = frozenset(grant.container for grant in self.grants)
        try:
            planned = Cards.decode(self.view.cards or "").containers
        except AnnotationError:
            return let_in
        return let_in | {name for name, shares in planned.items() if shares}


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node, the same for all of its pods."""

    driver_version: str
    several_allowed: bool
    budget_mib: int
    booked_mib: Mapping[str, int]
    """By pod UID: what it takes of the host's budget now, spilled or suspended."""
    leaving: frozenset[str] = frozenset()
    """Containers whose memory is on its way to the host."""


def low_pods(grants: Iterable[Grant], views: Iterable[PodView]) -> dict[str, LowPod]:
    """By UID. Pods that have ended are left out."""
    by_pod: dict[str, list[Grant]] = {}
    for grant in grants:
        by_pod.setdefault(grant.pod_uid, []).append(grant)
    return {
        view.uid: LowPod(view, tuple(by_pod[view.uid]))
        for view in views
        if view.uid in by_pod
        and not view.ended
        and all(shared(one) and one.share_class == "low" for one in by_pod[view.uid])
    }


def spilled_mib(grants: Iterable[Grant]) -> dict[str, int]:
    """By pod UID: how much of its memory may lie on the host while it is not suspended."""
    sums: dict[str, int] = {}
    for grant in grants:
        over = sum(share.host_mib for share in grant.held)
        if over:
            sums[grant.pod_uid] = sums.get(grant.pod_uid, 0) + over
    return sums


class FactsOf:
    """Gathers them."""

    def __init__(
        self,
        *,
        hosts: ContainerOfProcess,
        limits: MemoryLimits,
        proc_dir: Path,
        paged: Callable[[], frozenset[str]],
    ) -> None:
        self._hosts = hosts
        self._limits = limits
        self._proc_dir = proc_dir
        self._paged = paged

    def of_pod(self, pod: LowPod, look: Look, node: NodeState) -> Facts:
        """As of now, and the last look."""
        usages = [look.usages.get(one.name) for one in pod.grants]
        seen = [one for one in look.seen if one.owner in {grant.name for grant in pod.grants}]
        cards = [len(grant.shares) for grant in pod.grants]
        managed = sum(
            usage.managed_bytes(card)
            for usage, count in zip(usages, cards, strict=True)
            if usage is not None
            for card in range(count)
        )
        passed_on = sum(sum(usage.shared_bytes) for usage in usages if usage is not None)
        others = node.leaving - {grant.name for grant in pod.grants}
        coming = sum(one.memory_mib for one in look.seen if one.owner in others)
        paged = self._paged()
        with_seen = {one.owner for one in seen}
        return Facts(
            driver_version=node.driver_version,
            ending=pod.view.terminating,
            started=pod.containers <= pod.view.running,
            isolated=all(grant.name in paged for grant in pod.grants),
            known=all(
                grant.name in look.usages
                and (look.usages[grant.name] is not None or grant.name not in with_seen)
                for grant in pod.grants
            ),
            managed_mib=-(-managed // MIB),
            shared_mib=-(-passed_on // MIB),
            processes=len({one.pid for one in seen}),
            several_allowed=node.several_allowed,
            signal=pod.view.suspend_signal,
            deaf_pid=deaf(self._proc_dir, sorted({one.pid for one in seen}), pod.view.suspend_signal),
            mps=any(one.mps for one in seen) or any(grant.compute == "mps" for grant in pod.grants),
            device_mib=sum(one.memory_mib for one in seen),
            book_mib=pod.book_mib,
            rooms=self._rooms(pod, look, coming),
            host=HostRoom(
                max(0, free_mib(self._proc_dir) - coming),
                node.budget_mib,
                sum(mib for uid, mib in node.booked_mib.items() if uid != pod.uid),
            ),
        )

    def processes(self, pod: LowPod, look: Look) -> tuple[Process, ...]:
        """Those that may have GPU state: the driver names them, or the library there knows them. The
        driver's first, since there may be more than a helper takes."""
        named = {one.pid for one in look.seen}
        found = [
            host for host in self._hosts.in_pod(pod.uid) if host.pid in named or _registered(host, pod, look)
        ]
        found.sort(key=lambda host: (host.pid not in named, host.pid))
        return tuple((host.pid, host.start_ticks) for host in found)

    def forget(self, living: frozenset[str]) -> None:
        """Pods that are gone."""
        self._limits.forget(living)

    def _rooms(self, pod: LowPod, look: Look, coming_mib: int) -> Sequence[MemoryRoom]:
        """``coming_mib``: of other pods, on its way to the host."""
        ids = {name: identity for identity, name in pod.view.containers.items()}
        needs = {
            ids.get(grant.container, ""): sum(one.memory_mib for one in look.seen if one.owner == grant.name)
            for grant in pod.grants
        }
        names = pod.view.containers
        limits = self._limits.of_pod(pod.uid, frozenset(names))
        return [_room(found, names.get(found.container_id, ""), needs, coming_mib) for found in limits]


def _room(found: Limited, container: str, needs: Mapping[str, int], coming_mib: int) -> MemoryRoom:
    what, needs_mib = "the pod", sum(needs.values())
    if found.above:
        what, needs_mib = f"the pods' cgroup {found.above}", needs_mib + coming_mib
    elif found.container_id:
        what, needs_mib = f"container {container}", needs.get(found.container_id, 0)
    return MemoryRoom(what, found.limit_mib, found.used_mib, needs_mib)


def _registered(host: Host, pod: LowPod, look: Look) -> bool:
    usages = (look.usages.get(grant.name) for grant in pod.grants)
    return any(
        usage is not None and usage.slot_of(host.own_pid, host.start_ticks) is not None for usage in usages
    )
