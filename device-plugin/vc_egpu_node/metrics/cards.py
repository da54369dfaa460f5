"""Cards: DCGM's families and our own."""

from collections.abc import Iterator

from prometheus_client.core import Metric
from vc_egpu.metrics.family import MIB, Family
from vc_egpu.metrics.vocabulary import dcgm, node

from vc_egpu_node.cards.monitor import unattributed_mib
from vc_egpu_node.metrics.view import View
from vc_egpu_node.vendors.base import CardReading


def dcgm_families(view: View) -> Iterator[Metric]:
    """As dcgm-exporter would show them; nothing where it does so itself."""
    if not view.dcgm_names:
        return
    for field, known in dcgm.BY_FIELD.items():
        family = _named(known, view).foreign()
        for card in view.observation.reading.cards:
            sample = view.observation.samples.get(card.uuid)
            value = getattr(sample, field) if sample is not None else None
            if value is not None:
                family.add_metric(_labels_of(view, card), value)
        if family.samples:
            yield family
    codes = _named(dcgm.XID, view).foreign()
    for card in view.observation.reading.cards:
        code = view.observation.error_codes.get(card.uuid, 0)
        told = [str(code), f"XID {code}" if code else ""]
        codes.add_metric([*_labels_of(view, card), *told], code)
    if codes.samples:
        yield codes


def _named(family: Family, view: View) -> Family:
    """With the label for the host that this version of dcgm-exporter has."""
    labels = tuple(view.dcgm_host_label if label == "Hostname" else label for label in family.labels)
    return Family(family.name, family.kind, labels, family.help)


def _labels_of(view: View, card: CardReading) -> list[str]:
    version = view.observation.reading.driver_version
    return [str(card.index), card.uuid, card.pci_bus_id, card.device, card.product, view.node, version]


def card_families(view: View) -> Iterator[Metric]:
    """What the agent knows of its cards."""
    healthy, offered = node.CARD_HEALTHY.gauges(), node.CARD_OFFERED.gauges()
    held, untold = node.CARD_HELD_PODS.gauges(), node.CARD_UNTOLD.gauges()
    nobodys = node.CARD_UNATTRIBUTED.gauges()
    for card in view.node_cards.cards:
        labels = (view.node, card.uuid, str(card.index), card.model)
        healthy.add_metric(labels, float(card.healthy))
        offered.add_metric(labels, float(card.offered and card.healthy))
        held.add_metric(labels, len(card.held))
        untold.add_metric(labels, float(card.uuid in view.observation.untold))
        size_mib = unattributed_mib(view.observation, card.uuid)
        if view.sees_processes and size_mib is not None:  # else all of it is nobody's
            nobodys.add_metric(labels, size_mib * MIB)
    yield from (healthy, offered, held, untold)
    if view.sees_processes:
        yield nobodys
