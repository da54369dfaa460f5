"""Carries decisions out: writes on threads, and tells the loop what became of each.

The loop never waits for the network. An operation runs on a pool and ends as one :class:`Done` in the inbox.
Writes that gates wait for have a pool of their own; reports and evictions never stand in their way.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from vc_egpu.admission.execution import writes
from vc_egpu.core.model.cluster import PodUid, ShareClass
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import POD_GROUPS, PODS
from vc_egpu.kube.wire.errors import KubeError, LeaseLost, NotFound, Stale
from vc_egpu.volcano.codec.cluster_codec import DecodedGroup
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.codec.pod_codec import DecodedPod

Json = dict[str, Any]
Kind = Literal[
    "plan",
    "strip",
    "enqueue",
    "carry",
    "fence",
    "evict",
    "suspend",
    "resume",
    "orphan",
    "condition",
    "read",
    "found",
]
WRITERS: Final = 32
"""Writes that gates wait for, at the same time. An API server takes 200 in all unless told otherwise, and
controllers and kubelets need theirs."""
HELPERS: Final = 4
"""Evictions, conditions, look-ups: no gate waits for them, so they take little of the API server."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one operation. ``document`` is the API server's answer, if there was one."""

    kind: Kind
    key: str
    """The gang."""
    uid: PodUid | None = None
    plan_id: str = ""
    document: Json | None = None
    error: KubeError | None = None
    gone: bool = False
    """The object is not there any more."""


class Executor:
    """Threads that write. ``tell`` gets a :class:`Done` for each operation, on one of them.

    ``keep_managed_fields``: see :func:`.writes.unrecorded`.
    """

    def __init__(
        self, api: ApiConnection, tell: Callable[[Done], None], *, keep_managed_fields: bool = False
    ) -> None:
        self._api = api
        self._tell = tell
        self._keep_managed_fields = keep_managed_fields
        self._writers = ThreadPoolExecutor(WRITERS, thread_name_prefix="write")
        self._helpers = ThreadPoolExecutor(HELPERS, thread_name_prefix="help")

    def stop(self) -> None:
        """Begin nothing new; what is under way ends by its own time-out."""
        self._writers.shutdown(wait=True, cancel_futures=True)
        self._helpers.shutdown(wait=True, cancel_futures=True)

    # --- PodGroups -------------------------------------------------------------------------------

    def write_group(self, kind: Kind, key: str, group: DecodedGroup, body: Json, plan_id: str = "") -> None:
        """Patch a PodGroup; after a failure the answer is what stands there now, if it can be read."""
        namespace, name = key.split("/", 1)

        def work() -> Done:
            try:
                document = self._patch_group(namespace, name, group, body)
            except LeaseLost:
                raise
            except KubeError as error:
                return self._read_group(Done(kind, key, plan_id=plan_id, error=error), group)
            return Done(kind, key, plan_id=plan_id, document=document)

        self._submit(self._writers, work, Done(kind, key, plan_id=plan_id))

    def _patch_group(self, namespace: str, name: str, group: DecodedGroup, body: Json) -> Json:
        body = body if self._keep_managed_fields else writes.unrecorded(body, group)
        return self._api.patch(POD_GROUPS, name, body, namespace)

    def _read_group(self, done: Done, group: DecodedGroup) -> Done:
        namespace, name = done.key.split("/", 1)
        try:
            document = self._api.get(POD_GROUPS, name, namespace)
        except NotFound:
            return Done(done.kind, done.key, plan_id=done.plan_id, error=done.error, gone=True)
        except KubeError:
            # Nothing is known: the loop keeps what it booked and asks again.
            return Done("read", done.key, plan_id=done.plan_id, error=done.error)
        gone = document["metadata"]["uid"] != group.gang.uid
        return Done(done.kind, done.key, plan_id=done.plan_id, error=done.error, document=document, gone=gone)

    def read_group(self, key: str, group: DecodedGroup, plan_id: str, error: KubeError | None) -> None:
        """Ask what stands on a PodGroup, after a write whose outcome nobody knows."""
        self._submit(
            self._helpers,
            lambda: self._read_group(Done("plan", key, plan_id=plan_id, error=error), group),
            Done("read", key, plan_id=plan_id, error=error),
        )

    def look_for_group(self, key: str) -> None:
        """Ask for a PodGroup that nobody told of."""
        namespace, name = key.split("/", 1)

        def work() -> Done:
            try:
                return Done("found", key, document=self._api.get(POD_GROUPS, name, namespace))
            except NotFound:
                return Done("found", key, gone=True)

        self._submit(self._helpers, work, Done("found", key))

    # --- pods ------------------------------------------------------------------------------------

    def carry(
        self, key: str, pod: DecodedPod, member: PlannedMember, plan_id: str, share_class: ShareClass
    ) -> None:
        """Send one member on its way."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name
        placement = member.placement

        def work() -> Done:
            version = None
            try:
                if writes.is_bound_by_volcano(pod) and placement.node is not None:
                    nominated = self._api.patch_status(
                        PODS, name, writes.nominate_patch(pod, placement), namespace
                    )
                    version = nominated["metadata"]["resourceVersion"]
                body = writes.carry_patch(
                    pod, placement, plan_id=plan_id, share_class=share_class, resource_version=version
                )
                document = self._api.patch(PODS, name, body, namespace)
            except Stale as error:
                return self._read_pod(Done("carry", key, uid, plan_id, error=error), namespace, name)
            return Done("carry", key, uid, plan_id, document=document)

        self._submit(self._writers, work, Done("carry", key, uid, plan_id))

    def fence(self, key: str, pod: DecodedPod) -> None:
        """Write to a pod, so that no earlier write of ours can land any more; the answer says which did."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name

        def work() -> Done:
            try:
                body = writes.fence_patch(pod, time.time())
                document = self._api.patch_status(PODS, name, body, namespace, kind="strategic")
            except Stale as error:
                return self._read_pod(Done("fence", key, uid, error=error), namespace, name)
            return Done("fence", key, uid, document=document)

        self._submit(self._writers, work, Done("fence", key, uid))

    def annotate(self, kind: Kind, key: str, pod: DecodedPod, annotations: Mapping[str, str | None]) -> None:
        """Write or remove annotations of a pod, unless somebody wrote to it since it was read."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name

        def work() -> Done:
            try:
                document = self._api.patch(PODS, name, writes.pod_patch(pod, annotations), namespace)
            except Stale as error:
                return self._read_pod(Done(kind, key, uid, error=error), namespace, name)
            return Done(kind, key, uid, document=document)

        self._submit(self._writers, work, Done(kind, key, uid))

    def _read_pod(self, done: Done, namespace: str, name: str) -> Done:
        try:
            document = self._api.get(PODS, name, namespace)
        except NotFound:
            return Done(done.kind, done.key, done.uid, done.plan_id, error=done.error, gone=True)
        except KubeError as error:
            return Done(done.kind, done.key, done.uid, done.plan_id, error=error)
        gone = document["metadata"]["uid"] != done.uid
        return Done(done.kind, done.key, done.uid, done.plan_id, None if gone else document, done.error, gone)

    def delete_orphan(self, key: str, pod: DecodedPod) -> None:
        """Remove a pod that was bound without a plan."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name

        def work() -> Done:
            try:
                self._api.delete(PODS, name, namespace, uid=uid)
            except Stale as error:
                return Done("orphan", key, uid, error=error, gone=True)
            return Done("orphan", key, uid)

        self._submit(self._helpers, work, Done("orphan", key, uid))

    def pod_condition(self, key: str, pod: DecodedPod, condition: Json) -> None:
        """Write our condition on a pod."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name

        def work() -> Done:
            body = writes.pod_condition_patch(pod, condition)
            document = self._api.patch_status(PODS, name, body, namespace, kind="strategic")
            return Done("condition", key, uid, document=document)

        self._submit(self._helpers, work, Done("condition", key, uid))

    def group_condition(self, key: str, group: DecodedGroup, condition: Json) -> None:
        """Write our condition on a PodGroup."""
        namespace, name = key.split("/", 1)

        def work() -> Done:
            body = writes.group_patch(group, condition=condition)
            return Done("condition", key, document=self._patch_group(namespace, name, group, body))

        self._submit(self._helpers, work, Done("condition", key))

    def helper(self, failed: Done, work: Callable[[], Done]) -> None:
        """Run something else on the helpers; ``failed`` is completed with the error if it raises one."""
        self._submit(self._helpers, work, failed)

    def _submit(self, pool: ThreadPoolExecutor, work: Callable[[], Done], failed: Done) -> None:
        def run() -> None:
            try:
                done = work()
            except KubeError as error:
                done = replace(failed, error=error)
            except Exception:
                logger.exception("%s of %s: a fault of ours", failed.kind, failed.key)
                done = replace(failed, error=KubeError("a fault of ours, see the log"))
            self._tell(done)

        pool.submit(run)
