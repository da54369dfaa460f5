"""``kubectl egpu cards``: who shares what. Pure: documents in, rows out."""

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from vc_egpu.cli import world
from vc_egpu.core.model.words import few
from vc_egpu.kube import Json
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards


@dataclass(frozen=True, slots=True)
class Sharer:
    """One container's share of one card."""

    pod: str
    """``namespace/name``."""
    container: str
    share_class: str
    """high, unset or low."""
    memory_mib: int
    on_card_mib: int
    """Of that, what may lie on the card; 0 while the pod is suspended."""
    cores_percent: int
    phase: str
    """The pod's; ``Suspended`` while it has left its cards for a while."""
    queue: str


@dataclass(frozen=True, slots=True)
class CardRow:
    """One card and who is on it."""

    node: str
    index: int
    uuid: str
    model: str
    memory_mib: int
    """What the ledger counts."""
    used_mib: int
    """On the card itself; at least so much where pods are ``unseen``, as the cores below."""
    suspended_mib: int
    """Of shares that have left the card for a while and come back to it."""
    cores_high_percent: int
    """Promised to high and unset shares together."""
    cores_low_percent: int
    """Promised to unset and low shares together."""
    state: str
    """``ok``, or why it takes nothing new."""
    sharers: tuple[Sharer, ...]
    unseen: int
    """Pods that the agent still holds a share for and that are not among the pods that were read."""


@dataclass(frozen=True, slots=True)
class CardsReport:
    """All cards, and what is to be said beside them."""

    cards: tuple[CardRow, ...]
    notes: tuple[str, ...]


def report(
    nodes: Iterable[Json],
    pods: Iterable[Json],
    nominal_mib: Mapping[str, int] | None = None,
    *,
    partial: str = "",
) -> CardsReport:
    """Join the nodes' inventories with the pods' cards.

    ``nominal_mib`` is the model table; without it a card counts what the driver reports. ``partial`` says in
    words that not all pods could be read.
    """
    sharers: dict[str, list[Sharer]] = defaultdict(list)
    known: set[str] = set()
    for pod in pods:
        known.add(pod["metadata"]["uid"])
        for uuid, sharer in _sharers(pod):
            sharers[uuid].append(sharer)
    rows: list[CardRow] = []
    notes = [partial] if partial else []
    without = 0
    for node in sorted(nodes, key=lambda node: str(node["metadata"]["name"])):
        inventory = world.inventory_of(node)
        if inventory is None:
            without += 1
            continue
        name = str(node["metadata"]["name"])
        if inventory.problem:
            notes.append(f"{name} takes nothing: {inventory.problem}")
        if strangers := world.cordoned_strangers(node, inventory):
            notes.append(f"{name} cordons {', '.join(strangers)}, which it has not")
        for card in sorted(inventory.cards, key=lambda card: card.index):
            nominal = (nominal_mib or {}).get(card.model, card.memory_mib)
            on_it = sorted(sharers.pop(card.uuid, []), key=lambda sharer: sharer.pod)
            unseen = len(set(card.held) - known)
            rows.append(
                _row(
                    name,
                    card,
                    nominal_mib=nominal,
                    state=_state(node, inventory, card),
                    sharers=on_it,
                    unseen=unseen,
                )
            )
    if any(row.unseen for row in rows):
        notes.append("+? is what the pods have that are not seen here")
    if not rows:
        notes.append(f"no node has cards ({without} without an agent's inventory): try `kubectl egpu doctor`")
    for uuid, lost in sorted(sharers.items()):
        notes.append(f"{', '.join(s.pod for s in lost)} holds {uuid}, which no node reports now")
    return CardsReport(tuple(rows), tuple(notes))


def of_node(whole: CardsReport, node: str) -> CardsReport:
    """The cards of one node; where it has none, a note names what is near, or some nodes that have cards."""
    cards = tuple(card for card in whole.cards if card.node == node)
    if cards:
        return replace(whole, cards=cards)
    known = sorted({card.node for card in whole.cards})
    near = difflib.get_close_matches(node, known, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are some on {few(known) or 'none'}"
    return CardsReport((), (*whole.notes, f"no cards on {node}; {hint}"))


def _sharers(pod: Json) -> list[tuple[str, Sharer]]:
    cards = world.cards_of(pod)
    if cards is None or world.finished(pod):
        return []
    queue = world.checked_queue(pod)
    return [
        (
            share.uuid,
            Sharer(
                pod=world.key(pod),
                container=container,
                share_class=cards.share_class,
                memory_mib=share.memory_mib,
                on_card_mib=0 if world.is_suspended(pod) else share.on_card_mib,
                cores_percent=share.cores,
                phase=world.phase(pod),
                queue=queue,
            ),
        )
        for container, shares in cards.containers.items()
        for share in shares
    ]


def _row(
    node: str, card: NodeCard, *, nominal_mib: int, state: str, sharers: list[Sharer], unseen: int
) -> CardRow:
    def cores(*classes: str) -> int:
        return sum(s.cores_percent for s in sharers if s.share_class in classes and s.on_card_mib)

    return CardRow(
        node=node,
        index=card.index,
        uuid=card.uuid,
        model=card.model,
        memory_mib=nominal_mib,
        used_mib=sum(sharer.on_card_mib for sharer in sharers),
        suspended_mib=sum(sharer.memory_mib for sharer in sharers if not sharer.on_card_mib),
        cores_high_percent=cores("high", "unset"),
        cores_low_percent=cores("unset", "low"),
        state=state,
        sharers=tuple(sharers),
        unseen=unseen,
    )


def _state(node: Json, inventory: NodeCards, card: NodeCard) -> str:
    checks = (
        (not world.is_ready(node), "node not ready"),
        (bool(inventory.problem), "node takes nothing"),
        (not card.healthy, f"ill: {card.reason}" if card.reason else "ill"),
        (not card.offered, f"not offered: {card.reason}" if card.reason else "not offered"),
        (card.uuid in world.cordoned(node), "cordoned"),
        (bool((node.get("spec") or {}).get("unschedulable")), "node cordoned"),
        (inventory.mode != "shared", inventory.mode),
    )
    return next((word for wrong, word in checks if wrong), "ok")
