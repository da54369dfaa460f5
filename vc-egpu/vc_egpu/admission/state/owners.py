"""How a pod is made to go, by the kind of its controller: one function per kind (table: docs/evictions.md).

All are conditional on the pod's UID and raise :class:`vc_egpu.kube.wire.errors.KubeError`. Which pods may be
victims, and which may be removed by a roll-back, is said by :func:`may_be_victim` and :func:`may_be_removed`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano import room
from vc_egpu.volcano.codec.cluster_codec import Owner
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.words import names

LEVER_TIMEOUT_S: Final = 10.0
"""A pod that is not on its way out this long after Volcano was asked to replace it is evicted plainly."""

Lever = Callable[[ApiConnection, DecodedPod], None]


def may_be_victim(owner: Owner | None) -> bool:
    """Whether a preemption may evict a pod: only if its controller replaces it afterwards."""
    return owner is not None


may_be_removed = may_be_victim


def volcano_job(api: ApiConnection, pod: DecodedPod) -> None:
    """Ask Volcano's Job controller to delete the pod and make it again, policies and retry count untouched.

    The annotation is internal to Volcano and may change, so its effect is watched: see ``LEVER_TIMEOUT_S``.
    """
    body = {"metadata": {"uid": pod.pod.uid, "annotations": {names.OUT_OF_SYNC: "true"}}}
    api.patch(PODS, pod.pod.name, body, pod.pod.namespace)


def has_lever(pod: DecodedPod) -> bool:
    """Whether its controller can be asked: Volcano's, where the pod's annotations leave room for the ask."""
    if pod.owner is None or lever_of(pod.owner) is not volcano_job:
        return False
    return pod.out_of_sync or room.fits(pod.annotation_bytes, names.OUT_OF_SYNC, "true")


def evicted(api: ApiConnection, pod: DecodedPod) -> None:
    """The Eviction API: budgets are heard, and the pod gets condition DisruptionTarget."""
    api.evict(pod.pod.name, pod.pod.namespace, uid=pod.pod.uid)


def batch_job(api: ApiConnection, pod: DecodedPod) -> None:
    """A batch Job counts the pod as failed, unless its podFailurePolicy ignores DisruptionTarget."""
    evicted(api, pod)


def replica_set(api: ApiConnection, pod: DecodedPod) -> None:
    """A ReplicaSet makes another pod at once, under another name."""
    evicted(api, pod)


def stateful_set(api: ApiConnection, pod: DecodedPod) -> None:
    """A StatefulSet makes the pod again under its name once the old one is gone."""
    evicted(api, pod)


def daemon_set(api: ApiConnection, pod: DecodedPod) -> None:
    """A DaemonSet makes the pod again for the same node; it waits there, gated, until there is room."""
    evicted(api, pod)


def other(api: ApiConnection, pod: DecodedPod) -> None:
    """A controller that we do not know: whether and when it replaces the pod is its own affair."""
    evicted(api, pod)


_BY_KIND: Final[Mapping[tuple[str, str], Lever]] = {
    ("batch.volcano.sh", "Job"): volcano_job,
    ("batch", "Job"): batch_job,
    ("apps", "ReplicaSet"): replica_set,
    ("apps", "StatefulSet"): stateful_set,
    ("apps", "DaemonSet"): daemon_set,
}


def lever_of(owner: Owner | None) -> Lever:
    """The function that makes pods of this controller go."""
    if owner is None:
        raise ValueError("a bare pod is never made to go")
    return _BY_KIND.get((owner.api_version.rpartition("/")[0], owner.kind), other)


def dry_run(api: ApiConnection, pod: DecodedPod) -> None:
    """Whether the pod could be evicted now: UID, budgets and admission are asked, nothing happens."""
    api.evict(pod.pod.name, pod.pod.namespace, uid=pod.pod.uid, dry_run=True)
