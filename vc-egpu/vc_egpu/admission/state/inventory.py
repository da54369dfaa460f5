"""The nodes as this leader sees them: what they offer, and what their agents still hold."""

from collections.abc import Container, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from vc_egpu.admission.measured.node_uses import NodeUses
from vc_egpu.admission.state.agenda import Agenda
from vc_egpu.admission.state.holdings import Holdings
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model.cluster import CardId, Node, NodeName, PodUid
from vc_egpu.volcano.codec import cluster_codec
from vc_egpu.volcano.codec.cluster_codec import Document
from vc_egpu.volcano.codec.pod_codec import DecodedPod
from vc_egpu.volcano.network.described import NetworkMap
from vc_egpu.volcano.words.model_table import ModelTable


@dataclass(frozen=True, slots=True)
class NodeNews:
    """What a node's new version brought."""

    node: bool = False
    """Something that decisions look at."""
    cards: bool = False
    held: bool = False
    offers: bool = False
    """A resource that no node has offered before."""


NOTHING_NEW = NodeNews()


class Inventory:
    """Enters nodes into the decision's state. The loop reads and resets ``ill``."""

    def __init__(
        self, state: ClusterState, table: ModelTable, agenda: Agenda, levels: Sequence[str] = ()
    ) -> None:
        self.nodes: dict[NodeName, Node] = {}
        self.holdings = Holdings()
        self.ill: set[CardId] = set()
        """Cards that stopped taking shares."""
        self.offered: Set[str] = frozenset()
        """Names of the other resources that nodes offer, or have offered."""
        self._agenda = agenda
        self._state = state
        self._table = table
        self.network = NetworkMap(levels)
        self.uses = NodeUses(state)
        self._documents: dict[NodeName, Document] = {}

    def put(self, document: Document) -> NodeNews:
        """A node is there, or changed."""
        news = self._put(document)
        self.uses.put(document)
        return news

    def _put(self, document: Document) -> NodeNews:
        name = NodeName(document["metadata"]["name"])
        before, seen = self.nodes.get(name), self._documents.get(name)
        self._documents[name] = document
        if seen is not None and cluster_codec.says_the_same(seen, document):
            return NOTHING_NEW
        domains = self.network.domains_of(document["metadata"])
        node = cluster_codec.node(document, self._table, network=domains)
        is_news = node != before
        new_cards = before is None or before.cards != node.cards
        if is_news:
            self._enter(node)
        if new_cards:
            was = {card.uuid for card in (before.cards if before else ()) if card.usable}
            self.ill |= was - {card.uuid for card in node.cards if card.usable}
        first = node.allocatable.scalars.keys() - self.offered
        if first:
            self.offered |= first
        held = self.holdings.put(name, cluster_codec.held_by_agent(document))
        return NodeNews(is_news, new_cards, held, offers=bool(first))

    def settle_network(self) -> None:
        """HyperNodes came, changed or went: enter the nodes that are in other domains now."""
        for name in list(self.nodes) if self.network.take_changes() else ():
            domains = self.network.domains_of(self._documents[name]["metadata"])
            if domains != self.nodes[name].network:
                self._enter(replace(self.nodes[name], network=domains))

    def _enter(self, node: Node) -> None:
        self.nodes[node.name] = node
        self._state.put_node(node)
        self._agenda.review((node.name,))

    def remove(self, name: NodeName, living: Container[PodUid]) -> None:
        """A node is gone, with all that was held on it. ``living``: pods whose object is there."""
        self._documents.pop(name, None)
        self.nodes.pop(name, None)
        self.uses.remove(name)
        self.holdings.remove(name, living)
        self._state.remove_node(name)
        self._agenda.review((name,))

    def set_held(self, name: NodeName, pods: Mapping[PodUid, DecodedPod]) -> bool:
        """Enter what the node's agent holds; whether there is such a node."""
        node = self.nodes.get(name)
        if node is not None:
            self._state.set_held(name, tuple(self.holdings.on(node, pods)))
        return node is not None
