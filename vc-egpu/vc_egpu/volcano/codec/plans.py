"""The plan annotation on a PodGroup: where each member of a gang goes, small enough for large gangs.

The form is compact. A table of nodes has a short hash of each node's card UUIDs. A table of shapes follows,
and one row per member refers to both. The row names cards by their index on the node, one character each.
2,048 members with 8 cards fit into an annotation; what does not fit is refused by name. A reader that finds
another hash on a node knows that the indices no longer mean the same cards.

Rows name the pod's UID as soon as the pod exists. A pod that is made later under the same task and index is
another member, and an old plan does not speak for it.
"""

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vc_egpu.core.layouts.table import ANYWHERE, MAX_PLACES
from vc_egpu.core.model.causes import Account, Cause
from vc_egpu.core.model.cluster import (
    Card,
    CardId,
    Instant,
    MemberPlacement,
    Node,
    NodeName,
    PodUid,
    QueueName,
    Share,
)
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    AnnotationError,
    CauseWord,
    ContainerName,
    CoresPercent,
    MemoryMib,
    SliceName,
)

MAX_PLAN_BYTES: Final = 240 * 1024
"""The API server allows 256 KiB for all annotations of an object; the rest is left to other writers."""
MAX_MEMBERS: Final = 2048
MAX_VICTIMS: Final = 8192
PlanState = Literal["waiting", "ready"]

NO_UID: Final = PodUid("")

_CARD_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
_PLAN_ID: Final = re.compile(r"^([0-9]{1,18})-([0-9]{1,18})$")
_SHARED, _WHOLE, _NATIVE, _WHOLE_NATIVE, _TURNS = range(5)

_MOST_ROWS: Final = 1 << 20
_Index = Annotated[int, Field(strict=True, ge=-1, lt=_MOST_ROWS)]
_CardString = Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]*$", max_length=4096)]
_ShortUid = Annotated[str, Field(max_length=65)]
_CardCount = Annotated[int, Field(strict=True, ge=1, le=64)]
_Kind = Annotated[int, Field(strict=True, ge=0, le=_TURNS)]
_Start = Annotated[int, Field(strict=True, ge=ANYWHERE, lt=MAX_PLACES)]
_PlainRow = tuple[ContainerName, _CardCount, MemoryMib, CoresPercent, _Kind]
_SpillRow = tuple[ContainerName, _CardCount, MemoryMib, CoresPercent, _Kind, MemoryMib]
"""The last is the part of the memory that lies on the card."""
_SliceRow = tuple[ContainerName, _CardCount, MemoryMib, CoresPercent, _Kind, SliceName, _Start]
_ContainerRow = _PlainRow | _SpillRow | _SliceRow
_TaskRow = tuple[_Index, _Index, _Index, _CardString, _ShortUid]
_PodRow = tuple[_ShortUid, _Index, _Index, _CardString]
_Microcards = Annotated[int, Field(strict=True, ge=0, lt=1 << 62)]
_AccountRow = tuple[
    Annotated[str, Field(max_length=253)], Annotated[str, Field(max_length=317)], _Microcards, _Microcards
]
"""Queue, kind of card, and what the queue has and deserves of it."""
_MOST_ACCOUNTS: Final = 8
_TaskName = Annotated[str, Field(min_length=1, max_length=names.LONGEST_TASK, pattern=r"^[^/]+$")]


class PlanTooLargeError(ValueError):
    """The gang's placements do not fit into an annotation; the text names the sizes."""


class _WirePlan(BaseModel):
    """The annotation as it stands."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1]
    id: Annotated[str, Field(pattern=_PLAN_ID.pattern)]
    group: Annotated[str, Field(min_length=1, max_length=64)]
    state: PlanState
    created: Annotated[float, Field(ge=0, lt=1e12)] = 0.0
    victims: Annotated[tuple[_ShortUid, ...], Field(max_length=MAX_VICTIMS)] = ()
    suspends: Annotated[tuple[_ShortUid, ...], Field(max_length=MAX_VICTIMS)] = ()
    cause: CauseWord = Cause.PRIORITY
    """Absent on plans of versions that knew no other cause."""
    relieves: Annotated[str, Field(max_length=253)] = ""
    accounts: Annotated[tuple[_AccountRow, ...], Field(max_length=_MOST_ACCOUNTS)] = ()
    costly: bool = False
    rule: Annotated[str, Field(max_length=63)] = ""
    nodes: Annotated[
        tuple[
            tuple[Annotated[str, Field(min_length=1, max_length=253)], Annotated[str, Field(max_length=16)]],
            ...,
        ],
        Field(max_length=MAX_MEMBERS),
    ] = ()
    shapes: Annotated[tuple[tuple[_ContainerRow, ...], ...], Field(max_length=MAX_MEMBERS)] = ()
    tasks: dict[_TaskName, tuple[_TaskRow, ...]] = {}
    pods: Annotated[tuple[_PodRow, ...], Field(max_length=MAX_MEMBERS)] = ()


@dataclass(frozen=True, slots=True)
class PlannedMember:
    """One member of a plan. ``uid`` is empty while its pod has not been made."""

    placement: MemberPlacement
    uid: PodUid = NO_UID


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan on a PodGroup; ``members`` has keys of :func:`vc_egpu.core.model.cluster.plan_key`."""

    plan_id: str
    group_uid: str
    state: PlanState
    members: Mapping[str, PlannedMember]
    victims: frozenset[PodUid] = frozenset()
    created: Instant = 0.0
    lost: frozenset[str] = field(default_factory=frozenset)
    """Keys of members whose node is gone or has other cards by now; they are not in ``members``."""
    suspends: frozenset[PodUid] = frozenset()
    """Those of the victims that are suspended, not evicted."""
    cause: Cause = Cause.PRIORITY
    """Why the victims go."""
    accounts: tuple[Account, ...] = ()
    """What queues have and deserve, where that is why they go; the gang's own comes first."""
    relieves: QueueName | None = None
    """The highest queue in whose cap the victims make room; None: they make room on cards alone."""
    costly: bool = False
    """Others went for it, or for members that have not been bound yet. A plan that is ready has no victims
    any more, and still had its price."""
    rule: str = ""
    """The operator's rule by which its members were placed; empty: none."""

    def __post_init__(self) -> None:
        if self.state == "waiting" and not self.victims:
            raise ValueError(f"plan {self.plan_id} waits, and names no victims")
        if not self.suspends <= self.victims:
            raise ValueError(f"plan {self.plan_id} suspends pods that are no victims of it")

    @property
    def epoch(self) -> int:
        """The lease epoch of the leader that wrote it."""
        return epoch_of(self.plan_id)

    def ready(self) -> "PlanRecord":
        """The same plan once its victims are gone."""
        return replace(
            self, state="ready", victims=frozenset(), suspends=frozenset(), accounts=(), relieves=None
        )


def task_name(text: str) -> str:
    """The name of a task; empty for what is none: no plan that named it could be read again."""
    return text if len(text) <= names.LONGEST_TASK and "/" not in text else ""


def can_name(task: str, index: int) -> bool:
    """Whether a plan can name a member by its task and its index. Other members go by their UID.

    A user who makes pods without a Job may write anything there.
    """
    return task_name(task) != "" and 0 <= index < _MOST_ROWS


def plan_id(epoch: int, number: int) -> str:
    """``<lease epoch>-<counter within that leadership>``."""
    return f"{epoch}-{number}"


def epoch_of(text: str) -> int:
    """The epoch in a plan id; -1 for what is no plan id."""
    match = _PLAN_ID.fullmatch(text)
    return int(match.group(1)) if match else -1


def cards_hash(cards: Iterable[Card]) -> str:
    """Eight hex digits that change when a node's card indices mean other cards."""
    text = "\n".join(f"{card.index}={card.uuid}" for card in sorted(cards, key=lambda card: card.index))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def encode(record: PlanRecord, nodes: Mapping[NodeName, Node]) -> str:
    """The annotation's text. Raises :class:`PlanTooLargeError`; ``KeyError`` for a card its node lacks."""
    if len(record.members) > MAX_MEMBERS:
        raise PlanTooLargeError(f"the plan has {len(record.members)} members, the limit is {MAX_MEMBERS}")
    if len(record.victims) > MAX_VICTIMS:
        raise PlanTooLargeError(f"the plan has {len(record.victims)} victims, the limit is {MAX_VICTIMS}")
    tables = _Tables(nodes)
    tasks: dict[str, list[_TaskRow]] = {}
    pods: list[_PodRow] = []
    for key, member in record.members.items():
        node, shape, cards = tables.row(member.placement)
        task, slash, index = key.rpartition("/")
        if slash:
            tasks.setdefault(task, []).append((int(index), node, shape, cards, _short_uid(member.uid)))
        else:
            pods.append((_short_uid(PodUid(key)), node, shape, cards))
    wire = _WirePlan.model_construct(
        version=1,
        id=record.plan_id,
        group=record.group_uid,
        state=record.state,
        created=record.created,
        victims=tuple(_short_uid(uid) for uid in sorted(record.victims)),
        suspends=tuple(_short_uid(uid) for uid in sorted(record.suspends)),
        cause=record.cause,
        relieves=record.relieves or "",
        accounts=tuple(_account_row(account) for account in record.accounts[:_MOST_ACCOUNTS]),
        costly=record.costly,
        rule=record.rule,
        nodes=tuple(tables.nodes),
        shapes=tuple(tables.shapes),
        tasks={task: tuple(rows) for task, rows in tasks.items()},
        pods=tuple(pods),
    )
    text = wire.model_dump_json(exclude_defaults=True)
    if len(text) > MAX_PLAN_BYTES:
        raise PlanTooLargeError(
            f"the plan of {len(record.members)} members has {len(text)} bytes, the limit is {MAX_PLAN_BYTES}"
        )
    return text


def decode(text: str, nodes: Mapping[NodeName, Node]) -> PlanRecord:
    """Read the annotation against the present inventory.

    Raises :class:`AnnotationError` for what is no plan. Members whose node is gone, or whose node's cards are
    not those that the plan was made for, are listed in ``lost``.
    """
    if len(text) > 2 * MAX_PLAN_BYTES:
        raise AnnotationError(f"the plan: {len(text)} bytes, the limit is {MAX_PLAN_BYTES}")
    try:
        wire = _WirePlan.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"]) or "the document"
        raise AnnotationError(f"{path}: {first['msg']}") from error
    reader = _Reader(wire, nodes)
    members: dict[str, PlannedMember] = {}
    lost: set[str] = set()
    rows = [(f"{task}/{row[0]}", row[4], row[1:4]) for task, rows in wire.tasks.items() for row in rows]
    rows += [(_long_uid(row[0]), row[0], row[1:4]) for row in wire.pods]
    for key, uid, (node, shape, cards) in rows:
        if key in members or key in lost:
            raise AnnotationError(f"member {key} stands in the plan twice")
        placement = reader.placement(key, node, shape, cards)
        if placement is None:
            lost.add(key)
        else:
            members[key] = PlannedMember(placement, PodUid(_long_uid(uid)))
    try:
        return PlanRecord(
            plan_id=wire.id,
            group_uid=wire.group,
            state=wire.state,
            members=members,
            victims=frozenset(PodUid(_long_uid(uid)) for uid in wire.victims),
            suspends=frozenset(PodUid(_long_uid(uid)) for uid in wire.suspends),
            cause=wire.cause,
            relieves=QueueName(wire.relieves) if wire.relieves else None,
            accounts=tuple(Account(*row) for row in wire.accounts),
            costly=wire.costly,
            rule=wire.rule,
            created=wire.created,
            lost=frozenset(lost),
        )
    except ValueError as error:
        raise AnnotationError(str(error)) from error


def _account_row(account: Account) -> _AccountRow:
    return account.queue, account.resource, account.has_microcards, account.deserved_microcards


class _Tables:
    """Collects the node and shape tables while rows are written."""

    def __init__(self, inventory: Mapping[NodeName, Node]) -> None:
        self._inventory = inventory
        self._node_rows: dict[NodeName, int] = {}
        self._digits: dict[NodeName, dict[CardId, str]] = {}
        self._shape_rows: dict[tuple[_ContainerRow, ...], int] = {}
        self.nodes: list[tuple[str, str]] = []
        self.shapes: list[tuple[_ContainerRow, ...]] = []

    def row(self, placement: MemberPlacement) -> tuple[int, int, str]:
        """(node row or -1, shape row, card string)."""
        shape = _shape_of(placement.shares)
        if shape not in self._shape_rows:
            self._shape_rows[shape] = len(self.shapes)
            self.shapes.append(shape)
        if placement.node is None:
            return -1, self._shape_rows[shape], ""
        node = placement.node
        if node not in self._node_rows:
            cards = self._inventory[node].cards if node in self._inventory else ()
            self._node_rows[node] = len(self.nodes)
            self._digits[node] = {card.uuid: _CARD_DIGITS[card.index] for card in cards}
            self.nodes.append((str(node), cards_hash(cards)))
        digits = self._digits[node]
        return (
            self._node_rows[node],
            self._shape_rows[shape],
            "".join(digits[share.card] for _, share in placement.shares),
        )


class _Reader:
    """Turns rows back into placements."""

    def __init__(self, wire: _WirePlan, inventory: Mapping[NodeName, Node]) -> None:
        self._shapes = wire.shapes
        self._nodes: list[tuple[NodeName, dict[str, CardId] | None]] = []
        for name, digest in wire.nodes:
            node = inventory.get(NodeName(name))
            same = node is not None and cards_hash(node.cards) == digest
            cards = {_CARD_DIGITS[c.index]: c.uuid for c in node.cards} if node is not None and same else None
            self._nodes.append((NodeName(name), cards))

    def placement(self, key: str, node: int, shape: int, cards: str) -> MemberPlacement | None:
        if node >= len(self._nodes) or not 0 <= shape < len(self._shapes):
            raise AnnotationError(f"member {key}: row {node} or {shape} does not exist")
        containers = self._shapes[shape]
        if sum(row[1] for row in containers) != len(cards):
            raise AnnotationError(f"member {key}: {len(cards)} cards for a shape with another number")
        if node < 0:
            return MemberPlacement(None)
        name, by_digit = self._nodes[node]
        if by_digit is None:
            return None
        shares: list[tuple[str, Share]] = []
        digits = iter(cards)
        for row in containers:
            container, count, memory_mib, cores_percent, kind = row[:5]
            physical_mib = row[5] if len(row) == 6 else None
            template, start = (row[5], row[6]) if len(row) == 7 else ("", ANYWHERE)
            if physical_mib is not None and physical_mib > memory_mib:
                raise AnnotationError(f"member {key}: {physical_mib} of {memory_mib} MiB lie on the card")
            for _ in range(count):
                card = by_digit.get(next(digits))
                if card is None:
                    return None
                share = Share(
                    card,
                    memory_mib,
                    cores_percent,
                    whole=kind in {_WHOLE, _WHOLE_NATIVE},
                    native=kind in {_NATIVE, _WHOLE_NATIVE},
                    physical_mib=physical_mib,
                    swap=kind == _TURNS,
                    slice=template,
                    start=start,
                )
                shares.append((container, share))
        return MemberPlacement(name, tuple(shares))


def _shape_of(shares: tuple[tuple[str, Share], ...]) -> tuple[_ContainerRow, ...]:
    rows: list[_ContainerRow] = []
    for container, share in shares:
        kind = (_WHOLE if share.whole else _SHARED) + (_NATIVE if share.native else _SHARED)
        kind = _TURNS if share.swap else kind
        last = rows[-1] if rows else None
        row = _row(container, 1, share, kind)
        if last is not None and (last[0], *last[2:]) == (row[0], *row[2:]):
            rows[-1] = _row(container, last[1] + 1, share, kind)
        else:
            rows.append(row)
    return tuple(rows)


def _row(container: str, count: int, share: Share, kind: int) -> _ContainerRow:
    plain = (container, count, share.memory_mib, share.cores_percent, kind)
    if share.slice:
        return (*plain, share.slice, share.start)
    return plain if share.physical_mib is None else (*plain, share.physical_mib)


def _short_uid(uid: PodUid) -> str:
    """22 characters for a canonical UUID; anything else stands as it is, after an equals sign."""
    if not uid:
        return ""
    try:
        parsed = uuid.UUID(uid)
    except ValueError:
        return "=" + uid
    if str(parsed) != uid:
        return "=" + uid
    return base64.urlsafe_b64encode(parsed.bytes).rstrip(b"=").decode()


def _long_uid(text: str) -> str:
    if not text:
        return ""
    if text.startswith("="):
        return text[1:]
    try:
        return str(uuid.UUID(bytes=base64.urlsafe_b64decode(text + "==")))
    except (ValueError, binascii.Error) as error:
        raise AnnotationError(f"{text!r} is no UID") from error
