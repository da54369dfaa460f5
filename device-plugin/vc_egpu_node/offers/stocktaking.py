"""What this node has to give, put together. It depends on the driver's readings, the settings, other
plugins, the vendor's container edits, and on whether the runtime applied the edits of earlier containers."""

import dataclasses
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from vc_egpu import __version__
from vc_egpu.volcano.words.annotations import NodeSlice

from vc_egpu_node.api.node import OwnNode, facts, previous_cards
from vc_egpu_node.api.pods import NodePods
from vc_egpu_node.cards import inventory, sliced
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.containers.collector import holdings
from vc_egpu_node.containers.device_links import DeviceLinks
from vc_egpu_node.containers.identity import Stock
from vc_egpu_node.containers.start_checks import StartChecks
from vc_egpu_node.offers.other_plugins import CardSlices, OtherPlugins
from vc_egpu_node.settings.config import ConfigError
from vc_egpu_node.settings.last_good import NodeSettings
from vc_egpu_node.vendors.base import CardReading, Vendor
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.vendors.slices import HeldSlice


@dataclass(frozen=True, slots=True)
class Parts:
    """What of the agent it works with."""

    node_name: str
    known: NodeSettings
    node: OwnNode
    pods: NodePods
    slices: CardSlices
    grants: GrantFolder
    vendor: Vendor
    book: SliceBook | None
    others: OtherPlugins
    start_checks: StartChecks
    device_links: DeviceLinks
    observation: Callable[[], Observation]
    isolated: bool
    """Containers get the isolation library."""
    no_driver_limits: Callable[[Collection[str]], str] = lambda _cards: "this agent has no means for it"
    """Why the drivers of these cards (UUIDs) limit no container; empty: they do."""
    no_mps: Callable[[], str] = lambda: "this agent has no means for it"
    """Why no container can have an MPS server; empty: it can."""


def owners_of(
    book: SliceBook | None, cards: Iterable[CardReading], grants: Iterable[Grant]
) -> sliced.SliceOwners:
    """Whose the slices on these cards are, by our record and what was granted."""
    if book is None:
        return sliced.SliceOwners()
    pods = {grant.name: grant.pod_uid for grant in grants}
    ours: dict[str, tuple[NodeSlice, ...]] = {}
    for entry in book.entries():
        pod, one = pods.get(entry.owner, ""), entry.slice
        if one is None and entry.wish.start >= 0:  # it may be made by now, and has its place in any case
            one = HeldSlice("", entry.wish.template, entry.wish.start)
        if one is not None:
            here = NodeSlice(id=one.id[:96], template=one.template[:63], start=one.start, owner=pod)
            ours[entry.wish.uuid] = (*ours.get(entry.wish.uuid, ()), here)
    strange = {
        card.uuid: found
        for card in cards
        if ("make" in card.abilities or card.layout is not None)
        and (found := book.strange(card.uuid, card.slices))
    }
    return sliced.SliceOwners(ours, strange)


class Stocktaking:
    """The agent's loop takes stock; others read what was taken last."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.stock = Stock()
        """As last taken: what may start goes by it."""

    def take(self) -> inventory.Inventory:
        """Look at everything again. Raises :class:`ConfigError` where there is no Node."""
        parts = self._parts
        document = parts.node.document()
        if document is None:
            raise ConfigError(f"there is no Node {parts.node_name}")
        observation, pods, grants = parts.observation(), parts.pods.views(), parts.grants.all()
        cards = observation.reading.cards
        others = parts.others.problem(document["status"], pods, parts.slices.documents(), parts.known.policy)
        unusable = parts.vendor.edits.unusable(cards, observation.reading.driver_version)
        taken = inventory.take_stock(
            observation.reading,
            table=parts.known.table,
            policy=parts.known.policy,
            facts=dataclasses.replace(
                facts(document),
                unusable=unusable,
                foreign=others,
                slices=owners_of(parts.book, cards, grants),
            ),
            ill=observation.ill,
            holdings=holdings(grants),
            previous=self.stock.node_cards if self.stock.ready else previous_cards(document),
            vendor=parts.vendor.facts,
            agent_version=__version__,
            isolated=parts.isolated,
            no_driver_limits=parts.no_driver_limits(
                [card.uuid for card in cards if "limit" in card.abilities]
            ),
            no_mps=parts.no_mps(),
        )
        warning = parts.device_links.trouble(cards)[: inventory.PROBLEM_CHARS]
        if warning:
            warned = taken.node_cards.model_copy(update={"warning": warning})
            taken = dataclasses.replace(taken, node_cards=warned)
        runtime = str(document["status"].get("runtime") or "the container runtime")
        self.stock = Stock(
            node_cards=taken.node_cards,
            nominal_mib={model.name: model.memory_mib for model in parts.known.table.models},
            readings={card.uuid: card for card in cards},
            ready=True,
            problem=parts.start_checks.look(grants, pods, runtime),
        )
        return taken
