"""What the webhook tells Prometheus about itself."""

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from vc_egpu import __version__
from vc_egpu.metrics.text import text_of
from vc_egpu.metrics.vocabulary import webhook as vocabulary
from vc_egpu.metrics.vocabulary.build import tell_build


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
    environments_broken: Gauge

    @classmethod
    def create(cls) -> "Metrics":
        """With an empty registry."""
        registry = CollectorRegistry()
        tell_build(registry, "webhook", __version__)
        return cls(
            registry=registry,
            reviews=vocabulary.REVIEWS.counter(registry),
            review_seconds=vocabulary.REVIEW_SECONDS.histogram(registry),
            access_reviews=vocabulary.QUESTIONS.counter(registry),
            certificate_expiry=vocabulary.CERTIFICATE_NOT_AFTER.gauge(registry),
            faults=vocabulary.FAULTS.counter(registry),
            models_rejected=vocabulary.MODEL_TABLE_REJECTED.counter(registry),
            models_broken=vocabulary.MODEL_TABLE_BROKEN.gauge(registry),
            environments_broken=vocabulary.ENVIRONMENTS_BROKEN.gauge(registry),
        )

    def observe(self, path: str, outcome: str, seconds: float) -> None:
        """Count one review."""
        self.reviews.labels(path, outcome).inc()
        self.review_seconds.labels(path).observe(seconds)

    def text(self) -> bytes:
        """The exposition format."""
        return text_of(self.registry.collect())
