"""The view of one reader as JSON. Pure.

Work in namespaces whose pods the reader may list has names; all other work is a number. Nodes have names for
readers that may list nodes, and queues for those that may list queues. Others see the queues of their own
gangs. No sentence of a decision is told, since it may name what is of others.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.admission.serving.callers import Sees
from vc_egpu.admission.serving.redacted.held import Held, HeldCard, HeldCards, rows_of
from vc_egpu.admission.view import View
from vc_egpu.core.check.recount import use_by_queue
from vc_egpu.core.model.cluster import NodeName, Queue, QueueName
from vc_egpu.core.model.reasons import Reason
from vc_egpu.report.gangs import NO_MEMBERS, GangRow, condition_of, gang_row
from vc_egpu.report.queues import by_reason, queues, waiting
from vc_egpu.report.shares import CLASS_WORDS, ShareRow

Json = dict[str, Any]
Step = Callable[[], None]
"""Called between two small pieces of work; what it raises ends the answer."""
MOST_CARDS: Final = 50_000
MOST_SHARES: Final = 5_000
MOST_WAITING: Final = 1_000
"""Rows of one answer; the rest is left out, and the answer says so."""
_NODES_AT_ONCE: Final = 64
_NOTHING: Final = Held()


@dataclass(frozen=True, slots=True)
class Eyes:
    """What the reader may see, asked before."""

    everything: bool
    namespaces: frozenset[str]
    """Whose pods it may list; of no matter where it sees everything."""
    nodes: bool
    """Whether it may list nodes."""
    queues: bool
    """Whether it may list queues."""

    def sees(self, namespace: str) -> bool:
        """Whether work there has names."""
        return self.everything or namespace in self.namespaces


def document(view: View, held: HeldCards, eyes: Eyes, step: Step, *, is_cut_short: bool = False) -> Json:
    """The view. ``held`` is up to date with it. ``is_cut_short``: not all could be asked about."""
    nodes, cut_cards = _nodes(view, held, eyes, step)
    rows = _waiting(view, held, step)
    mine = [row for row in rows if eyes.sees(_namespace_of(row.key))]
    own = mine[:MOST_WAITING]
    return {
        "version": 1,
        "revision": view.snapshot.revision,
        "everything": eyes.everything,
        "namespaces": sorted(eyes.namespaces),
        "nodes": nodes,
        "queues": _queues(view, rows, _queues_seen(view, eyes, step)),
        "waiting": [_gang(row) for row in own],
        "waitingOfOthers": len(rows) - len(mine),
        "isCutShort": is_cut_short or cut_cards or len(own) < len(mine),
    }


def _nodes(view: View, held: HeldCards, eyes: Eyes, step: Step) -> tuple[list[Json], bool]:
    """All nodes with cards, and whether some of it is left out."""
    told: list[Json] = []
    cards_left, shares_left = MOST_CARDS, MOST_SHARES
    for number, name in enumerate(sorted(held.nodes)):
        if number % _NODES_AT_ONCE == 0:
            step()
        cards = held.nodes[name]
        cards_left -= len(cards)
        if cards_left < 0:
            return told, True
        rows = _own_rows(view, held, name, cards, eyes.sees) if shares_left > 0 else {}
        shares_left -= sum(map(len, rows.values()))
        told.append(
            {
                "name": name if eyes.nodes or eyes.everything else "",
                "cards": [_card(card, eyes.sees, rows.get(card.index, ())) for card in cards],
            }
        )
    return told, shares_left <= 0


def _own_rows(
    view: View, held: HeldCards, name: NodeName, cards: Iterable[HeldCard], sees: Sees
) -> Mapping[int, list[ShareRow]]:
    """Shares whose names the reader may know, by the index of their card."""
    node = view.snapshot.nodes.get(name)
    if node is None or not any(sees(namespace) for card in cards for namespace in card.held):
        return {}
    index_of = {card.uuid: card.index for card in node.cards}
    found: dict[int, list[ShareRow]] = {}
    for row in rows_of((pod for pod in held.pods_on(name) if sees(pod.namespace)), view.snapshot, node):
        if row.uuid in index_of:
            found.setdefault(index_of[row.uuid], []).append(row)
    return found


def _card(card: HeldCard, sees: Sees, rows: Iterable[ShareRow]) -> Json:
    mine = others = _NOTHING
    for namespace, part in card.held.items():
        if sees(namespace):
            mine = mine.plus(part)
        else:
            others = others.plus(part)
    told: Json = {
        "index": card.index,
        "model": card.model,
        "memoryMiB": card.memory_mib,
        "takesShares": card.takes_shares,
    }
    if mine != _NOTHING:
        told["held"] = _held(mine)
        told["shares"] = [_share(row) for row in rows]
    if others != _NOTHING:
        told["heldByOthers"] = _held(others)
    return told


def _held(held: Held) -> Json:
    return {
        "pods": held.pods,
        "memoryMiB": held.memory_mib,
        "suspendedMiB": held.suspended_mib,
        "coresHighPercent": held.cores_high_percent,
        "coresLowPercent": held.cores_low_percent,
    }


def _share(row: ShareRow) -> Json:
    return {
        "namespace": row.namespace,
        "pod": row.pod,
        "container": row.container,
        "gang": row.gang or "",
        "queue": row.queue or "",
        "class": CLASS_WORDS[row.share_class],
        "memoryMiB": row.memory_mib,
        "onCardMiB": row.occupies_mib,
        "coresPercent": row.cores_percent,
        "suspension": row.suspension.value,
    }


def _waiting(view: View, held: HeldCards, step: Step) -> list[GangRow]:
    """All gangs that wait, the oldest first."""
    rows = []
    for number, (key, said) in enumerate(view.verdicts.items()):
        if number % _NODES_AT_ONCE == 0:
            step()
        gang = view.snapshot.gangs.get(key)
        if gang is not None and said.reason is not Reason.ADMITTED:
            rows.append(gang_row(gang, held.members.get(key, NO_MEMBERS), condition_of(said)))
    return sorted((row for row in rows if row.waits), key=lambda row: (row.asks_since, row.key))


def _gang(row: GangRow) -> Json:
    return {
        "gang": row.key,
        "queue": row.queue,
        "class": CLASS_WORDS[row.share_class],
        "reason": row.condition.reason if row.condition is not None else "",
        "since": row.asks_since,
        "asks": dict(row.asks),
    }


def _queues_seen(view: View, eyes: Eyes, step: Step) -> Mapping[QueueName, Queue]:
    """The queues that have names for the reader."""
    known = view.snapshot.queues
    if eyes.queues or eyes.everything:
        return known
    own: set[QueueName] = set()
    for number, gang in enumerate(view.snapshot.gangs.values()):
        if number % (16 * _NODES_AT_ONCE) == 0:
            step()
        if eyes.sees(_namespace_of(gang.key)) and gang.queue in known:
            own.add(gang.queue)
    return {name: known[name] for name in own}


def _queues(view: View, rows: Iterable[GangRow], seen: Mapping[QueueName, Queue]) -> list[Json]:
    used = use_by_queue(view.snapshot) if view.used is None else view.used
    waits = waiting(rows)
    return [
        {
            "name": row.name,
            "open": row.is_open,
            "used": dict(row.used),
            "capability": dict(row.capability),
            "deserved": dict(row.deserved),
            "guarantee": dict(row.guarantee),
            "waiting": by_reason(waits.get(row.name, {})),
        }
        for row in sorted(queues(view.snapshot, used, ()), key=lambda row: row.name)
        if row.name in seen
    ]


def _namespace_of(key: str) -> str:
    return key.partition("/")[0]
