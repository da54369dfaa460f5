"""What the webhook tells Prometheus about itself."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0)


@dataclass(frozen=True, slots=True)
class Metrics:
    """One registry for each process, handed to every part that counts."""

    registry: CollectorRegistry
    reviews: Counter
    review_seconds: Histogram
    access_reviews: Counter
    certificate_expiry: Gauge
    faults: Counter
    models_rejected: Counter
    models_broken: Gauge

    @classmethod
    def create(cls) -> "Metrics":
        """With an empty registry."""
        registry = CollectorRegistry()
        return cls(
            registry=registry,
            reviews=Counter(
                "vc_egpu_webhook_reviews_total",
                "Reviews by path and outcome (allowed, refused, failed).",
                ("path", "outcome"),
                registry=registry,
            ),
            review_seconds=Histogram(
                "vc_egpu_webhook_review_seconds",
                "From the whole request in hand to the reply, access reviews included.",
                ("path",),
                buckets=_SECONDS,
                registry=registry,
            ),
            access_reviews=Counter(
                "vc_egpu_webhook_questions_total",
                "Questions to the API server that were not remembered.",
                registry=registry,
            ),
            certificate_expiry=Gauge(
                "vc_egpu_webhook_certificate_not_after_seconds",
                "When the serving certificate expires, seconds since the epoch.",
                registry=registry,
            ),
            faults=Counter(
                "vc_egpu_webhook_faults_total",
                "Reviews that failed by a fault of ours; each is in the log.",
                registry=registry,
            ),
            models_rejected=Counter(
                "vc_egpu_webhook_model_table_rejected_total",
                "Model tables that could not be read; the last good one stays in force.",
                registry=registry,
            ),
            models_broken=Gauge(
                "vc_egpu_webhook_model_table_broken",
                "1: the model table cannot be read now, the last good one stays in force.",
                registry=registry,
            ),
        )

    def observe(self, path: str, outcome: str, seconds: float) -> None:
        """Count one review."""
        self.reviews.labels(path, outcome).inc()
        self.review_seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self.registry)
