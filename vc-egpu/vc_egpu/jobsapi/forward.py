"""The calls to the API server, each with its caller's token, and what its refusals mean for a caller."""

from typing import Final

from vc_egpu.jobsapi.answers import JobAnswer, told
from vc_egpu.jobsapi.job import Json
from vc_egpu.jobsapi.request import LIMITS, RequestError
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import POD_GROUPS, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    RequestTimeout,
    Temporary,
    TooManyRequests,
    Unauthorized,
)
from vc_egpu.volcano.api.paths import problem_of
from vc_egpu.volcano.words import names

_KIND: Final = {"apiVersion": VOLCANO_JOBS.api_version, "kind": VOLCANO_JOBS.kind}
_KEPT: Final = ("name", "namespace", "labels", "annotations")
"""What a decision reads of a Job's metadata."""
_STATUSES: Final[tuple[tuple[type[KubeError], int], ...]] = (
    (Unauthorized, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (AlreadyExists, 409),
    (Invalid, 422),
    (TooManyRequests, 429),
    (RequestTimeout, 504),
)
_FIELDS: Final[tuple[tuple[str, str], ...]] = (
    ("alternatives", "alternatives"),
    ("spec.queue", "queue"),
    ("queues.scheduling.volcano.sh", "queue"),
    (names.NEEDS, "needs"),
    (names.USE_MODELS, "models"),
    (names.PRIORITY, "priority"),
    (names.LIMIT_MEMORY, "memory"),
    (names.LIMIT_CORES, "cores"),
    (names.SHARED_PREFIX, "model"),
    ("runAsNonRoot", "run_as_user"),
    ("metadata.name", "name"),
    ("in the namespace", "namespace"),
    ("namespaces", "namespace"),
)
"""What stands in a refusal of the cluster, and the field of ours that it is about; the first counts."""


def create(api: ApiConnection, job: Json, *, dry_run: bool) -> JobAnswer:
    """Make the Job. Raises :class:`KubeError`."""
    return told(api.create(VOLCANO_JOBS, job, job["metadata"]["namespace"], dry_run=dry_run))


def tried(api: ApiConnection, job: Json) -> Json:
    """The Job as the cluster would take it; nothing is made. Raises :class:`KubeError`, and
    :class:`RequestError` for what cannot be sent as a Job."""
    metadata = job.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    if not isinstance(namespace, str) or (problem_of(namespace)):
        raise RequestError("job.metadata.namespace", "is missing or wrong", LIMITS["namespace"])
    made = api.create(VOLCANO_JOBS, {**job, **_KIND}, namespace, dry_run=True)
    kept = {key: made["metadata"][key] for key in _KEPT if key in made["metadata"]}
    return {**_KIND, "metadata": kept, "spec": made["spec"]}


def read(api: ApiConnection, namespace: str, name: str) -> JobAnswer:
    """Where it stands. Raises :class:`KubeError`.

    A caller that may not read PodGroups is told less, and the Job all the same.
    """
    job = api.get(VOLCANO_JOBS, name, namespace)
    group: Json | None = None
    try:
        group = api.get(POD_GROUPS, f"{name}-{job['metadata'].get('uid')}", namespace)
    except (NotFound, Forbidden):
        group = None
    return told(job, group)


def delete(api: ApiConnection, namespace: str, name: str) -> None:
    """Delete it with its pods. Raises :class:`KubeError`."""
    api.delete(VOLCANO_JOBS, name, namespace, propagation="Background")


def is_known(api: ApiConnection) -> None:
    """Ask whether the token is good. Raises :class:`KubeError`."""
    api.own_review()


def status_of(error: KubeError) -> int:
    """The status of our answer. What the API server could not do is 502, never its own 500."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 502)


def text_of(error: KubeError) -> str:
    """What the cluster said, without the method and path of our own call."""
    before, _, said = error.message.partition(": ")
    return said if said and before.partition(" ")[2].startswith("/api") else error.message


def field_of(error: KubeError) -> str:
    """The field that the cluster's refusal is about, as far as its text tells."""
    if isinstance(error, Temporary):
        return ""
    if isinstance(error, AlreadyExists):
        return "name"
    if isinstance(error, Unauthorized):
        return "Authorization"
    said = text_of(error)
    return next((field for sign, field in _FIELDS if sign in said), "")
