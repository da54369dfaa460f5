"""Volcano Jobs that are reviewed: completed, refused, applied again."""

from unit.webhook.world import (
    ALICE,
    Json,
    container,
    context,
    create,
    patched,
    update,
)
from vc_egpu.webhook.protocol.context import Context
from vc_egpu.webhook.protocol.questions import Subject
from vc_egpu.webhook.reviews.jobs.review import review_job

PRIORITY = "egpu.volcano.sh/priority"
QUEUE = "scheduling.volcano.sh/queue-name"


def complete(obj: Json, ctx: Context | None = None, subject: Subject = ALICE) -> Json:
    return patched(obj, review_job(create(obj, subject), ctx or context()))


def refusal(obj: Json, ctx: Context | None = None, old: Json | None = None) -> str:
    review = update(obj, old) if old is not None else create(obj)
    decision = review_job(review, ctx or context())
    assert not decision.allowed, decision
    return decision.message


def reapplied(manifest: Json, stored: Json) -> Json:
    return patched(manifest, review_job(update(manifest, stored), context()))


def small(name: str = "c") -> Json:
    return container(name, vgpu_h20=1, vgpu_memory=4096, vgpu_cores=30)
