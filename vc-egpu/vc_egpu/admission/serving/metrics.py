"""Level-1 metrics: what is allocated, to whom, and who waits why. Made anew at each scrape."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vc_egpu.admission.loop import View
from vc_egpu.admission.state.answers import is_booked_on_host
from vc_egpu.admission.state.tally import OVER
from vc_egpu.core.check.recount import use_by_queue
from vc_egpu.core.model.cluster import (
    CardId,
    Node,
    Pod,
    PodPhase,
    Share,
    Snapshot,
    class_of,
    has_members,
)
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.model.resources import cores_at

_HOLDING: Final = frozenset({PodPhase.PLACED, PodPhase.TERMINATING})
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
        holders = holders_of(view.snapshot)
        yield from _cards(view.snapshot, holders)
        yield from _hosts(view.snapshot, holders)
        yield _shares(view.snapshot, holders)
        yield from _queues(view)


def holders_of(snapshot: Snapshot) -> dict[CardId, list[tuple[Pod, str, Share]]]:
    """(pod, container, share) on each card, of all pods that hold cards now, or come back to them."""
    holders: dict[CardId, list[tuple[Pod, str, Share]]] = {}
    for pod in snapshot.pods.values():
        if pod.phase in _HOLDING:
            for container, share in pod.shares:
                holders.setdefault(share.card, []).append((pod, container, share))
    return holders


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


def _cards(
    snapshot: Snapshot, holders: Mapping[CardId, list[tuple[Pod, str, Share]]]
) -> Iterator[GaugeMetricFamily]:
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
    for node in snapshot.nodes.values():
        for card in node.cards:
            on_it = holders.get(card.uuid, ())
            shares = [share for pod, _, share in on_it if not pod.asleep]
            memory_mib = sum(share.on_card_mib for share in shares)
            cores = sum(share.cores_percent for share in shares)
            values = {
                "memory_mib": card.memory_mib,
                "memory_allocated_mib": memory_mib,
                "memory_free_mib": max(0, card.memory_mib - memory_mib),
                "cores_allocated_percent": cores,
                "cores_free_percent": max(0, cores_at(_core_ratio(node)) - cores),
                "sharers": len(shares),
                "suspended_shares": len(on_it) - len(shares),
                "suspendable_shares": sum(pod.suspendable and not pod.suspend_ordered for pod, _, _ in on_it),
                "usable": int(card.usable and node.offers_cards),
            }
            labels = (str(node.name), str(card.uuid), str(card.index), card.model)
            for name, value in values.items():
                families[name].add_metric(labels, value)
    yield from families.values()


def _core_ratio(node: Node) -> float:
    """As it is for a share without a class."""
    return node.core_ratio if node.ratio_class is None else min(node.core_ratio, 1.0)


def _hosts(
    snapshot: Snapshot, holders: Mapping[CardId, list[tuple[Pod, str, Share]]]
) -> Iterator[GaugeMetricFamily]:
    """What lies on the hosts, or may: see the ledger's host budget."""
    aside = GaugeMetricFamily("egpu_host_memory_mib", "Host memory set aside.", labels=("node",))
    labels = ("node", "for")
    booked = GaugeMetricFamily("egpu_host_memory_booked_mib", "Of that, what is booked.", labels=labels)
    for node in snapshot.nodes.values():
        if not node.cards:
            continue
        aside.add_metric((str(node.name),), node.host_memory_mib)
        held = [(pod, share) for card in node.cards for pod, _, share in holders.get(card.uuid, ())]
        spilled_mib = sum(share.memory_mib - share.on_card_mib for _, share in held)
        away_mib = sum(share.on_card_mib for pod, share in held if is_booked_on_host(pod))
        booked.add_metric((str(node.name), "spilling"), spilled_mib)
        booked.add_metric((str(node.name), "suspended"), away_mib)
    yield from (aside, booked)


def _shares(snapshot: Snapshot, holders: Mapping[CardId, list[tuple[Pod, str, Share]]]) -> GaugeMetricFamily:
    """Who has how much of which card: the pods that stand under one card share it."""
    family = GaugeMetricFamily("egpu_share_memory_mib", "Memory of one share.", labels=_SHARE)
    for card, entries in holders.items():
        for pod, container, share in entries:
            runs_as = class_of(pod, snapshot.gangs.get(pod.gang or ""), None)
            share_class = runs_as.name.lower() if runs_as is not None else ""
            labels = (pod.namespace, pod.name, container, str(pod.node or ""), str(card), share_class)
            family.add_metric(labels, share.memory_mib)
    return family


def _queues(view: View) -> Iterator[GaugeMetricFamily]:
    labels = ("queue", "resource")
    used = GaugeMetricFamily("egpu_queue_used", "What admitted pods and plans count.", labels=labels)
    capped = GaugeMetricFamily("egpu_queue_capability", "The cap.", labels=labels)
    deserved = GaugeMetricFamily("egpu_queue_deserved", "What the queue deserves.", labels=labels)
    use = use_by_queue(view.snapshot)
    for queue in view.snapshot.queues.values():
        for family, amounts in (
            (used, use.get(queue.name, {})),
            (capped, queue.capability),
            (deserved, queue.deserved),
        ):
            for resource, amount in amounts.items():
                family.add_metric((str(queue.name), resource), amount)
    yield from (used, capped, deserved)
    waiting = GaugeMetricFamily(
        "egpu_queue_waiting_gangs", "Gangs that wait, by reason.", labels=("queue", "reason")
    )
    counts: dict[tuple[str, str], int] = {}
    there = {pod.gang for pod in view.snapshot.pods.values() if pod.phase not in OVER}
    for key, verdict in view.verdicts.items():
        gang = view.snapshot.gangs.get(key)
        if gang is None or not has_members(single=gang.single, there=key in there):
            continue
        if verdict.reason is not Reason.ADMITTED:
            where = (str(gang.queue), verdict.reason.value)
            counts[where] = counts.get(where, 0) + 1
    for where, count in sorted(counts.items()):
        waiting.add_metric(where, count)
    yield waiting
