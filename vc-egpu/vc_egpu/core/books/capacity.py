"""How many pods of one shape each node still takes: arithmetic over whole arrays, exact for one ask per pod.

The rules of a card (memory in MiB, cores in percent of a card):

- the memory of all shares: at most what the node's memory ratio allows;
- the part of it that lies on the card: at most the card's memory;
- what spills to the host: at most the node's budget and the container's own memory limit;
- cores of high + unset, and cores of unset + low: each at most the node's core limit;
- shares: at most the node's number of sharers;
- a whole or native card stands alone, suspended shares aside;
- on cards with a layout: slices only, as its table allows them together, or the whole card;
- where high does not run over low: cores of all together, at most one card's;
- where operators say so: no share of class high next to one of a low gang of several pods.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from vc_egpu.core.books.booking import (
    TURNS,
    HostPort,
    Seat,
    cores_of,
    requests_of,
    side_of,
    slots_of,
    takes_side,
)
from vc_egpu.core.books.ledger import EVERYBODY, Flags, Ints, Ledger
from vc_egpu.core.layouts.catalogue import NO_LAYOUT
from vc_egpu.core.layouts.table import ANYWHERE
from vc_egpu.core.model.cluster import FULL_CORES_PERCENT, CardAsk, Mode, NodeName, PodShape, ShareClass
from vc_egpu.core.model.findings import NodeLack, NodeResource
from vc_egpu.core.model.neighbours import Mark, label_of
from vc_egpu.core.model.resources import PERMILLE, clamp, physical_mib
from vc_egpu.core.topology.groups import Grouping, pods_by_cards

_CHUNK: Final = 1024
_FIRST_ROWS: Final = 128
_GROWTH: Final = 8
"""Where the first rows have no room, most of the next have none either."""
_NAMED_PORTS: Final = 8
"""So many host ports are told of by number."""
MANY: Final = 4096
"""More members than any gang may have: where a bound of this is reached, nothing binds."""

Rows = Ints | slice
Cols = tuple[int, ...]
Assignment = tuple[Cols, ...]
"""For each ask of a pod, in order: the columns it got."""


class AskNeed(NamedTuple):
    """One container's ask in the ledger's terms."""

    ask: CardAsk
    kind: int
    cards: int
    memory_mib: int
    cores_percent: int
    high: int
    low: int
    alone: bool
    physical_mib: int
    """The part of the memory that lies on the card; on a node that oversubscribes see :meth:`here`."""
    spill: bool = False
    side: int = 0
    """:func:`.booking.side_of` its pod."""

    def here(self, ratio_permille: int) -> "AskNeed":
        """The ask on a node with this memory ratio."""
        if not self.spill:
            return self
        return self._replace(physical_mib=physical_mib(self.memory_mib, ratio_permille))

    @property
    def host_mib(self) -> int:
        """What all its shares take of the node's host memory budget."""
        return self.cards * self.host_each_mib

    @property
    def host_each_mib(self) -> int:
        """The same of one share. At a hand-over all that take turns lie on the host."""
        over = self.memory_mib - self.physical_mib
        return self.memory_mib if self.ask.swap and over else over


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """What one pod of a shape takes, in the ledger's terms."""

    shape: PodShape
    share_class: ShareClass
    asks: tuple[AskNeed, ...]
    requests: tuple[int, int, int, int]
    scalars: tuple[tuple[str, int], ...]
    slots: tuple[tuple[str, int], ...]
    ports: tuple[HostPort, ...]
    marks: tuple[Mark, ...]
    """By which rules between pods count such a pod."""
    limits: tuple[tuple[Mark, int], ...]
    """(mark, most): a node that counts so many already takes no such pod."""
    cards: Flags | None
    """Cards that use-cards and avoid-cards leave, by (row, card); None where the shape names none."""
    possible: bool
    """False: the shape contradicts itself (an avoided model is asked for, or a request is negative)."""
    packed: Mark = ""
    """The mark among the limits that counts members of the gang; empty: it has none."""
    reach: tuple[Flags, ...] = ()
    """For each spread, by row: whether the node counts."""

    @property
    def side(self) -> int:
        """:func:`.booking.side_of` the pod; 0 without cards."""
        return self.asks[0].side if self.asks else 0

    @property
    def uses_cards(self) -> bool:
        """Whether pods of this shape are pinned."""
        return bool(self.asks)

    @property
    def is_wide(self) -> bool:
        """Whether the place of one such pod makes a difference to another one on another node."""
        rules = self.shape.neighbours
        return rules.are_wide or any(label_of(mark) and mark in self.marks for mark, _ in self.limits)

    @property
    def speaks_of_domains(self) -> bool:
        """Whether some rule of it is about more than one node."""
        return self.shape.neighbours.are_wide or any(label_of(mark) for mark, _ in self.limits)

    @property
    def spills(self) -> bool:
        """Whether any of its memory may lie on the host."""
        return any(ask.spill for ask in self.asks)

    def host_mib(self, ratio_permille: int) -> int | None:
        """What a pod takes of the host budget of a node with this memory ratio.

        None: a container's limit is too small for what it spills.
        """
        total = 0
        for ask in self.asks:
            host_mib = ask.here(ratio_permille).host_mib
            limit = ask.ask.host_limit_mib
            if limit is not None and host_mib > limit:
                return None
            total += host_mib
        return total


def need_of(ledger: Ledger, shape: PodShape, share_class: ShareClass, *, several: bool = False) -> Need:
    """Translate a shape; cheap, but worth keeping per shape and class. ``several``: of its gang more than one
    pod has to run at once."""
    asks, side = [], side_of(share_class, several=several)
    for ask in shape.asks:
        high, low = cores_of(share_class, ask.cores_percent)
        kind = ledger.kind_of(ask.model, Mode.NATIVE if ask.native else Mode.SHARED)
        alone = ask.whole or ask.native
        asks.append(
            AskNeed(
                ask,
                kind,
                ask.cards,
                clamp(ask.memory_mib),
                ask.cores_percent,
                high,
                low,
                alone,
                clamp(ask.memory_mib),
                ask.spill and not alone,
                side,
            )
        )
    requests = shape.requests
    amounts = (
        requests.cpu_milli,
        requests.memory_bytes,
        requests.ephemeral_bytes,
        *requests.scalars.values(),
    )
    return Need(
        shape=shape,
        share_class=share_class,
        asks=tuple(asks),
        requests=requests_of(shape),
        scalars=_scalars_of(ledger, shape),
        slots=slots_of(shape),
        ports=shape.host_ports,
        marks=shape.neighbours.marks,
        limits=shape.neighbours.limits,
        cards=card_filter(ledger, shape),
        possible=min(amounts, default=0) >= 0 and all(_model_allowed(shape, ask.model) for ask in shape.asks),
    )


def _scalars_of(ledger: Ledger, shape: PodShape) -> tuple[tuple[str, int], ...]:
    """The extended resources that it asks of nodes.

    One that no node offers is enough to find no place, and a pod may name any number of those.
    """
    named = [(name, clamp(n)) for name, n in sorted(shape.requests.scalars.items()) if n > 0]
    nowhere = [entry for entry in named if entry[0] not in ledger.scalar_cap]
    return (*(entry for entry in named if entry[0] in ledger.scalar_cap), *nowhere[:1])


def _model_allowed(shape: PodShape, model: str) -> bool:
    return model not in shape.avoid_models and (not shape.use_models or model in shape.use_models)


def card_filter(ledger: Ledger, shape: PodShape) -> Flags | None:
    """Cards that the shape's use-cards and avoid-cards leave; None where it names none."""
    if not shape.use_cards and not shape.avoid_cards:
        return None
    allowed = np.full(ledger.kind.shape, not shape.use_cards, np.bool_)
    for row, columns in enumerate(ledger.columns):
        if not columns:
            continue
        # Through the node's cards, which are few: a pod may name any number.
        for uuid in shape.use_cards.intersection(columns):
            allowed[row, columns[uuid]] = True
        for uuid in shape.avoid_cards.intersection(columns):
            allowed[row, columns[uuid]] = False
    return allowed


def copies(ledger: Ledger, need: Need, ask: AskNeed, rows: Rows) -> tuple[Ints, Ints]:
    """By (row, card): how many shares like this the card still takes; and how many that disturb no other.

    A share that disturbs no other keeps all classes together within the core limit. The two are the same
    array where it makes no difference.
    """
    fits = (ledger.kind[rows] == ask.kind) & ledger.usable[rows]
    awake = ledger.sharers[rows] - ledger.asleep[rows] if ask.ask.swap else 0
    fits &= ledger.alone[rows] == TURNS * awake
    if ledger.apart and ask.side:
        fits &= takes_side(ledger.sides[rows], ask.side)
    if ledger.cuts and not ask.ask.slice:
        states = ledger.slices[rows]
        fits &= ledger.cuts.catalogue.whole[states] if ask.ask.whole else states == NO_LAYOUT
    if need.cards is not None:
        fits &= need.cards[rows]
    count = _by_memory(ledger, need, ask, rows)
    if ask.ask.slice:
        np.minimum(count, ledger.cuts.catalogue.copies(ask.ask.slice)[ledger.slices[rows]], out=count)
    if ask.alone:
        np.minimum(count, ledger.sharers[rows] == ledger.asleep[rows], out=count)
        np.minimum(count, ledger.sharers[rows] < ledger.max_sharers[rows][:, None], out=count)
    else:
        np.minimum(count, ledger.max_sharers[rows][:, None] - ledger.sharers[rows], out=count)
    if not ask.cores_percent:
        count = np.where(fits, np.clip(count, 0, MANY), 0)
        return count, count
    high, low = ledger.high_cap[rows][:, None], ledger.low_cap[rows][:, None]
    if ask.high:
        np.minimum(count, (high - ledger.high_cores[rows]) // ask.cores_percent, out=count)
    if ask.low:
        np.minimum(count, (low - ledger.low_cores[rows]) // ask.cores_percent, out=count)
    if ledger.any_flat:
        together = (FULL_CORES_PERCENT - ledger.all_cores[rows]) // ask.cores_percent
        np.minimum(count, np.where(ledger.flat[rows], together, MANY), out=count)
    count = np.where(fits, np.clip(count, 0, MANY), 0)
    if need.share_class is ShareClass.UNSET:
        return count, count
    calm = np.minimum(count, (np.minimum(high, low) - ledger.all_cores[rows]) // ask.cores_percent)
    return count, np.maximum(calm, 0)


def all_copies(ledger: Ledger, need: Need, ask: AskNeed) -> Ints:
    """The same over all rows, only the first answer. Pieces of the arrays are looked at where they are."""
    starts = range(0, len(ledger.names), _CHUNK)
    return np.concatenate([copies(ledger, need, ask, slice(at, at + _CHUNK))[0] for at in starts])


def _by_memory(ledger: Ledger, need: Need, ask: AskNeed, rows: Rows) -> Ints:
    """By (row, card): how many such shares both sums of memory take."""
    free = ledger.memory_cap[rows] - ledger.memory_used[rows]
    if not ledger.stretched:
        return np.asarray(free // ask.memory_mib, np.int64)
    physical = ledger.physical_cap[rows] - ledger.physical_used[rows]
    if not ask.spill:
        return np.asarray(np.minimum(free, physical) // ask.memory_mib, np.int64)
    each = _physical_by_row(ledger, need, ask, rows)
    return np.asarray(np.minimum(free // ask.memory_mib, physical // each[:, None]), np.int64)


def _physical_by_row(ledger: Ledger, need: Need, ask: AskNeed, rows: Rows) -> Ints:
    """By row: :func:`.resources.physical_mib` of one share, as :meth:`.ledger.Ledger.ratio_for` its class."""
    named = ledger.ratio_class[rows]
    mine = (named == EVERYBODY) | (named == need.share_class)
    ratio = np.where(mine, np.maximum(ledger.ratio[rows], PERMILLE), PERMILLE)
    return np.asarray(-(-ask.memory_mib * PERMILLE // ratio), np.int64)


def pods_by_host(ledger: Ledger, need: Need, rows: Ints) -> Ints:
    """By row: how many such pods the node's host memory takes, and each container's own limit."""
    total = np.zeros(len(rows), np.int64)
    fits = np.ones(len(rows), np.bool_)
    for ask in need.asks:
        if ask.spill:
            host = ask.cards * (ask.memory_mib - _physical_by_row(ledger, need, ask, rows))
            if ask.ask.swap:
                host = np.where(host > 0, ask.cards * ask.memory_mib, 0)
            if ask.ask.host_limit_mib is not None:
                fits &= host <= ask.ask.host_limit_mib
            total += host
    free = np.maximum(ledger.host_cap[rows] - ledger.host_used[rows], 0)
    pods = np.where(total > 0, free // np.maximum(total, 1), MANY)
    return np.asarray(np.where(fits, np.minimum(pods, MANY), 0), np.int64)


def pods_by_groups(ledger: Ledger, ask: AskNeed, rows: Ints, count: Ints) -> Ints:
    """By row: how many pods take the cards of this ask, given the copies per card. Rules say which cards of a
    node may go together."""
    pods = pods_by_cards(count, ask.cards)
    if ask.cards == 1 or not ask.alone or not ledger.grouped:
        return pods
    alike: dict[Grouping, list[int]] = {}
    for position, row in enumerate(rows.tolist()):
        grouping = ledger.grouped.get(row)
        if grouping is not None and pods[position]:
            alike.setdefault(grouping, []).append(position)
    for grouping, positions in alike.items():
        pods[positions] = grouping.pods(count[positions], ask.cards)
    return pods


def pods_by_node(ledger: Ledger, need: Need, rows: Ints) -> Ints:
    """By row: how many pods of this shape the node's own resources take, cards aside."""
    free = ledger.cap[rows] - ledger.used[rows]
    pods = np.clip(free[:, 3], 0, MANY) if need.requests[3] else np.full(len(rows), MANY, np.int64)
    for dimension in range(3):
        request = need.requests[dimension]
        if request:
            np.minimum(pods, free[:, dimension] // request, out=pods)
    for name, request in need.scalars:
        np.minimum(pods, _free(ledger.scalar_cap, ledger.scalar_used, name, rows) // request, out=pods)
    for name, request in need.slots:
        if name in ledger.slot_cap:
            np.minimum(pods, _free(ledger.slot_cap, ledger.slot_used, name, rows) // request, out=pods)
    np.clip(pods, 0, MANY, out=pods)
    if need.ports:
        np.minimum(pods, 1, out=pods)
        asked = by_number(need.ports)
        for position, row in enumerate(rows.tolist()):
            if row in ledger.ports and port_conflict(ledger, row, asked):
                pods[position] = 0
    if need.limits:
        ledger.marks.bound(pods, need.marks, need.limits, rows)
    return np.asarray(pods, np.int64)


def parts_of(need: Need) -> list[tuple[Need, NodeLack]]:
    """The need for each of the node's own resources alone, with what is lacking where that finds no room."""
    bare = replace(need, asks=(), requests=(0, 0, 0, 0), scalars=(), slots=(), ports=(), limits=())
    cpu, memory, disk, pods = need.requests
    alone = ((cpu, 0, 0, 0), (0, memory, 0, 0), (0, 0, disk, 0), (0, 0, 0, pods))
    kinds = (NodeResource.CPU, NodeResource.MEMORY, NodeResource.DISK, NodeResource.PODS)
    parts = [
        (replace(bare, requests=one), NodeLack(kind))
        for one, kind in zip(alone, kinds, strict=True)
        if any(one)
    ]
    for name, amount in need.scalars:
        parts.append((replace(bare, scalars=((name, amount),)), NodeLack(NodeResource.SCALAR, name)))
    for name, amount in need.slots:
        parts.append((replace(bare, slots=((name, amount),)), NodeLack(NodeResource.SLOTS, name)))
    if len(need.ports) > _NAMED_PORTS:
        every = NodeLack(NodeResource.PORTS, count=len(need.ports))
        return [*parts, (replace(bare, ports=need.ports), every)]
    ports = ((replace(bare, ports=(port,)), NodeLack(NodeResource.PORT, str(port[2]))) for port in need.ports)
    return [*parts, *ports]


def _free(caps: dict[str, Ints], used: dict[str, Ints], name: str, rows: Ints) -> Ints:
    cap = caps.get(name)
    if cap is None:
        return np.zeros(len(rows), np.int64)
    taken = used.get(name)
    return cap[rows] - taken[rows] if taken is not None else cap[rows]


def by_number(ports: Iterable[HostPort]) -> dict[tuple[str, int], list[str]]:
    """Addresses by protocol and port."""
    addresses: dict[tuple[str, int], list[str]] = {}
    for address, protocol, port in ports:
        addresses.setdefault((protocol, port), []).append(address)
    return addresses


def port_conflict(ledger: Ledger, row: int, asked: Mapping[tuple[str, int], Iterable[str]]) -> bool:
    """Whether any of these host ports is taken on the node; the wildcard address conflicts with all.

    Goes through those that are taken there: a pod may ask for any number.
    """
    for taken, protocol, port in ledger.ports.get(row, ()):
        for address in asked.get((protocol, port), ()):
            if address == taken or _any_address(address) or _any_address(taken):
                return True
    return False


def _any_address(address: str) -> bool:
    return address in {"", "0.0.0.0", "::"}  # noqa: S104  compared, never bound


def candidates(ledger: Ledger, need: Need, mask: Flags) -> Ints:
    """Rows that may take such pods at all and have usable cards of every kind asked for."""
    if not need.possible or _is_beyond_every_node(ledger, need):
        return np.zeros(0, np.int64)
    rows = mask
    for ask in need.asks:
        rows = rows & ledger.rows_with(ask.kind)
    return np.flatnonzero(rows)


def _is_beyond_every_node(ledger: Ledger, need: Need) -> bool:
    """Whether it asks for more than any node has left, or for what none offers: no node is looked at."""
    too_much = any(
        asked > most for asked, most in zip(need.requests, ledger.most_free(), strict=True) if asked
    )
    return too_much or any(name not in ledger.scalar_cap for name, _ in need.scalars)


def rooms(ledger: Ledger, need: Need, rows: Ints) -> tuple[Ints, Ints]:
    """For each of ``rows``: how many pods of this shape fit, all rules together; how many disturb no other.

    Exact where a pod has one ask at most; an upper bound where its containers share a node's cards between
    several asks. The rows are taken to pass the mask.
    """
    if len(rows) > _CHUNK:
        # Small pieces stay in the processor's cache; temporary arrays over all cards would not.
        parts = [rooms(ledger, need, rows[at : at + _CHUNK]) for at in range(0, len(rows), _CHUNK)]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    room = pods_by_node(ledger, need, rows)
    if ledger.stretched and need.spills:
        room = np.minimum(room, pods_by_host(ledger, need, rows))
    if not need.asks or room.all():
        return _by_all_cards(ledger, need, rows, room)
    # Cards are the dear part: they are not looked at where the node has no room anyway.
    calm, some = room.copy(), np.flatnonzero(room)
    if len(some):
        room[some], calm[some] = _by_all_cards(ledger, need, rows[some], room[some])
    return room, calm


def _by_all_cards(ledger: Ledger, need: Need, rows: Ints, room: Ints) -> tuple[Ints, Ints]:
    """What is left of ``room`` by the cards; and how many of these disturb no other."""
    calm = room
    for ask in need.asks:
        count, still = copies(ledger, need, ask, rows)
        room = np.minimum(room, pods_by_groups(ledger, ask, rows, count))
        calm = np.minimum(calm, room if still is count else pods_by_groups(ledger, ask, rows, still))
    return room, np.minimum(calm, room)


def not_full(ledger: Ledger, need: Need, rows: Ints) -> Ints:
    """Those of ``rows`` where each ask finds a card with memory and cores for it. The others have no room.

    It leaves out some rules, for a fourth of the price of :func:`rooms`. That pays where most nodes are full.
    """
    for ask in need.asks:
        fits = ledger.memory_cap[rows] - ledger.memory_used[rows] >= ask.memory_mib
        if ask.high:
            fits &= ledger.high_cores[rows] <= ledger.high_cap[rows][:, None] - ask.high
        if ask.low:
            fits &= ledger.low_cores[rows] <= ledger.low_cap[rows][:, None] - ask.low
        rows = rows[fits.any(axis=1)]
    return rows


def calm_for(ledger: Ledger, need: Need, rows: Ints) -> Ints:
    """Those of ``rows`` where each ask finds a card with cores for it next to the shares of all classes.

    On the others, a pod of this shape disturbs somebody. Memory and some rules are left out, as above.
    """
    for ask in need.asks:
        limit = np.minimum(ledger.high_cap[rows], ledger.low_cap[rows]) - ask.cores_percent
        fits = (ledger.all_cores[rows] <= limit[:, None]) & (ledger.kind[rows] == ask.kind)
        rows = rows[fits.any(axis=1)]
    return rows


def first_node(ledger: Ledger, shape: PodShape, mask: Flags) -> NodeName | None:
    """The first node by name that takes a pod without cards, where a scheduler may put it."""
    fitting = pods_fitting(ledger, need_of(ledger, shape, ShareClass.UNSET), mask)
    return next((name for name, row in sorted(ledger.rows.items()) if fitting[row] > 0), None)


def pods_fitting(ledger: Ledger, need: Need, mask: Flags) -> Ints:
    """By row, over all rows: how many pods of this shape fit."""
    pods = np.zeros(len(mask), np.int64)
    rows = candidates(ledger, need, mask)
    pods[rows] = rooms(ledger, need, rows)[0]
    return pods


def places(ledger: Ledger, need: Need, mask: Flags) -> int:
    """How many pods of this shape fit in all."""
    return int(rooms(ledger, need, candidates(ledger, need, mask))[0].sum())


def places_up_to(ledger: Ledger, need: Need, mask: Flags, wanted: int) -> int:
    """The same, counted no further than ``wanted``: for most shapes the first few rows are enough."""
    rows = candidates(ledger, need, mask)
    start, size, found = 0, _FIRST_ROWS, 0
    while start < len(rows) and found < wanted:
        some = rows[start : start + size]
        if start:
            some = not_full(ledger, need, some)
        found += int(rooms(ledger, need, some)[0].sum()) if len(some) else 0
        start, size = start + size, size * _GROWTH
    return min(found, wanted)


def seats_of(
    need: Need,
    assignment: Assignment,
    ratio_permille: int,
    starts: Mapping[tuple[int, int], int] | None = None,
) -> tuple[Seat, ...]:
    """What the ledger books for a pod seated so on a node with this memory ratio. ``starts``: by
    (ask, column), where a slice of fixed size begins."""
    begins = starts or {}
    return tuple(
        Seat(
            col,
            ask.memory_mib,
            ask.physical_mib,
            ask.host_each_mib,
            ask.cores_percent,
            ask.high,
            ask.low,
            TURNS if ask.ask.swap else int(ask.alone),
            slice=ask.ask.slice,
            start=begins.get((position, col), ANYWHERE),
            side=ask.side,
        )
        for position, (general, cols) in enumerate(zip(need.asks, assignment, strict=True))
        for ask in (general.here(ratio_permille),)
        for col in cols
    )


def starts_of(ledger: Ledger, need: Need, row: int, assignment: Assignment) -> dict[tuple[int, int], int]:
    """Where each slice of fixed size begins on its card, by (ask, column): at its best place."""
    starts: dict[tuple[int, int], int] = {}
    states: dict[int, int] = {}
    catalogue = ledger.cuts.catalogue
    for position, (ask, cols) in enumerate(zip(need.asks, assignment, strict=True)):
        template = ask.ask.slice
        for col in cols if template else ():
            state = states.get(col, int(ledger.slices[row, col]))
            starts[position, col] = catalogue.place(state, template)
            states[col] = catalogue.after(state, template)
    return starts
