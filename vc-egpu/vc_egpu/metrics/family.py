"""One family of metrics: a row of the vocabulary, and what a process makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

Kind = Literal["gauge", "counter", "histogram"]
Component = Literal["all", "admission", "webhook", "jobs", "jobs-api", "traces", "node-agent"]

CARD: Final = ("node", "uuid", "index", "model")
SHARE: Final = ("namespace", "pod", "container", "uuid")

MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Family:
    """One family, as all processes and pages name it."""

    name: str
    """In full, with ``_total`` where it is a counter of ours."""
    kind: Kind
    labels: tuple[str, ...]
    help: str
    unit: str = ""
    """bytes, seconds, ratio, or what DCGM measures in; empty: a number of things, or 1 and 0."""
    component: Component = "all"
    path: str = "/metrics"
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram."""
    optional: bool = False
    """Only where a setting or a card's own answer asks for it."""

    def counter(self, registry: CollectorRegistry) -> Counter:
        """A counter that lives in this process."""
        return Counter(self.name, self.help, self.labels, registry=registry)

    def gauge(self, registry: CollectorRegistry) -> Gauge:
        """A gauge that lives in this process."""
        return Gauge(self.name, self.help, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """A histogram that lives in this process."""
        return Histogram(self.name, self.help, self.labels, buckets=self.buckets, registry=registry)

    def gauges(self, value: float | None = None) -> GaugeMetricFamily:
        """Empty samples of a gauge; with ``value`` the one sample of a family without labels."""
        return GaugeMetricFamily(self.name, self.help, value=value, labels=_labels(self.labels, value))

    def counters(self, value: float | None = None) -> CounterMetricFamily:
        """The same of a counter."""
        return CounterMetricFamily(self.name, self.help, value=value, labels=_labels(self.labels, value))

    def foreign(self) -> GaugeMetricFamily:
        """Empty samples under the very name, which has no ``_total`` even where DCGM counts."""
        found = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        found.type = self.kind
        return found


def _labels(labels: Sequence[str], value: float | None) -> Sequence[str] | None:
    return labels if value is None else None
