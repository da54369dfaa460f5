"""What sits on cards and nodes: a structure of arrays, changed by one booking at a time.

Rows are nodes, columns are a node's cards, so that "how many fit on each node" is arithmetic over whole
arrays. A :class:`Booking` is everything one pod (or one planned member) takes; adding and removing it are
exact inverses. Sums may go beyond a card's limits: a waiting plan overlaps its victims, or a ratio was
lowered. Then nothing more fits there, and that is all that happens.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Final

import numpy as np
import numpy.typing as npt

from vc_egpu.core.books.booking import (
    OF_HIGH,
    OF_SEVERAL,
    TURNS,
    Booking,
    HostPort,
    Seat,
    requests_of,
    seat_of,
    slots_of,
    takes_side,
)
from vc_egpu.core.books.marks import Domains, Marks
from vc_egpu.core.layouts.cuts import Cuts
from vc_egpu.core.layouts.table import Held
from vc_egpu.core.model.cluster import (
    FULL_CORES_PERCENT,
    Card,
    CardId,
    Mode,
    Node,
    NodeName,
    PodShape,
    Share,
    ShareClass,
)
from vc_egpu.core.model.neighbours import NO_NEIGHBOURS
from vc_egpu.core.model.resources import AMOUNT_LIMIT, PERMILLE, add_to, clamp, cores_at, permille
from vc_egpu.core.topology.groups import Grouping, grouping_of
from vc_egpu.core.topology.network import Network
from vc_egpu.core.topology.ways import wiring_of
from vc_egpu.core.topology.wiring import Wiring

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Columns = dict[str, Ints]

EVERYBODY: Final = 2
"""No class has this value."""
_FIRST_ROWS: Final = 16
_FIRST_WIDTH: Final = 8
_AMOUNTS: Final = Seat._fields.index("slice")
"""So many fields of a seat are numbers that are added up, and its column."""
_STATE: Final = (1 << 62) - 1
_FAR: Final = 0x9E3779B97F4A7C15
"""An odd number without a pattern: its multiples lie far apart."""
_MANY: Final = 24
"""From so many bookings on, arrays are quicker."""


class _Unoffered:
    """What pods take of extended resources that no node offers, by row and name.

    Nothing fits by it, but some node may offer the name later. Makers of pods may name any number of them.
    """

    def __init__(self) -> None:
        self._taken: dict[int, dict[str, int]] = {}

    def add(self, row: int, name: str, amount: int) -> None:
        """Count so much more, or less, on a row."""
        add_to(self._taken.setdefault(row, {}), name, amount)

    def claim(self, name: str) -> dict[int, int]:
        """By row, what is taken of a name that is offered from now on."""
        return {row: amount for row, taken in self._taken.items() if (amount := taken.pop(name, 0))}


class Ledger:
    """Cards and nodes with what is booked on them.

    All arrays have one row per node; those of cards have shape (rows, width). Units: memory in MiB,
    cores in percent of a card, node resources as in :class:`Booking`. Rows of removed nodes are reused
    and look like closed nodes without cards. ``flat``: cards on which high does not run over low.
    ``cuts``: slices of fixed size; ``slices`` is each card's state by its catalogue, 0 without a layout.
    ``sides``: by card, the sides of its shares (:func:`.booking.side_of`), which matter where ``apart`` is.
    """

    apart = False
    _most_free: tuple[int, ...] | None = None
    signature = 0
    """A sum over all that is booked: while nodes are the same, equal sums are equal ledgers."""

    def __init__(self) -> None:
        self.rows: dict[NodeName, int] = {}
        self.names: list[NodeName | None] = [None] * _FIRST_ROWS
        self.kinds: dict[tuple[str, Mode], int] = {}
        self._kind_rows, self._kind_memory = dict[int, Flags](), dict[int, int]()
        self._free_rows: list[int] = list(range(_FIRST_ROWS - 1, -1, -1))
        # ``columns``: per row, UUID to column.
        self.columns: list[dict[CardId, int]] = [{} for _ in range(_FIRST_ROWS)]
        self.uuids: list[tuple[CardId, ...]] = [() for _ in range(_FIRST_ROWS)]
        cards = (_FIRST_ROWS, _FIRST_WIDTH)
        # ``wired``: per row, how its cards reach each other, by column; None: that is not known.
        # ``grouped``: by row, where a rule says which of its cards may go together.
        self.wired: list[Wiring | None] = [None] * _FIRST_ROWS
        self.kind: Ints = np.full(cards, -1, np.int64)
        """Which (model, mode), by :attr:`kinds`; -1: no card."""
        self.usable, self.flat = np.zeros(cards, np.bool_), np.zeros(cards, np.bool_)
        self.memory_cap: Ints = np.zeros(cards, np.int64)
        """Memory that may be promised; ``physical_cap`` is what the card itself has of it."""
        self.memory_used: Ints = np.zeros(cards, np.int64)
        self.physical_cap: Ints = np.zeros(cards, np.int64)
        self.physical_used: Ints = np.zeros(cards, np.int64)
        self.stretched, self.any_flat, self.cuts, self.grouped = False, False, Cuts(), dict[int, Grouping]()
        """True once any node promises more memory than there is: until then both sums are the same."""
        self.high_cores: Ints = np.zeros(cards, np.int64)
        self.low_cores: Ints = np.zeros(cards, np.int64)
        self.all_cores: Ints = np.zeros(cards, np.int64)
        self.sharers: Ints = np.zeros(cards, np.int64)
        """All shares, suspended ones too: ``asleep`` counts those."""
        self.asleep: Ints = np.zeros(cards, np.int64)
        self.alone, self.slices, self.sides = (np.zeros(cards, np.int64) for _ in range(3))
        self.row_memory: Ints = np.zeros(_FIRST_ROWS, np.int64)
        """Sum of ``memory_used`` over the row, as the next three: to order nodes without looking at cards."""
        self.row_cores: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self.row_memory_cap: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self.row_cards: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self.ratio: Ints = np.zeros(_FIRST_ROWS, np.int64)
        """Memory ratio in thousandths. ``host_cap``: MiB that shares may spill or be suspended to."""
        self.host_cap: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self.host_used: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self.ratio_class: Ints = np.full(_FIRST_ROWS, EVERYBODY, np.int64)
        """Whom the ratios are for: a :class:`.cluster.ShareClass`, or EVERYBODY."""
        self.high_cap: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self.low_cap: Ints = np.zeros(_FIRST_ROWS, np.int64)
        """Bounds of ``high_cores`` and ``low_cores`` on each card."""
        self.max_sharers: Ints = np.zeros(_FIRST_ROWS, np.int64)
        self.cap: Ints = np.zeros((_FIRST_ROWS, 4), np.int64)
        # ``states``: by row, a number for how it stands: the same for equal bookings. A change of the node
        # gives it one unlike any before.
        self.used, self.states = np.zeros((_FIRST_ROWS, 4), np.int64), np.zeros(_FIRST_ROWS, np.int64)
        self.scalar_cap: dict[str, Ints] = {}
        self.scalar_used, self.unoffered, self.network = Columns(), _Unoffered(), Network()
        self.slot_cap: dict[str, Ints] = {}
        self.slot_used: dict[str, Ints] = {}
        self.ports, self.marks = dict[int, Mapping[HostPort, int]](), Marks(Domains(_FIRST_ROWS))
        self._touched, self._last_copy, self._numbers = set[int](), object(), count(1)
        """Rows that were booked on since the last copy (of a copy: since it was made), and its mark."""

    @property
    def domains(self) -> Domains:
        """Which nodes have the same value of a label."""
        return self.marks.domains

    # --- nodes -----------------------------------------------------------------------------------

    def put_node(self, node: Node) -> int:
        """Enter or replace a node; bookings on it stay as they are, so its cards must keep their columns.

        A caller that changes a node's cards removes the bookings first and adds them again.
        """
        self._most_free = None
        row = self.rows.get(node.name)
        if row is None:
            if not self._free_rows:
                self._grow_rows()
            row = self._free_rows.pop()
            self.rows[node.name] = row
            self.names[row] = node.name
        self.marks.domains.put(row, node.labels, len(self.names))
        unique = {card.uuid: card for card in reversed(node.cards)}
        cards = sorted(unique.values(), key=lambda card: (card.index, card.uuid))
        while len(cards) > self.kind.shape[1]:
            self._grow_width()
        self.columns[row] = {card.uuid: col for col, card in enumerate(cards)}
        self.uuids[row] = tuple(card.uuid for card in cards)
        self.wired[row] = wiring_of(cards)
        grouping = grouping_of(cards)
        if grouping is not None:
            self.grouped[row] = grouping
        else:
            self.grouped.pop(row, None)
        self.network.put(row, node.name, node.network, len(self.names))
        self._enter_cards(row, node, cards)
        allocatable = node.allocatable
        self.cap[row] = (
            clamp(allocatable.cpu_milli),
            clamp(allocatable.memory_bytes),
            clamp(allocatable.ephemeral_bytes),
            clamp(allocatable.pods),
        )
        self._enter_named(row, self.scalar_cap, self.scalar_used, allocatable.scalars, absent=0)
        # Slots bound only where the kubelet reports any: before that, the ledger alone decides.
        self._enter_named(
            row, self.slot_cap, self.slot_used, node.slots, absent=0 if node.slots else AMOUNT_LIMIT
        )
        return row

    def _enter_cards(self, row: int, node: Node, cards: list[Card]) -> None:
        self._kind_rows.clear()
        self._kind_memory.clear()
        self._changes(row)
        self.kind[row] = -1
        self.usable[row] = False
        self.memory_cap[row] = 0
        self.physical_cap[row] = 0
        ratio = permille(node.memory_ratio)
        self.ratio[row] = ratio
        self.stretched = self.stretched or ratio > PERMILLE
        self.host_cap[row] = clamp(node.host_memory_mib)
        for col, card in enumerate(cards):
            self.kind[row, col] = self.kind_of(card.model, node.mode)
            self.usable[row, col] = card.usable and node.offers_cards
            memory_mib = clamp(card.memory_mib)
            flat = self.flat[row, col] = not card.stack
            self.any_flat = self.any_flat or bool(flat)
            promised = min(ratio, PERMILLE) if flat else ratio
            self.memory_cap[row, col] = memory_mib * promised // PERMILLE
            self.physical_cap[row, col] = memory_mib * min(ratio, PERMILLE) // PERMILLE
        self.cuts.enter(row, [(card.layout, card.foreign) for card in cards], self.slices)
        self.row_memory_cap[row] = self.memory_cap[row].sum()
        self.row_cards[row] = len(cards)
        cores = cores_at(node.core_ratio)
        self.ratio_class[row] = EVERYBODY if node.ratio_class is None else node.ratio_class
        self.high_cap[row] = FULL_CORES_PERCENT if node.ratio_class is ShareClass.LOW else cores
        self.low_cap[row] = FULL_CORES_PERCENT if node.ratio_class is ShareClass.HIGH else cores
        self.max_sharers[row] = clamp(node.max_sharers)

    def _enter_named(
        self, row: int, caps: Columns, used: Columns, values: Mapping[str, int], *, absent: int
    ) -> None:
        for name in values:
            if name not in caps:
                # Nodes that do not name a scalar have none; nodes entered earlier are known to lack it.
                caps[name] = self._new_column(caps)
                column = used.setdefault(name, np.zeros(len(self.names), np.int64))
                if caps is self.scalar_cap:
                    for taken_row, amount in self.unoffered.claim(name).items():
                        column[taken_row] = amount
        for name, column in caps.items():
            column[row] = clamp(values[name]) if name in values else absent

    def _new_column(self, caps: Columns) -> Ints:
        column = np.zeros(len(self.names), np.int64)
        if caps is self.slot_cap:
            # A node that reports no slots at all is unbounded in every name.
            bounded = np.zeros(len(self.names), np.bool_)
            for other in caps.values():
                bounded |= other < AMOUNT_LIMIT
            column[~bounded] = AMOUNT_LIMIT
        return column

    def remove_node(self, name: NodeName) -> None:
        """Forget a node; its bookings must have been removed."""
        row = self.rows.pop(name, None)
        if row is None:
            return
        self._kind_rows.clear()
        self._kind_memory.clear()
        self._changes(row)
        self.names[row] = None
        self.marks.domains.put(row, None, len(self.names))
        self.columns[row] = {}
        self.uuids[row], self.wired[row] = (), None
        self.grouped.pop(row, None)
        self.network.put(row, "", (), len(self.names))
        self.kind[row] = -1
        self.usable[row] = False
        self.cuts.enter(row, (), self.slices)
        for cards in (
            self.flat,
            self.memory_cap,
            self.physical_cap,
            self.ratio,
            self.host_cap,
            self.row_memory_cap,
            self.row_cards,
            self.cap,
            self.high_cap,
            self.low_cap,
            self.max_sharers,
        ):
            cards[row] = 0
        for column in self.scalar_cap.values():
            column[row] = 0
        for column in self.slot_cap.values():
            column[row] = AMOUNT_LIMIT
        self._free_rows.append(row)

    def most_free(self) -> tuple[int, ...]:
        """No node has more cpu, memory, disk and room for pods left than this.

        What is booked makes it less, so it is worked out again only after something was removed.
        """
        if self._most_free is None:
            self._most_free = tuple((self.cap - self.used).max(axis=0).tolist())
        return self._most_free

    def rows_with(self, kind: int) -> Flags:
        """By row: whether the node has a usable card of this (model, mode). Not to be written to."""
        known = self._kind_rows.get(kind)
        if known is None or len(known) != len(self.names):
            known = self._kind_rows[kind] = ((self.kind == kind) & self.usable).any(axis=1)
        return known

    def memory_of(self, kind: int) -> int:
        """MiB of a card of this (model, mode), as much as may be promised; 1 where there is none."""
        known = self._kind_memory.get(kind)
        if known is None:
            known = self._kind_memory[kind] = int(self.memory_cap[self.kind == kind].max(initial=1))
        return known

    def ratio_for(self, row: int, share_class: ShareClass) -> int:
        """Memory ratio in thousandths, as it is for that class."""
        mine = self.ratio_class[row] in (EVERYBODY, share_class)
        return int(self.ratio[row]) if mine else min(int(self.ratio[row]), PERMILLE)

    def scalar_free(self, name: str, row: int) -> int:
        """What a node has left of an extended resource."""
        cap = self.scalar_cap.get(name)
        return int(cap[row] - self.scalar_used[name][row]) if cap is not None else 0

    def kind_of(self, model: str, mode: Mode) -> int:
        """The number of a (model, mode); a new one gets the next."""
        return self.kinds.setdefault((model, mode), len(self.kinds))

    # --- bookings --------------------------------------------------------------------------------

    def booking(
        self,
        node: NodeName,
        shape: PodShape | None,
        shares: Iterable[Share],
        share_class: ShareClass,
        *,
        several: bool = False,
    ) -> Booking | None:
        """What a pod of this shape with these shares takes; None where the node is not known.

        ``shape`` None: only the shares count (the pod object is gone, its cards are still held).
        Shares of cards that the node does not report are left out: there is nothing to count them on.
        """
        row = self.rows.get(node)
        if row is None:
            return None
        columns = self.columns[row]
        seats = tuple(
            seat_of(columns[share.card], share, share_class, several=several)
            for share in shares
            if share.card in columns
        )
        if shape is None:
            return Booking(row, (0, 0, 0, 0), seats)
        scalars = tuple((name, clamp(n)) for name, n in sorted(shape.requests.scalars.items()) if n > 0)
        ports = shape.host_ports
        marks = shape.neighbours.marks if shape.neighbours is not NO_NEIGHBOURS else ()  # most have none
        return Booking(row, requests_of(shape), seats, scalars, slots_of(shape), ports, marks)

    def add(self, booking: Booking) -> None:
        """Book; O(1) per share."""
        self._apply(booking, 1)

    def remove(self, booking: Booking) -> None:
        """Undo :meth:`add` of an equal booking."""
        self._most_free = None
        self._apply(booking, -1)

    def add_all(self, bookings: Sequence[Booking]) -> None:
        """:meth:`add` of many: arithmetic over arrays instead of one number after the other."""
        self._apply_all(bookings, 1)

    def remove_all(self, bookings: Sequence[Booking]) -> None:
        """:meth:`remove` of many."""
        self._most_free = None
        self._apply_all(bookings, -1)

    def _apply_all(self, bookings: Sequence[Booking], sign: int) -> None:
        if len(bookings) < _MANY:
            for booking in bookings:
                self._apply(booking, sign)
            return
        self._apply_seats(bookings, sign)
        rows = np.array([booking.row for booking in bookings], np.int64)
        requests = np.array([booking.requests for booking in bookings], np.int64)
        np.add.at(self.used, rows, sign * requests)
        for booking in bookings:
            self._stands(booking, sign)
            if booking.scalars or booking.slots or booking.ports or booking.marks:
                self._apply_named(booking, sign)

    def _apply_seats(self, bookings: Iterable[Booking], sign: int) -> None:
        placed = [(booking.row, seat) for booking in bookings for seat in booking.seats]
        seats = [(row, *seat[:_AMOUNTS]) for row, seat in placed]
        if not seats:
            return
        for where, seat in placed:
            if seat.slice:
                self.cuts.cut(where, seat.col, Held(seat.slice, seat.start), sign, self.slices)
        row, col, *signed = np.array(seats, np.int64).T
        memory, physical, host, cores, high, low, alone, asleep, side = (sign * parts for parts in signed)
        self.stretched = self.stretched or bool(host.any() or asleep.any())
        cards = row * self.kind.shape[1] + col
        for column, amounts in (
            (self.memory_used, memory),
            (self.physical_used, physical),
            (self.all_cores, cores),
            (self.high_cores, high),
            (self.low_cores, low),
            (self.sharers, np.full_like(col, sign)),
            (self.alone, alone),
            (self.asleep, asleep),
            (self.sides, side),
        ):
            np.add.at(column.reshape(-1), cards, amounts)
        for column, amounts in ((self.host_used, host), (self.row_memory, memory), (self.row_cores, cores)):
            np.add.at(column, row, amounts)

    def _apply(self, booking: Booking, sign: int) -> None:
        row = booking.row
        self._stands(booking, sign)
        for seat in booking.seats:
            col = seat.col
            self.memory_used[row, col] += sign * seat.memory_mib
            self.physical_used[row, col] += sign * seat.physical_mib
            self.all_cores[row, col] += sign * seat.cores_percent
            self.high_cores[row, col] += sign * seat.high
            self.low_cores[row, col] += sign * seat.low
            self.sharers[row, col] += sign
            self.alone[row, col] += sign * seat.alone
            self.sides[row, col] += sign * seat.side
            if seat.slice:
                self.cuts.cut(row, col, Held(seat.slice, seat.start), sign, self.slices)
            if seat.host_mib or seat.asleep:
                self.asleep[row, col] += sign * seat.asleep
                self.host_used[row] += sign * seat.host_mib
                self.stretched = True
            self.row_memory[row] += sign * seat.memory_mib
            self.row_cores[row] += sign * seat.cores_percent
        used = self.used[row]
        for dimension, amount in enumerate(booking.requests):
            if amount:
                used[dimension] += sign * amount
        self._apply_named(booking, sign)

    def _apply_named(self, booking: Booking, sign: int) -> None:
        """What has names: extended resources, slots, ports, and rules between pods."""
        row = booking.row
        for name, amount in booking.scalars:
            if name in self.scalar_cap:
                self.scalar_used[name][row] += sign * amount
            else:
                self.unoffered.add(row, name, sign * amount)
        for name, amount in booking.slots:
            self._slots_used(name)[row] += sign * amount
        if booking.ports:
            self._apply_ports(row, booking.ports, sign)
        if booking.marks:
            self.marks.add(row, booking.marks, sign)

    def _changes(self, row: int) -> None:
        """The node is another one now."""
        self._touched.add(row)
        self.states[row] = (int(self.states[row]) + next(self._numbers) * _FAR) & _STATE

    def _stands(self, booking: Booking, sign: int) -> None:
        """The row of this booking stands otherwise, and so does the ledger."""
        row, mark = booking.row, sign * booking.mark
        self._touched.add(row)
        self.signature += mark
        self.states[row] = (int(self.states[row]) + mark) & _STATE

    def _slots_used(self, name: str) -> Ints:
        if name not in self.slot_used:
            self.slot_used[name] = np.zeros(len(self.names), np.int64)
        return self.slot_used[name]

    def _apply_ports(self, row: int, ports: Iterable[HostPort], sign: int) -> None:
        # Replaced, never changed in place: copies of the ledger share these mappings.
        now = dict(self.ports.get(row, {}))
        for port in ports:
            count = now.get(port, 0) + sign
            if count > 0:
                now[port] = count
            else:
                now.pop(port, None)
        if now:
            self.ports[row] = now
        else:
            self.ports.pop(row, None)

    def within_limits(self, rows: Ints) -> Flags:
        """For each of ``rows``: whether nothing on the node or its cards is beyond its limits."""
        sharers = self.sharers[rows]
        cards = (
            (self.memory_used[rows] <= self.memory_cap[rows])
            & (self.physical_used[rows] <= self.physical_cap[rows])
            & (self.high_cores[rows] <= self.high_cap[rows][:, None])
            & (self.low_cores[rows] <= self.low_cap[rows][:, None])
            & (sharers <= self.max_sharers[rows][:, None])
            & self.side_by_side(self.alone[rows], sharers - self.asleep[rows])
        )
        if self.any_flat:
            cards &= ~self.flat[rows] | (self.all_cores[rows] <= FULL_CORES_PERCENT)
        if self.cuts:
            cards &= ~self.cuts.catalogue.full[self.slices[rows]]
        if self.apart:
            sides = self.sides[rows]
            cards &= takes_side(sides, OF_HIGH) | takes_side(sides, OF_SEVERAL)
        host = self.host_used[rows] <= self.host_cap[rows]
        return np.asarray(cards.all(axis=1) & (self.used[rows] <= self.cap[rows]).all(axis=1) & host)

    @staticmethod
    def side_by_side(alone: Ints, awake: Ints) -> Flags:
        """By card: whether a whole card has no neighbour, and those that take turns have none but such."""
        return np.asarray(
            (alone == 0) | ((alone < TURNS) & (awake == 1)) | (alone == TURNS * awake), np.bool_
        )

    # --- copies and growth -----------------------------------------------------------------------

    def copy(self, spare: "Ledger | None" = None) -> "Ledger":
        """A ledger to try things on: facts of nodes are shared, what is booked is copied.

        ``spare``: an earlier copy that is not needed any more; its memory is used again. If it is the last
        copy made and few rows were booked on since, on either side, only these rows are copied.
        """
        rows: Ints | slice = slice(None)
        if spare is not None and spare._last_copy is self._last_copy:
            touched = self._touched | spare._touched
            if len(touched) < len(self.names) // 4:
                rows = np.fromiter(touched, np.int64, len(touched))
        other = object.__new__(Ledger)
        self._touched, self._last_copy = set[int](), object()
        other.__dict__.update(self.__dict__)
        other._touched = set[int]()
        for name in BOOKED:
            array = getattr(self, name)
            room = getattr(spare, name, None)
            if room is not None and room.shape == array.shape:
                room[rows] = array[rows]
                setattr(other, name, room)
            else:
                setattr(other, name, array.copy())
        other.scalar_used = {name: column.copy() for name, column in self.scalar_used.items()}
        other.slot_used = {name: column.copy() for name, column in self.slot_used.items()}
        other.ports, other.unoffered = dict(self.ports), _Unoffered()
        other.marks = self.marks.copy()
        other.cuts = self.cuts.copy()
        return other

    def _grow_rows(self) -> None:
        before = len(self.names)
        extra = before
        self.names += [None] * extra
        self.marks.domains.put(before, None, before + extra)
        self.columns += [{} for _ in range(extra)]
        self.uuids += [()] * extra
        self.wired += [None] * extra
        self._free_rows = list(range(before + extra - 1, before - 1, -1))
        for name in (*BOOKED, *_FACTS):
            array = getattr(self, name)
            fill = -1 if name == "kind" else 0
            tail = np.full((extra, *array.shape[1:]), fill, array.dtype)
            setattr(self, name, np.concatenate([array, tail]))
        for columns, fill in (
            (self.scalar_cap, 0),
            (self.scalar_used, 0),
            (self.slot_used, 0),
            (self.slot_cap, AMOUNT_LIMIT),
        ):
            for name, column in columns.items():
                columns[name] = np.concatenate([column, np.full(extra, fill, np.int64)])

    def _grow_width(self) -> None:
        for name in (*BOOKED, *_FACTS):
            array = getattr(self, name)
            if name in _PER_CARD:
                fill = -1 if name == "kind" else 0
                setattr(self, name, np.concatenate([array, np.full(array.shape, fill, array.dtype)], axis=1))


BOOKED: Final = (
    "memory_used", "physical_used", "high_cores", "low_cores", "all_cores", "sharers", "asleep", "alone",
    "host_used", "used", "row_memory", "row_cores", "states", "slices", "sides",
)  # fmt: skip
"""Columns that bookings change: each copy has its own."""
_FACTS: Final = (
    "kind", "usable", "memory_cap", "physical_cap", "ratio", "ratio_class", "host_cap", "high_cap", "low_cap",
    "max_sharers", "cap", "row_memory_cap", "row_cards", "flat",
)  # fmt: skip
_PER_CARD: Final = frozenset({
    "kind", "usable", "memory_cap", "memory_used", "physical_cap", "physical_used", "high_cores", "low_cores",
    "all_cores", "sharers", "asleep", "alone", "flat", "slices", "sides",
})  # fmt: skip
