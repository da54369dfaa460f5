"""Rows of cards, shares and queues as lines of metrics. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from vc_egpu.core.model.cluster import Instant, Node, Queue, QueueName
from vc_egpu.metrics.family import CARD, MIB, SHARE, Family
from vc_egpu.metrics.text import escaped, header, labels_of, line
from vc_egpu.metrics.vocabulary import admission as vocabulary
from vc_egpu.report import queues as of_queues
from vc_egpu.report.cards import CardRow, HostRow, cards_of, hosts_of
from vc_egpu.report.gangs import GangRow
from vc_egpu.report.shares import CLASS_WORDS, ShareRow

_PERCENT: Final = 0.01


def card_lines(node: Node, rows: Sequence[ShareRow]) -> tuple[str, ...]:
    """The lines of one node's cards and of its host memory: a text for each family of the page."""
    card_rows = cards_of((node,), rows)
    labels = [labels_of(CARD, (row.node, row.uuid, str(row.index), row.model)) for row in card_rows]
    found = {
        family.name: "".join(
            [f"{family.name}{{{told}}} {value(row)}\n" for told, row in zip(labels, card_rows, strict=True)]
        )
        for family, value in _OF_CARDS
    }
    name = vocabulary.CARD_CORES_ALLOCATED.name
    found[name] = "".join(
        f'{name}{{{told},side="{side}"}} {_ratio(percent)}\n'
        for told, row in zip(labels, card_rows, strict=True)
        for side, percent in (("high", row.cores_high_percent), ("low", row.cores_low_percent))
    )
    slices = vocabulary.CARD_SLICES.name
    found[slices] = "".join(
        f'{slices}{{{told},slice="{escaped(size)}"}} {given}\n'
        for told, row in zip(labels, card_rows, strict=True)
        for size, given in row.slices
    )
    for host in hosts_of((node,), card_rows):
        for name, told, size_mib in _of_host(host):
            found[name] = f"{found.get(name, '')}{name}{{{told}}} {size_mib * MIB}\n"
    return tuple(found.get(family.name, "") for family in vocabulary.CARDS)


def _suspendable(row: CardRow) -> int:
    return sum([share.could_be_suspended for share in row.shares])


_OF_CARDS: Final[tuple[tuple[Family, Callable[[CardRow], int]], ...]] = (
    (vocabulary.CARD_MEMORY, lambda row: row.memory_mib * MIB),
    (vocabulary.CARD_MEMORY_ALLOCATED, lambda row: row.allocated_mib * MIB),
    (vocabulary.CARD_SHARERS, lambda row: row.sharers),
    (vocabulary.CARD_SUSPENDED, lambda row: row.suspended),
    (vocabulary.CARD_SUSPENDABLE, _suspendable),
    (vocabulary.CARD_USABLE, lambda row: int(row.takes_shares)),
)


def _of_host(row: HostRow) -> Iterable[tuple[str, str, int]]:
    node = f'node="{escaped(row.node)}"'
    booked = vocabulary.HOST_MEMORY_BOOKED.name
    return (
        (vocabulary.HOST_MEMORY.name, node, row.memory_mib),
        (booked, f'{node},for="spilling"', row.spilled_mib),
        (booked, f'{node},for="suspended"', row.suspended_mib),
    )


def share_lines(rows: Iterable[ShareRow]) -> tuple[str, ...]:
    """The lines of one node's shares: a text for each family of the page.

    A pod that was deleted with force may still hold its cards while its successor of the same name starts.
    A series has one value: the later one's.
    """
    memory, cores, away = [], [], []
    latest = {(row.namespace, row.pod, row.container, row.uuid): row for row in rows}
    memory_name, cores_name = vocabulary.SHARE_MEMORY.name, vocabulary.SHARE_CORES.name
    for key, row in latest.items():
        gang = (row.gang or "").partition("/")[2]
        told = (*key, row.node or "", row.model, row.queue or "", gang, CLASS_WORDS[row.share_class])
        labels = labels_of(vocabulary.SHARE_MEMORY.labels, told)
        memory.append(f"{memory_name}{{{labels}}} {row.memory_mib * MIB}\n")
        cores.append(f"{cores_name}{{{labels}}} {_ratio(row.cores_percent)}\n")
        if row.asleep:
            away.append(line(vocabulary.SHARE_SUSPENDED.name, labels_of(SHARE, key), 1))
    return "".join(memory), "".join(cores), "".join(away)


def queue_lines(
    queues: Mapping[QueueName, Queue],
    used: Mapping[QueueName, Mapping[str, int]],
    waiting: Sequence[GangRow],
    now: Instant,
) -> str:
    """All families of queues; ``waiting`` are the gangs that wait, ``now`` is Unix time in seconds."""
    return "".join(
        (
            _amounts(vocabulary.QUEUE_USED, ((name, used.get(name, {})) for name in queues)),
            _amounts(vocabulary.QUEUE_CAPABILITY, ((q.name, q.capability) for q in queues.values())),
            _amounts(vocabulary.QUEUE_DESERVED, ((q.name, q.deserved) for q in queues.values())),
            _amounts(vocabulary.QUEUE_GUARANTEE, ((q.name, q.guarantee) for q in queues.values())),
            _family(
                vocabulary.QUEUE_WAITING_GANGS,
                (
                    ((queue, reason, CLASS_WORDS[share_class]), count)
                    for queue, counts in sorted(of_queues.waiting(waiting).items())
                    for (reason, share_class), count in sorted(counts.items())
                ),
            ),
            _amounts(vocabulary.QUEUE_WAITING_RESOURCES, sorted(of_queues.asked(waiting).items())),
            _family(
                vocabulary.QUEUE_OLDEST_WAITING_SECONDS,
                (
                    ((queue, reason), max(0.0, now - since))
                    for (queue, reason), since in sorted(of_queues.oldest(waiting).items())
                ),
            ),
            _family(
                vocabulary.QUEUE_INFO,
                (((q.name, q.parent or "", "Open" if q.open else "Closed"), 1) for q in queues.values()),
            ),
        )
    )


def _amounts(family: Family, rows: Iterable[tuple[str, Mapping[str, int]]]) -> str:
    return _family(
        family, (((queue, resource), value) for queue, of in rows for resource, value in of.items())
    )


def _family(family: Family, samples: Iterable[tuple[Sequence[str], float]]) -> str:
    lines = [line(family.name, labels_of(family.labels, labels), value) for labels, value in samples]
    return header(family) + "".join(lines)


@lru_cache(maxsize=1024)
def _ratio(percent: int) -> str:
    return f"{percent * _PERCENT:g}"
