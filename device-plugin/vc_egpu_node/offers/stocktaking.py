"""What this node has to give, put together: what the driver reads of its cards, the settings, who else offers
them, NVIDIA's CDI specs, and whether the runtime started containers as it was asked to."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from vc_egpu import __version__

from vc_egpu_node.api.node import OwnNode, facts, previous_cards
from vc_egpu_node.api.pods import NodePods
from vc_egpu_node.cards import inventory
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.containers.collect import holdings
from vc_egpu_node.containers.identity import Stock
from vc_egpu_node.containers.started import Started
from vc_egpu_node.offers.other_plugins import CardSlices, Others
from vc_egpu_node.settings.config import ConfigError
from vc_egpu_node.settings.last_good import NodeSettings
from vc_egpu_node.vendors.nvidia.toolkit import CardNames, Toolkit


@dataclass(frozen=True, slots=True)
class Parts:
    """What of the agent it works with."""

    node_name: str
    known: NodeSettings
    node: OwnNode
    pods: NodePods
    slices: CardSlices
    grants: GrantFolder
    toolkit: Toolkit
    others: Others
    started: Started
    observation: Callable[[], Observation]


class Stocktaking:
    """The agent's loop takes stock; others read what was taken last."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.stock = Stock()
        """As last taken: what may start goes by it."""

    def take(self) -> inventory.Inventory:
        """Look at everything anew. Raises :class:`ConfigError` where there is no Node."""
        parts = self._parts
        document = parts.node.document()
        if document is None:
            raise ConfigError(f"there is no Node {parts.node_name}")
        observation, pods, grants = parts.observation(), parts.pods.views(), parts.grants.all()
        cards = observation.reading.cards
        others = parts.others.problem(document["status"], pods, parts.slices.documents(), parts.known.policy)
        known_as = {card.uuid: CardNames(card.uuid, card.index, card.minor) for card in cards}
        unusable = parts.toolkit.unusable(known_as.values(), observation.reading.driver_version)
        taken = inventory.take_stock(
            observation.reading,
            table=parts.known.table,
            policy=parts.known.policy,
            facts=dataclasses.replace(facts(document), unusable=unusable, foreign=others),
            ill=observation.ill,
            holdings=holdings(grants),
            previous=self.stock.node_cards if self.stock.ready else previous_cards(document),
            agent_version=__version__,
        )
        runtime = str(document["status"].get("runtime") or "the container runtime")
        self.stock = Stock(
            node_cards=taken.node_cards,
            nominal_mib={model.name: model.memory_mib for model in parts.known.table.models},
            known_as=known_as,
            ready=True,
            problem=parts.started.look(grants, pods, runtime),
        )
        return taken
