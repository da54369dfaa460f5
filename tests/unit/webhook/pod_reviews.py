"""Pods that are reviewed: completed, refused, of a Job."""

from typing import Any

from unit.webhook.world import (
    ALICE,
    NAMESPACE,
    Json,
    container,
    context,
    create,
    patched,
    pod,
)
from vc_egpu.volcano.podspec.way import waits_for_us
from vc_egpu.webhook.protocol.context import Context
from vc_egpu.webhook.protocol.questions import Subject
from vc_egpu.webhook.reviews.pods import review_pod

QUEUE = "scheduling.volcano.sh/queue-name"
GROUP = "scheduling.k8s.io/group-name"
PRIORITY = "egpu.volcano.sh/priority"


def complete(obj: Json, ctx: Context | None = None, subject: Subject = ALICE) -> Json:
    return patched(obj, review_pod(create(obj, subject), ctx or context()))


def waits(done: Json) -> bool:
    """Nothing starts it before the admission layer has let it go."""
    return waits_for_us(done["spec"])


def refusal(obj: Json, ctx: Context | None = None, subject: Subject = ALICE) -> str:
    decision = review_pod(create(obj, subject), ctx or context())
    assert not decision.allowed, decision
    return decision.message


def asking(**amounts: Any) -> Json:
    return pod(container(**amounts))


def group(owner: str | None = "job-uid", queue: str = "a", name: str = "g", **annotations: str) -> Json:
    owners = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": owners, "annotations": annotations}
    return {"metadata": metadata, "spec": {"queue": queue}}


def of_job(obj: Json, uid: str = "job-uid") -> Json:
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "j",
        "uid": uid,
        "controller": True,
    }
    obj["metadata"]["ownerReferences"] = [owner]
    obj["metadata"]["annotations"][GROUP] = "g"
    return obj
