"""Which container holds slots, and which pod it is in: what cannot be proven has no owner.

The kubelet tells the container and, by its own record, the pod's UID. The watch or the API server tells the
pod.
"""

import time
from typing import Final, NamedTuple

from vc_egpu.kube.wire.errors import KubeError

from vc_egpu_node.api.pods import NodePods, PodView
from vc_egpu_node.containers.admission import NotAdmittedError, Why
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.kubelet.podresources import (
    Checkpoint,
    ContainerRef,
    PodResources,
    PodResourcesError,
    UnknownOwnerError,
    owner,
)

GET_TIMEOUT_S: Final = 3.0
OWNER_TRIES: Final = 3
OWNER_PAUSE_S: Final = 0.05


class Owner(NamedTuple):
    """A container and its pod."""

    container: ContainerRef
    pod: PodView


class Owners:
    """Asks kubelet, watch and API server. Thread-safe."""

    def __init__(
        self, kubelet: PodResources, checkpoint: Checkpoint, pods: NodePods, grants: GrantFolder
    ) -> None:
        self._kubelet = kubelet
        self._checkpoint = checkpoint
        self._pods = pods
        self._grants = grants

    def of(self, resource: str, ids: frozenset[str]) -> Owner:
        """The container that holds exactly these slots; raises :class:`NotAdmittedError`."""
        ref = self._container(resource, ids)
        return Owner(ref, self._pod(ref, self._checkpoint.pod_uid(resource, ids, ref.container)))

    def _container(self, resource: str, ids: frozenset[str]) -> ContainerRef:
        for attempt in range(OWNER_TRIES):
            try:
                return owner(self._kubelet.holders(), resource, ids)
            except PodResourcesError as error:
                raise NotAdmittedError(Why.NOT_NOW, str(error)) from error
            except UnknownOwnerError as error:
                if attempt == OWNER_TRIES - 1:
                    raise NotAdmittedError(Why.NO_OWNER, str(error)) from error
                time.sleep(OWNER_PAUSE_S)
        raise AssertionError("not reached")

    def _pod(self, ref: ContainerRef, uid: str | None) -> PodView:
        """The very pod that the kubelet starts. The watch's copy is taken only if the kubelet's own record
        confirms its UID: the watch may still have a deleted pod of that name. Where the record cannot be
        read, a deleted pod's container could start in its successor's name. Then the container starts only
        if every other source knows a single pod."""
        pod = self._pods.known(ref.namespace, ref.pod)
        if pod is not None and pod.uid == uid and pod.cards is not None:
            return pod
        try:
            pod = self._pods.fetch(ref.namespace, ref.pod, GET_TIMEOUT_S)
        except KubeError as error:
            raise NotAdmittedError(
                Why.NOT_NOW, f"pod {ref.namespace}/{ref.pod} could not be read: {error}"
            ) from error
        if pod is None:
            raise NotAdmittedError(Why.NO_OWNER, f"pod {ref.namespace}/{ref.pod} does not exist any more")
        if uid is not None and pod.uid != uid:
            raise NotAdmittedError(
                Why.NO_OWNER, f"the kubelet starts pod UID {uid}, {ref.namespace}/{ref.pod} is {pod.uid} now"
            )
        doubt = self._doubt(pod) if uid is None else ""
        if doubt:
            raise NotAdmittedError(
                Why.NOT_NOW,
                f"the kubelet's record does not say which pod {ref.namespace}/{ref.pod} starts: {doubt}",
            )
        return pod

    def _doubt(self, pod: PodView) -> str:
        """Why a pod of the same name may be meant instead of this one (from the API server), or empty."""
        watched = self._pods.known(pod.namespace, pod.name)
        others = {
            grant.pod_uid
            for grant in self._grants.all()
            if (grant.namespace, grant.pod) == (pod.namespace, pod.name) and grant.pod_uid != pod.uid
        }
        checks = (
            (watched is None, "the watch has not seen it yet"),
            (watched is not None and watched.uid != pod.uid, "the watch has another one"),
            (pod.terminating or (watched is not None and watched.terminating), f"{pod.uid} is being deleted"),
            (bool(others), f"cards are still held by UID {', '.join(sorted(others))}"),
            (self._pods.may_be_remade(pod.namespace, pod.name), "one of that name may have gone just now"),
        )
        return next((text for wrong, text in checks if wrong), "")
