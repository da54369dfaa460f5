"""``kubectl egpu cordon`` and ``uncordon``: single cards take nothing new, or take work again.

The list of cordoned cards stands in an annotation of the Node. A write names the version that it was made
for, so that two operators do not undo each other's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import RenderableType

from vc_egpu.cli import world
from vc_egpu.cli.views.table import Table
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import NODES
from vc_egpu.kube.wire.errors import Conflict
from vc_egpu.volcano.words import names

TRIES: Final = 5
"""Agents write their Nodes, too."""


class UnknownCardError(Exception):
    """No node has such a card; the text says how cards are named."""


@dataclass(frozen=True, slots=True)
class CordonOutcome:
    """One card."""

    uuid: str
    node: str
    before: str
    """``cordoned`` or ``offered``."""
    now: str


def run(api: ApiConnection, wanted: Sequence[str], *, undo: bool) -> tuple[CordonOutcome, ...]:
    """Cordon these cards, or offer them again. Raises :class:`UnknownCardError` before it writes anything."""
    nodes = {world.name(node): node for node in api.list(NODES, transform=world.light_node).items}
    found = chosen(nodes.values(), wanted)
    return tuple(
        outcome
        for node, uuids in found.items()
        for outcome in _write(api, nodes[node], node, uuids, undo=undo)
    )


def chosen(nodes: Iterable[Json], wanted: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """By node the UUIDs of these cards: each is a UUID, or ``node/index``."""
    where: dict[str, tuple[str, str]] = {}
    for node in nodes:
        name, inventory = world.name(node), world.inventory_of(node)
        for card in inventory.cards if inventory is not None else ():
            where[card.uuid] = where[f"{name}/{card.index}"] = (name, card.uuid)
        where |= {uuid: (name, uuid) for uuid in world.cordoned(node) if uuid not in where}
    unknown = sorted(set(wanted) - where.keys())
    if unknown:
        hint = "`kubectl egpu cards -o wide` shows the UUIDs; node/index is taken too"
        raise UnknownCardError(f"no node has {', '.join(unknown)}: {hint}")
    found: dict[str, tuple[str, ...]] = {}
    for one in wanted:
        name, uuid = where[one]
        found[name] = (*found.get(name, ()), uuid)
    return found


def _write(
    api: ApiConnection, node: Json, name: str, uuids: Iterable[str], *, undo: bool
) -> list[CordonOutcome]:
    for left in reversed(range(TRIES)):
        before = world.cordoned(node)
        after = before - set(uuids) if undo else before | set(uuids)
        if after != before:
            text = ",".join(sorted(after)) or None
            body = {
                "metadata": {
                    "annotations": {names.CORDONED_CARDS: text},
                    "resourceVersion": node["metadata"]["resourceVersion"],
                }
            }
            try:
                api.patch(NODES, name, body)
            except Conflict:
                if not left:
                    raise
                node = api.get(NODES, name)
                continue
        return [CordonOutcome(uuid, name, _word(uuid, before), _word(uuid, after)) for uuid in uuids]
    return []


def _word(uuid: str, cordoned: frozenset[str]) -> str:
    return "cordoned" if uuid in cordoned else "offered"


def shown(done: Iterable[CordonOutcome]) -> RenderableType:
    """One line for each card."""
    table = Table("NODE", "CARD", "BEFORE", "NOW")
    for one in done:
        table.add_row(one.node, one.uuid, one.before, one.now)
    return table
