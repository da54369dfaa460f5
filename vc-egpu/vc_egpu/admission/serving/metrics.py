"""Level-1 metrics: what is allocated, to whom, and who waits why. Each scrape renders the present rows."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vc_egpu.admission.view import View
from vc_egpu.core.check.recount import use_by_queue
from vc_egpu.report.cards import CardRow, HostRow, cards, hosts
from vc_egpu.report.gangs import condition_of, gangs
from vc_egpu.report.queues import by_reason, queues, waiting
from vc_egpu.report.shares import ShareRow, by_card, shares

_CARD: Final = ("node", "card", "index", "model")
_SHARE: Final = ("namespace", "pod", "container", "node", "card", "class")


class Level1(Collector):
    """``view`` gives the present moment, or None where this process does not lead."""

    def __init__(self, view: Callable[[], View | None]) -> None:
        self._view = view

    def registry(self) -> CollectorRegistry:
        """A registry with nothing but this."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing: otherwise registering would collect."""
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """All families."""
        view = self._view()
        leads = GaugeMetricFamily("egpu_admission_leader", "1 where this process leads.")
        leads.add_metric((), 0.0 if view is None else 1.0)
        yield leads
        if view is None:
            return
        yield from _process(view)
        share_rows = shares(view.snapshot)
        card_rows = cards(view.snapshot, share_rows)
        yield from _cards(card_rows)
        yield from _hosts(hosts(view.snapshot, card_rows))
        yield _shares(share_rows)
        yield from _queues(view)


def _process(view: View) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
    admitting = GaugeMetricFamily("egpu_admitting", "0 while the operator has stopped admitting.")
    admitting.add_metric((), float(view.admitting))
    yield admitting
    epoch = GaugeMetricFamily("egpu_admission_epoch", "Number of this leadership.")
    epoch.add_metric((), view.epoch)
    yield epoch
    decide = GaugeMetricFamily("egpu_decide_seconds", "How long the last decision took.")
    decide.add_metric((), view.decide_s)
    yield decide
    done = CounterMetricFamily("egpu_operations", "What this leader has done.", labels=("operation",))
    for name, total in sorted(view.counters.items()):
        done.add_metric((name,), total)
    yield done
    evicted = CounterMetricFamily("egpu_pods_evicted", "Pods that were asked to go.", labels=("cause",))
    suspended = CounterMetricFamily(
        "egpu_pods_suspended", "Pods that were told to leave their cards.", labels=("cause",)
    )
    for family, totals in ((evicted, view.evicted), (suspended, view.suspended)):
        for cause, pods in totals.items():
            family.add_metric((cause.value,), pods)
    yield from (evicted, suspended)
    refused = CounterMetricFamily(
        "egpu_writes_refused", "Writes that the API server refuses again and again.", labels=("write",)
    )
    for write, total in view.refused.items():
        refused.add_metric((write,), total)
    yield refused
    let_go = CounterMetricFamily(
        "egpu_pods_let_go", "Pods that were bound by us, or whose gate was lifted.", labels=("way",)
    )
    for way, pods in view.let_go.items():
        let_go.add_metric((way,), pods)
    yield let_go
    kubelets = CounterMetricFamily(
        "egpu_kubelet_refusals", "Pods that a kubelet refused.", labels=("lacked",)
    )
    for what, pods in view.by_kubelets.items():
        kubelets.add_metric((what,), pods)
    yield kubelets


def _cards(rows: Iterable[CardRow]) -> Iterator[GaugeMetricFamily]:
    families = {
        name: GaugeMetricFamily(f"egpu_card_{name}", text, labels=_CARD)
        for name, text in (
            ("memory_mib", "Memory that the ledger counts."),
            ("memory_allocated_mib", "Memory that shares have."),
            ("memory_free_mib", "Memory that no share has."),
            ("cores_allocated_percent", "Compute that shares have; above 100 where high shares with low."),
            ("cores_free_percent", "Compute that a share without a class could still get."),
            ("sharers", "Shares on the card."),
            ("suspended_shares", "Shares that have left the card for a while."),
            ("suspendable_shares", "Shares that could be suspended, as the node's agent says."),
            ("usable", "1 where the card takes new shares."),
        )
    }
    for row in rows:
        values = {
            "memory_mib": row.memory_mib,
            "memory_allocated_mib": row.allocated_mib,
            "memory_free_mib": row.free_mib,
            "cores_allocated_percent": row.cores_percent,
            "cores_free_percent": row.cores_free_percent,
            "sharers": row.sharers,
            "suspended_shares": row.suspended,
            "suspendable_shares": sum(share.could_be_suspended for share in row.shares),
            "usable": int(row.takes_shares),
        }
        labels = (str(row.node), str(row.uuid), str(row.index), row.model)
        for name, value in values.items():
            families[name].add_metric(labels, value)
    yield from families.values()


def _hosts(rows: Iterable[HostRow]) -> Iterator[GaugeMetricFamily]:
    """What lies on the hosts, or may: see the ledger's host budget."""
    aside = GaugeMetricFamily("egpu_host_memory_mib", "Host memory set aside.", labels=("node",))
    labels = ("node", "for")
    booked = GaugeMetricFamily("egpu_host_memory_booked_mib", "Of that, what is booked.", labels=labels)
    for row in rows:
        aside.add_metric((str(row.node),), row.memory_mib)
        booked.add_metric((str(row.node), "spilling"), row.spilled_mib)
        booked.add_metric((str(row.node), "suspended"), row.suspended_mib)
    yield from (aside, booked)


def _shares(rows: Iterable[ShareRow]) -> GaugeMetricFamily:
    """How much of which card each container has: the pods that stand under one card share it."""
    family = GaugeMetricFamily("egpu_share_memory_mib", "Memory of one share.", labels=_SHARE)
    for on_card in by_card(rows).values():
        for row in on_card:
            share_class = row.share_class.name.lower() if row.share_class is not None else ""
            labels = (row.namespace, row.pod, row.container, str(row.node or ""), str(row.uuid), share_class)
            family.add_metric(labels, row.memory_mib)
    return family


def _queues(view: View) -> Iterator[GaugeMetricFamily]:
    rows = gangs(view.snapshot, {key: condition_of(said) for key, said in view.verdicts.items()})
    labels = ("queue", "resource")
    used = GaugeMetricFamily("egpu_queue_used", "What admitted pods and plans count.", labels=labels)
    capped = GaugeMetricFamily("egpu_queue_capability", "The cap.", labels=labels)
    deserved = GaugeMetricFamily("egpu_queue_deserved", "What the queue deserves.", labels=labels)
    for row in queues(view.snapshot, use_by_queue(view.snapshot), rows):
        for family, amounts in ((used, row.used), (capped, row.capability), (deserved, row.deserved)):
            for resource, amount in amounts.items():
                family.add_metric((str(row.name), resource), amount)
    yield from (used, capped, deserved)
    family = GaugeMetricFamily(
        "egpu_queue_waiting_gangs", "Gangs that wait, by reason.", labels=("queue", "reason")
    )
    for queue, counts in sorted(waiting(rows).items()):
        for reason, count in by_reason(counts).items():
            family.add_metric((str(queue), reason), count)
    yield family
