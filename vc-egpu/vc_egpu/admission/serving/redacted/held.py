"""What the work of each namespace holds of each card, kept from one snapshot to the next. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vc_egpu.admission.serving.following import Following, Rest
from vc_egpu.core.model.cluster import CardId, Node, NodeName, Pod, ShareClass, Snapshot
from vc_egpu.report.gangs import Members
from vc_egpu.report.shares import ShareRow, by_card, shares_of


class Held(NamedTuple):
    """Part of one card, in sums."""

    pods: int = 0
    memory_mib: int = 0
    """On the card now."""
    suspended_mib: int = 0
    """What shares count that have left the card and come back to it."""
    cores_high_percent: int = 0
    """Shares of class high and without a class."""
    cores_low_percent: int = 0
    """Shares of class low and without a class."""

    def plus(self, other: "Held") -> "Held":
        """Both together; a pod is on a card in one namespace alone."""
        return Held(*(one + another for one, another in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class HeldCard:
    """One card, by namespace."""

    index: int
    model: str
    memory_mib: int
    takes_shares: bool
    held: Mapping[str, Held]


class HeldCards:
    """All cards by node. One thread at a time."""

    def __init__(self) -> None:
        self._following = Following(Rest())
        self.nodes: dict[NodeName, tuple[HeldCard, ...]] = {}

    def follow(self, snapshot: Snapshot, step: Callable[[], None]) -> None:
        """Take in a later snapshot. What ``step`` raises ends it; the next call goes on from there."""
        self._following.follow(snapshot)
        while True:
            step()
            if (changed := self._following.take_changed()) is None:
                return
            name, pods = changed
            node = snapshot.nodes.get(name)
            if node is None or not node.cards:
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = held_cards(node, rows_of(pods, snapshot, node))

    def pods_on(self, name: NodeName) -> Iterable[Pod]:
        """Pods with cards of this node."""
        return self._following.pods_on.get(name, {}).values()

    @property
    def members(self) -> Mapping[str, Members]:
        """By gang."""
        return self._following.members


def rows_of(pods: Iterable[Pod], snapshot: Snapshot, node: Node) -> tuple[ShareRow, ...]:
    """The shares of these pods of a node."""
    return shares_of(pods, snapshot.gangs, {card.uuid: card.model for card in node.cards})


def held_cards(node: Node, rows: Iterable[ShareRow]) -> tuple[HeldCard, ...]:
    """The cards of one node, in the order of their index."""
    on_card: Mapping[CardId, list[ShareRow]] = by_card(rows)
    return tuple(
        HeldCard(
            card.index,
            card.model,
            card.memory_mib,
            card.usable and node.offers_cards,
            _by_namespace(on_card.get(card.uuid, ())),
        )
        for card in sorted(node.cards, key=lambda card: card.index)
    )


def _by_namespace(rows: Iterable[ShareRow]) -> dict[str, Held]:
    found: dict[str, Held] = {}
    known: set[str] = set()
    for row in rows:
        held = _held(row, pods=row.pod_uid not in known)
        known.add(row.pod_uid)
        before = found.get(row.namespace)
        found[row.namespace] = held if before is None else before.plus(held)
    return found


def _held(row: ShareRow, *, pods: bool) -> Held:
    if row.asleep:
        return Held(int(pods), 0, row.memory_mib)
    high = row.cores_percent if row.share_class is not ShareClass.LOW else 0
    low = row.cores_percent if row.share_class is not ShareClass.HIGH else 0
    return Held(int(pods), row.on_card_mib, 0, high, low)
