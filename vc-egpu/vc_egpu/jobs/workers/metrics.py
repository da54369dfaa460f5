"""What the Job controller says about itself, on a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """Counters of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reconciles = Counter(
            "egpu_jobs_reconciles",
            "Looks at an object, by kind and result.",
            ["kind", "result"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "egpu_jobs_reconcile_seconds",
            "How long a look took, writes included.",
            ["kind"],
            registry=self.registry,
        )
        self.pods_created = Counter("egpu_jobs_pods_created", "Pods made.", registry=self.registry)
        self.pods_deleted = Counter("egpu_jobs_pods_deleted", "Pods deleted.", registry=self.registry)
        self.leading = Gauge("egpu_jobs_leading", "1 while this process leads.", registry=self.registry)
        self.waiting = Gauge(
            "egpu_jobs_queue_length", "Objects that wait to be looked at.", ["kind"], registry=self.registry
        )
