"""The webhook."""

from functools import partial
from typing import Final

from vc_egpu.metrics.family import Family

_webhook = partial(Family, component="webhook")
REVIEW_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0)

REVIEWS: Final = _webhook(
    "egpu_webhook_reviews_total", "counter", ("path", "outcome"),
    "Reviews by path and outcome (allowed, refused, failed).",
)  # fmt: skip
REVIEW_SECONDS: Final = _webhook(
    "egpu_webhook_review_seconds", "histogram", ("path",),
    "From the whole request in hand to the reply, access reviews included.", "seconds",
    buckets=REVIEW_BUCKETS_S,
)  # fmt: skip
QUESTIONS: Final = _webhook(
    "egpu_webhook_questions_total", "counter", (), "Questions to the API server that were not remembered."
)
CERTIFICATE_NOT_AFTER: Final = _webhook(
    "egpu_webhook_certificate_not_after_seconds", "gauge", (),
    "When the serving certificate expires, seconds since the epoch.", "seconds",
)  # fmt: skip
FAULTS: Final = _webhook(
    "egpu_webhook_faults_total", "counter", (), "Reviews that failed by a fault of ours; each is in the log."
)
MODEL_TABLE_REJECTED: Final = _webhook(
    "egpu_webhook_model_table_rejected_total", "counter", (),
    "Model tables that could not be read; the last good one stays in force.",
)  # fmt: skip
MODEL_TABLE_BROKEN: Final = _webhook(
    "egpu_webhook_model_table_broken", "gauge", (),
    "1: the model table cannot be read now, the last good one stays in force.",
)  # fmt: skip
ENVIRONMENTS_BROKEN: Final = _webhook(
    "egpu_webhook_environments_broken", "gauge", (),
    "1: the table of what software needs cannot be read now, the last good one stays in force.",
)  # fmt: skip

FAMILIES: Final = (
    REVIEWS,
    REVIEW_SECONDS,
    QUESTIONS,
    CERTIFICATE_NOT_AFTER,
    FAULTS,
    MODEL_TABLE_REJECTED,
    MODEL_TABLE_BROKEN,
    ENVIRONMENTS_BROKEN,
)
