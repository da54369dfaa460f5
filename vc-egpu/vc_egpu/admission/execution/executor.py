"""Carries decisions out: writes on threads, and tells the loop what became of each.

The loop never waits for the network. An operation runs on a pool, and what became of it lies in the inbox
(:mod:`.outcomes`).
Writes that gates wait for have a pool of their own; reports and evictions never stand in their way.
"""

import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, TypeVar

from vc_egpu.admission.execution import writes
from vc_egpu.admission.execution.outcomes import (
    Done,
    FenceWrite,
    GateWrite,
    GroupLookup,
    GroupPurpose,
    GroupReport,
    GroupWrite,
    Json,
    OrderPurpose,
    OrderWrite,
    OrphanRemoval,
    PodReport,
    UnknownWrite,
    word_for,
)
from vc_egpu.admission.execution.results import Denied, result_of
from vc_egpu.core.model.cluster import ShareClass
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.pace import Pace
from vc_egpu.kube.resources import POD_GROUPS, PODS
from vc_egpu.kube.wire.errors import KubeError, LeaseLost, NotFound, Stale, Unavailable
from vc_egpu.volcano.codec.cluster_codec import DecodedGroup
from vc_egpu.volcano.codec.plans import PlannedMember
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.podspec.way import is_direct

PodWrite = TypeVar("PodWrite", GateWrite, FenceWrite, OrderWrite)
WRITERS: Final = 32
"""Writes that gates wait for, at the same time. An API server takes 200 in all unless told otherwise, and
controllers and kubelets need theirs."""
FEWEST_WRITERS: Final = 8
"""So many however full the API server is: then users' requests wait less for ours."""
HELPERS: Final = 4
"""Evictions, conditions, look-ups: no gate waits for them, so they take little of the API server."""

logger = logging.getLogger(__name__)


class Pool(Protocol):
    """Where operations run; tests hand in one of their own."""

    def submit(self, work: Callable[[], None], /) -> object:
        """Run this some time."""
        ...

    def shutdown(self, *, wait: bool, cancel_futures: bool) -> None:
        """Begin nothing new."""
        ...


def threads(count: int, name: str) -> Pool:
    """A pool of so many threads."""
    return ThreadPoolExecutor(count, thread_name_prefix=name)


class Executor:
    """Threads that write. ``tell`` gets what became of each operation, on one of them.

    ``keep_managed_fields``: see :func:`.writes.unrecorded`.
    """

    def __init__(
        self,
        api: ApiConnection,
        tell: Callable[[Done], None],
        *,
        keep_managed_fields: bool = False,
        writers: Pool | None = None,
        helpers: Pool | None = None,
    ) -> None:
        self._api = api
        self._tell = tell
        self._keep_managed_fields = keep_managed_fields
        self._writers = writers if writers is not None else threads(WRITERS, "write")
        self._helpers = helpers if helpers is not None else threads(HELPERS, "help")
        self._pace = Pace(FEWEST_WRITERS, WRITERS)

    def stop(self) -> None:
        """Begin nothing new; what is under way ends by its own time-out."""
        self._writers.shutdown(wait=True, cancel_futures=True)
        self._helpers.shutdown(wait=True, cancel_futures=True)

    # --- PodGroups -------------------------------------------------------------------------------

    def write_group(
        self, purpose: GroupPurpose, key: str, group: DecodedGroup, body: Json, plan_id: str = ""
    ) -> None:
        """Patch a PodGroup; after a failure the answer is what stands there now, if it can be read."""
        namespace, name = key.split("/", 1)
        outcome = GroupWrite(gang=key, purpose=purpose, plan_id=plan_id)

        def work() -> Done:
            try:
                document = self._patch_group(namespace, name, group, body)
            except LeaseLost:
                raise
            except KubeError as error:
                if isinstance(result_of(error), Denied):
                    raise  # nothing changed there
                return self._read_group(replace(outcome, error=error), group)
            return replace(outcome, document=document)

        self._submit(self._writers, work, outcome)

    def _patch_group(self, namespace: str, name: str, group: DecodedGroup, body: Json) -> Json:
        body = body if self._keep_managed_fields else writes.unrecorded(body, group)
        return self._api.patch(POD_GROUPS, name, body, namespace)

    def _read_group(self, failed: GroupWrite, group: DecodedGroup) -> GroupWrite | UnknownWrite:
        namespace, name = failed.gang.split("/", 1)
        try:
            document = self._api.get(POD_GROUPS, name, namespace)
        except NotFound:
            return replace(failed, gone=True)
        except KubeError:
            # Nothing is known: the loop keeps what it booked and asks again.
            return UnknownWrite(
                gang=failed.gang, purpose=failed.purpose, plan_id=failed.plan_id, error=failed.error
            )
        return replace(failed, document=document, gone=document["metadata"]["uid"] != group.gang.uid)

    def read_group(self, unknown: UnknownWrite, group: DecodedGroup) -> None:
        """Ask what stands on a PodGroup after a write that may have happened or not."""
        write = GroupWrite(
            gang=unknown.gang, purpose=unknown.purpose, plan_id=unknown.plan_id, error=unknown.error
        )
        self._submit(self._helpers, lambda: self._read_group(write, group), unknown)

    def look_for_group(self, key: str) -> None:
        """Ask for a PodGroup that no watch told of."""
        namespace, name = key.split("/", 1)

        def work() -> Done:
            try:
                return GroupLookup(gang=key, document=self._api.get(POD_GROUPS, name, namespace))
            except NotFound:
                return GroupLookup(gang=key, gone=True)

        self._submit(self._helpers, work, GroupLookup(gang=key))

    # --- pods ------------------------------------------------------------------------------------

    def carry(
        self,
        key: str,
        pod: DecodedPod,
        member: PlannedMember,
        plan_id: str,
        share_class: ShareClass,
        *,
        gang_pods: int = 1,
    ) -> None:
        """Send one member on its way."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name
        placement, outcome = member.placement, GateWrite(gang=key, uid=uid)
        if is_direct(pod.source["spec"]):
            body = partial(
                writes.binding,
                pod,
                placement,
                plan_id=plan_id,
                share_class=share_class,
                gang_pods=gang_pods,
            )
            self._bind(outcome, pod, body)
            return

        def work() -> Done:
            version = None
            try:
                if writes.is_bound_by_volcano(pod) and placement.node is not None:
                    nominated = self._api.patch_status(
                        PODS, name, writes.nominate_patch(pod, placement), namespace
                    )
                    version = nominated["metadata"]["resourceVersion"]
                body = writes.carry_patch(
                    pod,
                    placement,
                    plan_id=plan_id,
                    share_class=share_class,
                    gang_pods=gang_pods,
                    resource_version=version,
                )
                document = self._api.patch(PODS, name, body, namespace)
            except Stale as error:
                return self._read_pod(replace(outcome, error=error), namespace, name)
            return replace(outcome, document=document)

        self._submit(self._writers, work, outcome)

    def _bind(self, outcome: GateWrite, pod: DecodedPod, make: Callable[[], Json]) -> None:
        def work() -> Done:
            body = make()
            try:
                self._api.bind(body)
            except Stale as error:
                return self._read_pod(replace(outcome, error=error), pod.pod.namespace, pod.pod.name)
            return replace(outcome, assumed=writes.as_bound(pod, body))

        self._submit(self._writers, work, outcome)

    def fence(self, key: str, pod: DecodedPod) -> None:
        """Write to a pod, so that no earlier write of ours can land any more; the answer says which did."""
        namespace, name = pod.pod.namespace, pod.pod.name
        outcome = FenceWrite(gang=key, uid=pod.pod.uid)

        def work() -> Done:
            try:
                body = writes.fence_patch(pod, time.time())
                document = self._api.patch_status(PODS, name, body, namespace, kind="strategic")
            except Stale as error:
                return self._read_pod(replace(outcome, error=error), namespace, name)
            return replace(outcome, document=document)

        self._submit(self._writers, work, outcome)

    def annotate(
        self, purpose: OrderPurpose, key: str, pod: DecodedPod, annotations: Mapping[str, str | None]
    ) -> None:
        """Write or remove annotations of a pod, unless another client wrote to it since it was read."""
        namespace, name = pod.pod.namespace, pod.pod.name
        outcome = OrderWrite(gang=key, uid=pod.pod.uid, purpose=purpose)

        def work() -> Done:
            try:
                document = self._api.patch(PODS, name, writes.pod_patch(pod, annotations), namespace)
            except Stale as error:
                return self._read_pod(replace(outcome, error=error), namespace, name)
            return replace(outcome, document=document)

        self._submit(self._writers, work, outcome)

    def _read_pod(self, failed: PodWrite, namespace: str, name: str) -> PodWrite:
        try:
            document = self._api.get(PODS, name, namespace)
        except NotFound:
            return replace(failed, gone=True)
        except KubeError:
            return failed  # nothing was written, and what stands there is not known
        if document["metadata"]["uid"] != failed.uid:
            return replace(failed, gone=True)
        if isinstance(failed.error, NotFound):
            # It is there all the same. Tried again at once, it would be so without end.
            failed = replace(failed, error=Unavailable(failed.error.message, status=failed.error.status))
        return replace(failed, document=document)

    def delete_orphan(self, key: str, pod: DecodedPod) -> None:
        """Remove a pod that was bound without a plan."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name

        def work() -> Done:
            try:
                self._api.delete(PODS, name, namespace, uid=uid)
            except Stale as error:
                return OrphanRemoval(gang=key, uid=uid, error=error, gone=True)
            return OrphanRemoval(gang=key, uid=uid)

        self._submit(self._helpers, work, OrphanRemoval(gang=key, uid=uid))

    def pod_condition(self, key: str, pod: DecodedPod, condition: Json) -> None:
        """Write our condition on a pod."""
        uid, namespace, name = pod.pod.uid, pod.pod.namespace, pod.pod.name

        def work() -> Done:
            body = writes.pod_condition_patch(pod, condition)
            document = self._api.patch_status(PODS, name, body, namespace, kind="strategic")
            return PodReport(gang=key, uid=uid, document=document)

        self._submit(self._helpers, work, PodReport(gang=key, uid=uid))

    def group_condition(self, key: str, group: DecodedGroup, condition: Json) -> None:
        """Write our condition on a PodGroup."""
        namespace, name = key.split("/", 1)

        def work() -> Done:
            body = writes.group_patch(group, condition=condition)
            return GroupReport(gang=key, document=self._patch_group(namespace, name, group, body))

        self._submit(self._helpers, work, GroupReport(gang=key))

    def helper(self, failed: Done, work: Callable[[], Done]) -> None:
        """Run something else on the helpers; ``failed`` is completed with the error if it raises one."""
        self._submit(self._helpers, work, failed)

    def _submit(self, pool: Pool, work: Callable[[], Done], failed: Done) -> None:
        pace = self._pace.turn if pool is self._writers else nullcontext

        def run() -> None:
            try:
                with pace():
                    done = work()
            except KubeError as error:
                done = replace(failed, error=error)
            except Exception:
                logger.exception("%s of %s: a fault of ours", word_for(failed), failed.gang)
                done = replace(failed, error=KubeError("a fault of ours, see the log"))
            self._tell(done)

        pool.submit(run)
