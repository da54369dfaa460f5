"""What stands on each card and what is left of it: one row for each card of each node."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from vc_egpu.core.model.cluster import Card, CardId, Mode, Node, NodeName, ShareClass, Snapshot
from vc_egpu.core.model.resources import cores_at
from vc_egpu.report.shares import ShareRow, by_card


@dataclass(frozen=True, slots=True)
class CardRow:
    """One card and the shares on it. Sums leave out shares that have left the card for a while."""

    node: NodeName
    uuid: CardId
    index: int
    model: str
    mode: Mode
    takes_shares: bool
    """Whether the card takes anything new."""
    problem: str
    """Why its node takes nothing; empty where the node is well."""
    memory_mib: int
    """What the ledger counts."""
    allocated_mib: int
    """Memory of the card that shares have."""
    suspended_mib: int
    """Memory of shares that have left the card and come back to it."""
    cores_offered_percent: int
    """What shares without a class may get together."""
    cores_percent: int
    """Compute of all shares; above 100 where high shares with low."""
    cores_high_percent: int
    """The ledger's first sum: high and unset together."""
    cores_low_percent: int
    """The ledger's second sum: unset and low together."""
    suspended: int
    """How many shares have left the card for a while."""
    shares: tuple[ShareRow, ...]
    """All of them, also those that have left it."""
    slices: tuple[tuple[str, int], ...] = ()
    """For each size that the card may hold, how many slices of it are given out; empty: it is not cut."""

    @property
    def sharers(self) -> int:
        """How many shares are on the card now."""
        return len(self.shares) - self.suspended

    @property
    def free_mib(self) -> int:
        """Memory of the card that no share has."""
        return max(0, self.memory_mib - self.allocated_mib)

    @property
    def cores_free_percent(self) -> int:
        """Compute that a share without a class could still get."""
        return max(0, self.cores_offered_percent - self.cores_percent)


def cards(snapshot: Snapshot, shares: Iterable[ShareRow]) -> tuple[CardRow, ...]:
    """All cards in the order of nodes; ``shares`` are the rows of :func:`vc_egpu.report.shares.shares`."""
    return cards_of(snapshot.nodes.values(), shares)


def cards_of(nodes: Iterable[Node], shares: Iterable[ShareRow]) -> tuple[CardRow, ...]:
    """The cards of these nodes."""
    on_card = by_card(shares)
    return tuple(
        _row(node, card, cores, tuple(on_card.get(card.uuid, ())))
        for node in nodes
        for cores in (cores_at(_core_ratio(node)),)
        for card in node.cards
    )


def _row(node: Node, card: Card, cores_offered_percent: int, shares: tuple[ShareRow, ...]) -> CardRow:
    allocated_mib = suspended_mib = suspended = cores = high = low = 0
    for share in shares:
        if share.asleep:
            suspended += 1
            suspended_mib += share.memory_mib
            continue
        allocated_mib += share.on_card_mib
        cores += share.cores_percent
        high += share.cores_percent if share.share_class is not ShareClass.LOW else 0
        low += share.cores_percent if share.share_class is not ShareClass.HIGH else 0
    return CardRow(
        node=node.name,
        uuid=card.uuid,
        index=card.index,
        model=card.model,
        mode=node.mode,
        takes_shares=card.usable and node.offers_cards,
        problem=node.problem,
        memory_mib=card.memory_mib,
        allocated_mib=allocated_mib,
        suspended_mib=suspended_mib,
        cores_offered_percent=cores_offered_percent,
        cores_percent=cores,
        cores_high_percent=high,
        cores_low_percent=low,
        suspended=suspended,
        shares=shares,
        slices=_slices(card, shares),
    )


def _slices(card: Card, shares: Iterable[ShareRow]) -> tuple[tuple[str, int], ...]:
    if card.layout is None:
        return ()
    given = Counter(share.slice for share in shares)
    return tuple((template.name, given[template.name]) for template in card.layout.templates)


def _core_ratio(node: Node) -> float:
    """As it is for a share without a class."""
    return node.core_ratio if node.ratio_class is None else min(node.core_ratio, 1.0)


@dataclass(frozen=True, slots=True)
class HostRow:
    """Host memory of one node that memory of cards may move to."""

    node: NodeName
    memory_mib: int
    """What is set aside."""
    spilled_mib: int
    """Booked for shares that spill."""
    suspended_mib: int
    """Booked for shares that are suspended, or on the way there or back."""


def hosts(snapshot: Snapshot, rows: Iterable[CardRow]) -> tuple[HostRow, ...]:
    """One row for each node with cards."""
    return hosts_of(snapshot.nodes.values(), rows)


def hosts_of(nodes: Iterable[Node], rows: Iterable[CardRow]) -> tuple[HostRow, ...]:
    """The same for these nodes; ``rows`` are of their cards."""
    known = {node.name: node for node in nodes if node.cards}
    held: dict[NodeName, list[ShareRow]] = {name: [] for name in known}
    for row in rows:
        held[row.node] += row.shares
    return tuple(
        HostRow(
            node=name,
            memory_mib=known[name].host_memory_mib,
            spilled_mib=sum(share.spilled_mib for share in on_it),
            suspended_mib=sum(share.on_card_mib for share in on_it if share.booked_on_host),
        )
        for name, on_it in held.items()
    )
