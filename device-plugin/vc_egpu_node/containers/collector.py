"""What is held, when it is let go, and how a restarted agent finds its way back.

A share ends when its pod is Succeeded or Failed, or gone from the API server, and its containers are gone
from the node. Files of pods that live are never touched, whatever else is unknown.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable
from typing import Final

from vc_egpu.kube import Backoff

from vc_egpu_node.api.pods import NodePods, PodView
from vc_egpu_node.cards.inventory import Holding
from vc_egpu_node.containers.admission import NotAdmittedError
from vc_egpu_node.containers.allocations import Allocation, AllocationStore
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.containers.cgroups import PodCgroups
from vc_egpu_node.containers.identity import Identity
from vc_egpu_node.kubelet.podresources import (
    Checkpoint,
    CheckpointEntry,
    Holder,
    PodResources,
    PodResourcesError,
)
from vc_egpu_node.vendors.slice_book import SliceBook

log = logging.getLogger(__name__)

UNCLAIMED_S: Final = 120.0
"""A promise that no container has claimed for so long is dropped."""


LEAVING_S: Final = 0.2
"""While containers of ended pods still run."""
LEAVING_MOST_S: Final = 5.0
"""The same, once they have done so for minutes: a process that the kernel does not let end may for days."""


AGAIN_S: Final = 0.5
"""After the API server refused something once, at most; twice as long each time."""


class Patience:
    """How long to wait before the next look at who is leaving: a look reads the node's cgroup tree."""

    def __init__(self) -> None:
        self._refused = Backoff(first_s=AGAIN_S)
        self._leaving = 0
        self._since_s = 0.0

    def wait_s(self, leaving: int, now_s: float, idle_s: float) -> float:
        """``leaving``: how many still are; ``idle_s``: the answer where none is."""
        self._refused.reset()
        if leaving != self._leaving:
            self._leaving, self._since_s = leaving, now_s
        if not leaving:
            return idle_s
        return min(max(LEAVING_S, (now_s - self._since_s) / 50), LEAVING_MOST_S)

    def again_s(self, idle_s: float) -> float:
        """The Node could not be written. Some pod may wait for just that, on other nodes too."""
        return min(idle_s, self._refused.next_s())


def holdings(grants: Iterable[Grant]) -> dict[str, Holding]:
    """What is held, by card."""
    found: dict[str, list[Grant]] = {}
    for grant in grants:
        for share in grant.shares:
            found.setdefault(share.uuid, []).append(grant)
    return {
        uuid: Holding(
            pods=tuple(sorted({one.pod_uid for one in here})),
            native=any(one.native for one in here),
            containers=len(here),
            mps=frozenset(one.namespace for one in here if one.compute == "mps"),
        )
        for uuid, here in found.items()
    }


class Collector:
    """Lets go of what has ended. One thread calls it."""

    def __init__(
        self,
        *,
        allocations: AllocationStore,
        grants: GrantFolder,
        pods: NodePods,
        pod_resources: PodResources,
        checkpoint: Checkpoint,
        cgroups: PodCgroups,
        identity: Identity,
        slices: SliceBook | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._allocations = allocations
        self._grants = grants
        self._pods = pods
        self._pod_resources = pod_resources
        self._checkpoint = checkpoint
        self._cgroups = cgroups
        self._identity = identity
        self._slices = slices
        self._clock = clock
        self._stuck: dict[str, str] = {}
        """Name to why its files could not be removed, as last told."""
        self._asked = False
        self.recovered = False
        """Whether all that ran here before this process is counted."""

    def collect(self) -> int:
        """Release ended grants; how many are still leaving (their pod ended, their containers have not).
        One whose files cannot be removed stays held, and is tried again at the next call."""
        if not self._pods.synced:
            return 0
        views = {pod.uid: pod for pod in self._pods.views()}
        ended = [grant for grant in self._grants.all() if _has_ended(grant, views)]
        leaving = 0
        if ended:
            living = self._living(ended)
            for grant in ended:
                if grant.name in living:
                    leaving += 1
                else:
                    self._release(grant)
        return leaving

    def sweep(self) -> None:
        """Let go of what is left over, more rarely than :meth:`collect` is called. That is promises never
        claimed, grants that a later one replaced, and folders of neither grant nor promise.
        """
        if not self._pods.synced:
            return
        self._drop_leftovers()
        self._drop_slices()
        promises = self._allocations.all()
        old = [one for one in promises if self._clock() - one.made_at_s > UNCLAIMED_S]
        replaced = _replaced(self._grants.all(), {one.name: one.number for one in promises})
        for grant in replaced:
            if any(one.name == grant.name for one in old):
                self._release(grant)
        unclaimed = [one for one in old if self._grants.get(one.name) is None]
        if not unclaimed:
            return
        try:
            holders = self._pod_resources.holders()
        except PodResourcesError as error:
            log.debug("nothing swept: %s", error)
            return
        # A kubelet that has just begun lists no pod before the API server told it of one; its record does.
        held = {(holder.resource, slot) for holder in holders for slot in holder.ids}
        held |= {(entry.resource, slot) for entry in self._recorded() for slot in entry.ids}
        for allocation in unclaimed:
            if not self._claimed(allocation, held):
                log.info("promise %s of %s was never claimed", allocation.name, allocation.resource)
                self._forget(allocation.name)

    def _drop_leftovers(self) -> None:
        """Remove folders of containers that have neither spec nor promise. A reboot loses the specs, and the
        promises of pods that are gone are dropped. An agent that died while it removed files leaves such
        folders too. In doubt they stay: another version's agent may have let the container in."""
        try:
            left = self._grants.leftovers()  # first: a container with a folder by now has a promise too
        except OSError as error:
            log.debug("folders of containers were not looked at: %s", error)
            return
        left = {name: uid for name, uid in left.items() if not self._allocations.tells_of(name)}
        living = self._cgroups.living(set(left.values())) if left else None
        if living is None:
            return
        here = {pod.uid for pod in self._pods.views() if not pod.ended}
        for name in (name for name, uid in left.items() if uid not in here | living):
            log.info("folder %s is that of a container that is gone", name)
            try:
                self._grants.release(name)
            except OSError as error:
                log.debug("it was not removed: %s", error)

    def _drop_slices(self) -> None:
        """Remove slices of containers that have neither grant nor promise: an agent died before it did. What
        the driver keeps is tried again at the next sweep."""
        if self._slices is None or not self.recovered:
            return
        entries = self._slices.entries()  # first: a container has its promise before its slice
        owners = {one.name for one in self._grants.all()} | {one.name for one in self._allocations.all()}
        for owner, why in self._slices.release_others(owners, entries).items():
            log.warning("the slice of container %s, which is gone, stays on its card: %s", owner, why)

    def recover(self) -> int:
        """Count again what runs here, after a restart; how many containers had no spec. Promises whose
        record is lost are taken from the containers' CDI specs. Containers that run without a spec are found
        through kubelet and API server: the CDI folder may have been cleared. To be called until
        :attr:`recovered`, since the kubelet may be restarting itself."""
        kept = True
        for grant in sorted(self._grants.all(), key=lambda one: one.granted_at_s):
            try:
                self._allocations.adopt(grant.name, grant.resource, grant.ids, grant.granted_at_s)
            except OSError as error:
                log.warning("the promise %s could not be kept on disk: %s", grant.name, error)
                kept = False
        try:
            holders = self._pod_resources.holders()
        except PodResourcesError as error:
            if not self._asked:
                log.warning("what runs here is not known yet, the kubelet is asked again: %s", error)
            self._asked = True
            return 0
        found = 0
        for holder in holders:
            allocation = self._allocations.in_force(holder.resource, holder.ids)
            if allocation is None or self._grants.get(allocation.name) is not None:
                continue
            ref = holder.ref
            pod = self._pods.known(ref.namespace, ref.pod)
            if pod is None or ref.container not in pod.running:
                continue
            uid = self._checkpoint.pod_uid(holder.resource, holder.ids, ref.container)
            if uid is not None and uid != pod.uid:  # a later pod of that name, which the watch has not seen
                continue
            try:
                self._identity.restore(self._identity.proven(allocation, ref, pod))
                found += 1
            except NotAdmittedError as error:
                log.warning("a running container has no valid plan: %s", error)
        self.recovered = kept and self._lists_all(holders)
        if self.recovered:
            self._drop_slices()
        return found

    def _lists_all(self, holders: Iterable[Holder]) -> bool:
        """Whether the kubelet lists all of our containers that its record has: one that has just started
        lists none."""
        listed = {(holder.resource, holder.ids) for holder in holders}
        return all(
            (entry.resource, entry.ids) in listed
            for entry in self._recorded()
            if self._allocations.in_force(entry.resource, entry.ids) is not None
        )

    def _recorded(self) -> list[CheckpointEntry]:
        """What the kubelet's record says of pods that are here."""
        here = {pod.uid for pod in self._pods.views() if not pod.ended}
        return [entry for entry in self._checkpoint.entries() if entry.pod_uid in here]

    def _living(self, ended: list[Grant]) -> frozenset[str]:
        """Names of the grants whose containers may still run."""
        living = self._cgroups.living({grant.pod_uid for grant in ended})
        if living is not None:
            return frozenset(grant.name for grant in ended if grant.pod_uid in living)
        try:
            held = {(holder.resource, one) for holder in self._pod_resources.holders() for one in holder.ids}
        except PodResourcesError as error:
            log.warning("whether containers are gone is not known: %s", error)
            return frozenset(grant.name for grant in ended)
        # By the grant's own slots: an agent on a full disk may have no promise of a container that runs.
        return frozenset(one.name for one in ended if any((one.resource, i) in held for i in one.ids))

    def _release(self, grant: Grant) -> None:
        who = f"{grant.namespace}/{grant.pod}/{grant.container}"
        try:
            self._grants.release(grant.name)
        except OSError as error:
            if self._stuck.get(grant.name) != str(error):
                log.warning("%s is gone and holds its cards until its files can be removed: %s", who, error)
            self._stuck[grant.name] = str(error)
            return
        self._stuck.pop(grant.name, None)
        log.info("%s has let go of its cards", who)
        self._forget(grant.name)

    def _forget(self, name: str) -> None:
        try:
            self._allocations.forget(name)
        except OSError as error:  # the next agent finds it, and that it is not claimed
            log.warning("the record of promise %s was not removed: %s", name, error)

    def _claimed(self, allocation: Allocation, held: Collection[tuple[str, str]]) -> bool:
        """Whether a container may still come for this promise. ``held``: resource and slot."""
        is_held = any((allocation.resource, slot) in held for slot in allocation.ids)
        return is_held and self._allocations.in_force(allocation.resource, allocation.ids) == allocation


def _has_ended(grant: Grant, views: dict[str, PodView]) -> bool:
    pod = views.get(grant.pod_uid)
    return pod is None or pod.ended


def _replaced(grants: Iterable[Grant], numbers: dict[str, int]) -> list[Grant]:
    """Grants of containers that have a later grant, because the kubelet asked again for the same container.
    The promise's number says which is later: clocks are set back."""
    latest: dict[tuple[str, str], Grant] = {}
    replaced: list[Grant] = []
    for grant in sorted((one for one in grants if one.name in numbers), key=lambda one: numbers[one.name]):
        key = (grant.pod_uid, grant.container)
        if key in latest:
            replaced.append(latest[key])
        latest[key] = grant
    return replaced
