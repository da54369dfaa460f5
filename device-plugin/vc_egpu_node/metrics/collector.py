"""The agent's registry. Families are made at each scrape; only counts go on from scrape to scrape."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from vc_egpu import __version__
from vc_egpu.metrics.vocabulary import node
from vc_egpu.metrics.vocabulary.build import tell_build

from vc_egpu_node.cards.trials import OUTCOMES, Outcome
from vc_egpu_node.containers.admission import Why
from vc_egpu_node.metrics.cards import card_families, dcgm_families
from vc_egpu_node.metrics.containers import container_families, pod_families, swap_families
from vc_egpu_node.metrics.view import View
from vc_egpu_node.wall.offences import ACTIONS, Action, Offence


class Metrics(Collector):
    """See the module."""

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view
        self.registry = CollectorRegistry()
        tell_build(self.registry, "node-agent", __version__)
        self._calls = node.CALL_SECONDS.histogram(self.registry)
        self._refusals = node.REFUSALS.counter(self.registry)
        self._offences = node.OFFENCES.counter(self.registry)
        # The first one has to be seen as growth, so the totals stand at zero before it.
        for why in Why:
            for call in ("Allocate", "PreStartContainer"):
                self._refusals.labels(call, why.value)
        for offence in Offence:
            for action in ACTIONS:
                self._offences.labels(offence.value, action)
        self._changes = node.LIMIT_CHANGES.counter(self.registry)
        self._trials = node.CARD_TRIALS.counter(self.registry)
        for outcome in OUTCOMES:
            self._trials.labels(outcome)
        self._mps_faults = node.MPS_FAULTS.counter(self.registry)
        self.registry.register(self)

    def observe(self, call: str, seconds: float, outcome: str) -> None:
        """Count one call of the kubelet."""
        self._calls.labels(call).observe(seconds)
        if outcome != "ok":
            self._refusals.labels(call, outcome).inc()

    def offence(self, offence: Offence, action: Action) -> None:
        """Count what the second wall found."""
        self._offences.labels(offence.value, action).inc()

    def limits_changed(self, outcome: str) -> None:
        """Count a change of a running container's limits: ``applied`` or ``refused``."""
        self._changes.labels(outcome).inc()

    def mps_fault(self) -> None:
        """Count a fault of an MPS server or daemon."""
        self._mps_faults.inc()

    def tried(self, outcome: Outcome) -> None:
        """Count a trial of a card."""
        self._trials.labels(outcome).inc()

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: families depend on what the cards tell."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All families, from the present state."""
        view = self._view().later_ones()
        yield from dcgm_families(view)
        yield from card_families(view)
        yield from container_families(view)
        yield from pod_families(view)
        yield from swap_families(view)
        yield from _agent(view)


def _agent(view: View) -> Iterator[Metric]:
    slots = node.SLOTS.gauges()
    for resource, entries in view.slots.items():
        well = sum(slot.healthy for slot in entries)
        slots.add_metric((resource, "healthy"), well)
        slots.add_metric((resource, "unhealthy"), len(entries) - well)
    yield slots
    yield node.REGISTRATIONS.counters(view.registrations)
    yield node.RUNTIME_BYPASS.gauges(view.bypasses)
    yield node.DEVICE_LINKS_MISSING.gauges(float(bool(view.node_cards.warning)))
    yield node.POLICY_BROKEN.gauges(float(bool(view.policy_problem)))
    yield node.MODEL_TABLE_BROKEN.gauges(float(bool(view.models_problem)))
    yield node.ISOLATION.gauges(float(view.isolated))
    held = node.CARDS_HELD.gauges()
    for word, count in sorted(Counter(card.isolation for card in view.node_cards.cards).items()):
        held.add_metric((word,), count)
    yield held
    timed = node.CARDS_TIMED.gauges()
    if view.node_cards.cards:
        timed.add_metric((view.node_cards.compute,), len(view.node_cards.cards))
    yield timed
    yield node.MPS_PROGRAMS.gauges(float(view.mps_programs))
    yield node.BEHIND_SECONDS.gauges(view.behind_s)
    yield node.PROBLEM.gauges(float(bool(view.problem)))
    yield node.DCGM_NAMES.gauges(float(view.dcgm_names))
    yield node.SEES_PROCESSES.gauges(float(view.sees_processes))
