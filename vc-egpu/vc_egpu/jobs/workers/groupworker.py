"""PodGroups on a cluster without Volcano: phase, counts, and new groups for pods that have none."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from vc_egpu.jobs.known.cluster import Known
from vc_egpu.jobs.known.pods import CachedPod, trim
from vc_egpu.jobs.objects import podgroups
from vc_egpu.kube import ApiConnection, Json, Key, Resource
from vc_egpu.kube.resources import BATCH_JOBS, DAEMON_SETS, POD_GROUPS, PODS, REPLICA_SETS, STATEFUL_SETS
from vc_egpu.kube.wire.errors import AlreadyExists, Conflict, Forbidden, NotFound
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.api.podgroup import PodGroupPhase
from vc_egpu.volcano.podspec.way import is_direct
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of

EMPTY_FOR_S: Final = 120.0
"""A PodGroup for pods of other controllers is deleted after this time without pods: it was scaled to nothing.
Cards are kept for a replacement for less time than this."""
COUNTS_EVERY_S: Final = 1.0
"""Counts under the same phase are written at most so often. Members of a gang start one after the other."""
_LOOSE_PREFIX: Final = "podgroup-"
_JOB_API: Final = f"{Job.GROUP}/{Job.VERSION}"
"""A Job may be called ``podgroup``: its PodGroup is the Job worker's."""
_OWNER_CACHE_S: Final = 30.0
_NOT_LET_IN: Final = frozenset({None, PodGroupPhase.PENDING.value})
OWNERS: Final[dict[tuple[str, str], Resource]] = {
    (resource.api_version, resource.kind): resource
    for resource in (REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, BATCH_JOBS)
}

logger = logging.getLogger(__name__)


class GroupWorker:
    """Looks at PodGroups and at pods without one; thread-safe for different ones."""

    def __init__(
        self,
        api: ApiConnection,
        known: Known,
        *,
        ask_for_queues: Callable[[Iterable[str]], None],
        clock: Callable[[], float] = time.monotonic,
        groups_only: bool = False,
        counts: bool = True,
    ) -> None:
        """``groups_only``: Volcano makes the PodGroups of its own pods. ``counts``: we keep the status of
        PodGroups; else vc-scheduler does."""
        self._groups_only = groups_only
        self._counts = counts
        self._api = api
        self._known = known
        self._ask_for_queues = ask_for_queues
        self._clock = clock
        self._lock = threading.Lock()
        self._owners: OrderedDict[str, tuple[float, Json | None]] = OrderedDict()
        self._empty_since: dict[Key, float] = {}
        self._written: dict[Key, float] = {}
        """When a status was written last."""

    def rest(self) -> None:
        """Another process leads: a group without pods may get some before this process leads again."""
        self._empty_since.clear()
        self._written.clear()

    def look(self, key: Key) -> float | None:
        """Bring the status of one PodGroup up to date; seconds until the next look, or None."""
        group, pods = self._known.groups.get(key), self._known.pods.by("group", key)
        queues = {pod.checked for pod in pods if pod.checked} | (
            {podgroups.queue_of(group)} if group else set()
        )
        if len(queues) > 1:
            self._ask_for_queues(queues)  # the pods that are left decide to which of them it counts
        if group is None:
            self._empty_since.pop(key, None)
            self._written.pop(key, None)
            # Its pods still name it, so it was deleted under them. We make again only what we made. If its
            # pods go as well, the garbage collector would delete it each time we make it.
            for pod in pods if key[1].startswith(_LOOSE_PREFIX) else ():
                if pod.managed and pod.job is None and pod.group is not None and not self._passes_over(pod):
                    self._make(pod)
                    break
            return None
        if group["metadata"].get("deletionTimestamp") or not self._counts:
            return None
        wait_s = None if self._groups_only else self._sweep(key, group, pods)
        before = (group.get("status") or {}).get("phase")
        counts = podgroups.group_status(
            int((group.get("spec") or {}).get("minMember") or 0),
            [pod.member for pod in pods],
            PodGroupPhase(before) if before in set(PodGroupPhase) else None,
        )
        patch = counts.document()
        if self._groups_only and counts.phase is PodGroupPhase.INQUEUE and before in _NOT_LET_IN:
            patch["phase"] = before  # the admission layer lets it in: only then Volcano makes its pods
        present = group.get("status") or {}
        if any(present.get(name) != value for name, value in patch.items()):
            left_s = self._written.get(key, 0.0) + COUNTS_EVERY_S - self._clock()
            if patch["phase"] == before and key in self._written and left_s > 0:
                return left_s if wait_s is None else min(left_s, wait_s)
            self._written[key] = self._clock()
            # A merge patch of our own fields: others keep conditions in the same status.
            body = {"metadata": {"uid": group["metadata"]["uid"]}, "status": patch}
            try:
                self._known.groups.put(self._api.patch(POD_GROUPS, key[1], body, key[0]))
            except (NotFound, Conflict):
                return None
        return wait_s

    def adopt(self, pod_key: Key) -> float | None:
        """Give a managed pod of another controller, or a bare one, its PodGroup."""
        pod = self._known.pods.get(pod_key)
        if pod is None or not pod.managed or pod.job is not None or pod.group is not None:
            return None
        if self._passes_over(pod):
            return None
        group = self._make(pod)
        body = {"metadata": {"uid": pod.uid, "annotations": {names.GROUP_NAME: group.name}}}
        try:
            self._known.pods.put(trim(self._api.patch(PODS, pod_key[1], body, pod_key[0])))
        except (NotFound, Conflict):
            logger.debug("pod %s is gone", "/".join(pod_key))
        return None

    def _passes_over(self, pod: CachedPod) -> bool:
        """Whether no PodGroup is made for this pod: it is over, or Volcano's controllers make it."""
        return _is_over(pod) or (self._groups_only and not is_direct(pod.document["spec"]))

    def _make(self, pod: CachedPod) -> podgroups.LooseGroup:
        namespace = pod.key[0]
        owner = self._owner(pod.document, namespace)
        group = podgroups.loose_group(pod.document, owner, self._known.namespace_annotations(namespace))
        present = self._known.groups.get((namespace, group.name))
        if present is None:
            try:
                answer = self._api.create(POD_GROUPS, podgroups.loose_group_document(group, pod.document))
            except AlreadyExists:
                answer = self._api.get(POD_GROUPS, group.name, namespace)
            self._known.groups.put(answer)
        elif (present.get("spec") or {}).get("minMember") != group.min_member:
            body = {
                "metadata": {"uid": present["metadata"]["uid"]},
                "spec": {"minMember": group.min_member},
            }
            self._known.groups.put(self._api.patch(POD_GROUPS, group.name, body, namespace))
        return group

    def _owner(self, document: Json, namespace: str) -> Json | None:
        """The pod's controller, remembered for a while; None if it cannot be read (an unknown kind)."""
        reference = controller_of(document)
        if not reference:
            return None
        resource = OWNERS.get((reference["apiVersion"], reference["kind"]))
        if resource is None:
            return None
        uid, now = str(reference["uid"]), self._clock()
        with self._lock:
            known = self._owners.get(uid)
        if known is not None and now - known[0] < _OWNER_CACHE_S:
            return known[1]
        owner: Json | None = None
        try:
            owner = self._api.get(resource, reference["name"], namespace)
        except (NotFound, Forbidden) as error:
            logger.info("owner %s %s/%s: %s", reference["kind"], namespace, reference["name"], error)
        with self._lock:
            self._owners[uid] = (now, owner)
            while len(self._owners) > 4096:
                self._owners.popitem(last=False)
        return owner

    def _sweep(self, key: Key, group: Json, pods: list[CachedPod]) -> float | None:
        """Delete a PodGroup of ours whose controller has no pods any more."""
        owner = controller_of(group)
        is_ours = key[1] == f"{_LOOSE_PREFIX}{owner.get('uid')}" and owner.get("apiVersion") != _JOB_API
        if pods or not is_ours:
            self._empty_since.pop(key, None)
            return None
        since = self._empty_since.setdefault(key, self._clock())
        left_s = since + EMPTY_FOR_S - self._clock()
        if left_s > 0:
            return left_s
        self._empty_since.pop(key, None)
        try:
            self._api.delete(POD_GROUPS, key[1], key[0], uid=group["metadata"]["uid"])
        except (NotFound, Conflict):
            logger.debug("PodGroup %s is gone", "/".join(key))
        return None


def _is_over(pod: CachedPod) -> bool:
    return pod.member.terminating or pod.member.finished
