"""The Job controller for clusters without Volcano."""

from functools import partial
from typing import Final

from vc_egpu.metrics.family import Family

_jobs = partial(Family, component="jobs")
LOOK_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

RECONCILES: Final = _jobs(
    "egpu_jobs_reconciles_total", "counter", ("kind", "result"), "Looks at an object, by kind and result."
)
RECONCILE_SECONDS: Final = _jobs(
    "egpu_jobs_reconcile_seconds", "histogram", ("kind",), "How long a look took, writes included.",
    "seconds", buckets=LOOK_BUCKETS_S,
)  # fmt: skip
PODS_CREATED: Final = _jobs("egpu_jobs_pods_created_total", "counter", (), "Pods made.")
PODS_DELETED: Final = _jobs("egpu_jobs_pods_deleted_total", "counter", (), "Pods deleted.")
LEADER: Final = _jobs("egpu_jobs_leader", "gauge", (), "1 on the process that leads.")
QUEUE_LENGTH: Final = _jobs(
    "egpu_jobs_queue_length", "gauge", ("kind",), "Objects that wait to be looked at."
)

FAMILIES: Final = (RECONCILES, RECONCILE_SECONDS, PODS_CREATED, PODS_DELETED, LEADER, QUEUE_LENGTH)
