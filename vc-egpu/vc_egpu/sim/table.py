"""Tables of nodes and pods as values: the columns of the openb trace, and a few of ours that may be absent.

Nodes: ``sn, cpu_milli, memory_mib, gpu, model``. Pods: ``name, cpu_milli, memory_mib, num_gpu, gpu_milli,
gpu_spec``, and where they are known ``creation_time, deletion_time`` in seconds. Ours: ``arrival_s,
lifetime_s, gang, queue, class`` (``high``, ``low`` or empty), ``gpu_memory_milli``, and for rules of
placement ``owner`` and ``labels`` (``key=value``, by ``;``). Files may end in ``.gz``.

A pod of such a table takes cards of any model, or of some. A card of ours has one model. So all cards here
are of one model, :data:`MODEL`, of 1,000 MiB: a thousandth of a card is a MiB. The label :data:`MODEL_LABEL`
of a node names the table's model, and a pod with ``gpu_spec`` has a node affinity for it.
"""

import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from vc_egpu.core.model.cluster import (
    Card,
    CardAsk,
    CardId,
    Node,
    NodeName,
    PodShape,
    Requirement,
    Resources,
    ShareClass,
)

MODEL: Final = "gpu"
MODEL_LABEL: Final = "egpu.volcano.sh/table-model"
CARD_MILLI: Final = 1000
_MIB: Final = 1 << 20
_PODS_PER_NODE: Final = 100_000
"""The tables know no such limit."""
_CLASSES: Final[Mapping[str, ShareClass]] = {
    "": ShareClass.UNSET,
    "high": ShareClass.HIGH,
    "low": ShareClass.LOW,
}
Row = Mapping[str, str]


class TableError(ValueError):
    """A row that means nothing; the text names file, line and column."""


@dataclass(frozen=True, slots=True)
class PodRow:
    """One pod of a table."""

    name: str
    shape: PodShape
    gpu_milli: int
    """Thousandths of a card that all its cards count together."""
    gang: str = ""
    """Empty: it is a gang of its own."""
    queue: str = ""
    share_class: ShareClass = ShareClass.UNSET
    arrival_s: float | None = None
    lifetime_s: float | None = None
    """None: it never ends."""
    owner: str = ""
    """The kind of what makes it, as rules of placement name it."""
    labels: Mapping[str, str] = field(default_factory=dict)


def rows_of(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a CSV file with their line numbers. Raises ``OSError``, and :class:`TableError`."""
    raw = path.read_bytes()
    try:
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise TableError(f"{path}: {error}") from error
    reader = csv.DictReader(io.StringIO(text, newline=""))
    for row in reader:
        if None in row or None in row.values():
            raise TableError(f"{path}:{reader.line_num}: not as many values as the first line has names")
        yield reader.line_num, {name.strip(): value.strip() for name, value in row.items()}


def nodes_of(path: Path) -> list[Node]:
    """The nodes of a table, in its order, under their own names."""
    found = [_node(_Cells(path, line, row)) for line, row in rows_of(path)]
    _unique(path, [node.name for node in found])
    return found


def pods_of(path: Path) -> list[PodRow]:
    """The pods of a table, in its order."""
    found = [_pod(_Cells(path, line, row)) for line, row in rows_of(path)]
    _unique(path, [pod.name for pod in found])
    return found


def renamed(nodes: Sequence[Node], order: Iterable[int]) -> list[Node]:
    """The nodes under names that sort as ``order`` says: it has their numbers, the first one first.

    Nodes that a policy values alike go by their names.
    """
    found = []
    for place, number in enumerate(order):
        node = nodes[number]
        found.append(
            _named(NodeName(f"{place:05d}.{node.name}"), node.allocatable, node.labels, len(node.cards))
        )
    return found


def _node(cells: "_Cells") -> Node:
    resources = Resources(cells.whole("cpu_milli"), cells.whole("memory_mib") * _MIB, pods=_PODS_PER_NODE)
    labels = {MODEL_LABEL: cells.text("model")}
    return _named(NodeName(cells.text("sn")), resources, labels, cells.whole("gpu", at_most=64))


def _named(name: NodeName, allocatable: Resources, labels: Mapping[str, str], cards: int) -> Node:
    return Node(
        name,
        allocatable,
        labels=labels,
        cards=tuple(Card(CardId(f"{name}/{i}"), i, MODEL, CARD_MILLI) for i in range(cards)),
    )


def _pod(cells: "_Cells") -> PodRow:
    cards, milli = cells.whole("num_gpu", at_most=64), cells.whole("gpu_milli", at_most=CARD_MILLI)
    asks: tuple[CardAsk, ...] = ()
    if cards and milli:
        memory = cells.whole("gpu_memory_milli", at_most=CARD_MILLI, default=milli)
        whole = milli == CARD_MILLI
        cores = 0 if memory == milli and not whole else -(-milli // 10)  # only then do the two differ
        asks = (CardAsk("main", MODEL, cards, max(1, memory), cores, whole=whole),)
    models = tuple(sorted({model for model in cells.text("gpu_spec", default="").split("|") if model}))
    shape = PodShape(
        asks=asks,
        requests=Resources(cells.whole("cpu_milli"), cells.whole("memory_mib") * _MIB),
        affinity_terms=((Requirement(MODEL_LABEL, "In", models),),) if models else (),
    )
    share_class = _CLASSES.get(cells.text("class", default=""))
    if share_class is None:
        raise cells.error("class", "is none of high, low and empty")
    return PodRow(
        name=cells.text("name"),
        shape=shape,
        gpu_milli=cards * milli,
        gang=cells.text("gang", default=""),
        queue=cells.text("queue", default=""),
        share_class=share_class,
        arrival_s=cells.seconds("arrival_s", "creation_time"),
        lifetime_s=_lifetime(cells),
        owner=cells.text("owner", default=""),
        labels=_labels(cells),
    )


def _labels(cells: "_Cells") -> dict[str, str]:
    found: dict[str, str] = {}
    for part in cells.text("labels", default="").split(";"):
        key, sign, value = part.strip().partition("=")
        if part.strip() and not (key and sign):
            raise cells.error("labels", "is not key=value, by ;")
        found |= {key: value} if key else {}
    return found


def _lifetime(cells: "_Cells") -> float | None:
    lifetime_s = cells.seconds("lifetime_s")
    if lifetime_s is not None:
        return lifetime_s
    created, deleted = cells.seconds("creation_time"), cells.seconds("deletion_time")
    if created is None or deleted is None:
        return None
    if deleted < created:
        raise cells.error("deletion_time", "lies before creation_time")
    return deleted - created


def _unique(path: Path, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TableError(f"{path}: {name} is there twice")
        seen.add(name)


@dataclass(frozen=True, slots=True)
class _Cells:
    """One row, and where it stands."""

    path: Path
    line: int
    row: Row

    def error(self, column: str, what: str) -> TableError:
        return TableError(f"{self.path}:{self.line}: {column} {self.row.get(column, '')!r} {what}")

    def text(self, column: str, *, default: str | None = None) -> str:
        value = self.row.get(column)
        if value is None:
            if default is None:
                raise TableError(f"{self.path}: there is no column {column}")
            return default
        if not value and default is None:
            raise self.error(column, "is empty")
        return value

    def whole(self, column: str, *, at_most: int = 1 << 40, default: int | None = None) -> int:
        text = self.text(column, default="" if default is not None else None)
        if not text and default is not None:
            return default
        try:
            number = float(text)
            if not 0 <= number <= at_most:
                raise self.error(column, f"is not between 0 and {at_most}")
        except ValueError as error:
            raise error if isinstance(error, TableError) else self.error(column, "is no number") from None
        return round(number)

    def seconds(self, *columns: str) -> float | None:
        for column in columns:
            text = self.text(column, default="")
            if text:
                try:
                    return float(text)
                except ValueError:
                    raise self.error(column, "is no number of seconds") from None
        return None
