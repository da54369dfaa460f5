"""Jobs over HTTP."""

from functools import partial
from typing import Final

from vc_egpu.metrics.family import Family

_api = partial(Family, component="jobs-api")
ANSWER_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)

REQUESTS: Final = _api(
    "egpu_jobs_api_requests_total", "counter", ("path", "outcome"),
    "Requests by what they ask for and how they end: done, refused here, refused by the cluster, failed.",
)  # fmt: skip
REQUEST_SECONDS: Final = _api(
    "egpu_jobs_api_request_seconds", "histogram", ("path",),
    "From the head of a request to its answer, the API server's time included.", "seconds",
    buckets=ANSWER_BUCKETS_S,
)  # fmt: skip
UNDER_WAY: Final = _api("egpu_jobs_api_under_way", "gauge", (), "Requests that wait for the API server.")
CATALOGUE_BROKEN: Final = _api(
    "egpu_jobs_api_catalogue_broken", "gauge", (),
    "1: the catalogue cannot be read now, the last good one stays in force.",
)  # fmt: skip

FAMILIES: Final = (REQUESTS, REQUEST_SECONDS, UNDER_WAY, CATALOGUE_BROKEN)
