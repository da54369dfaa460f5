"""What a PodGroup remembers of its gang for the next leader. Pure: annotation texts in, values out, and back.

Garbage means that nothing is known. Only the admission controller writes these.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vc_egpu.core.model.causes import Cause
from vc_egpu.core.model.cluster import MOST_GIVEN_UP, Instant, Move, Node, NodeName, Reservation
from vc_egpu.core.model.policy import OFTEN
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.codec.plans import PlannedMember, PlanRecord
from vc_egpu.volcano.words.annotations import AnnotationError

_NO_PLAN: Final = plans.plan_id(0, 0)
"""A claim is written as plans are, and is none."""
_At = Annotated[float, Field(ge=0, lt=1e12)]


class _VictimAt(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    at: Annotated[tuple[_At, ...], Field(max_length=64)] = ()


def encode_victim_at(times: Iterable[Instant]) -> str:
    """When the gang was evicted for others, in seconds since the epoch."""
    return _VictimAt(at=tuple(times)).model_dump_json()


def decode_victim_at(text: str) -> tuple[Instant, ...]:
    """Oldest first, and no more than the rule needs."""
    if not text:
        return ()
    try:
        return tuple(sorted(_VictimAt.model_validate_json(text).at)[-OFTEN:])
    except ValidationError:
        return ()


class _Reserved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    since: _At
    claim: dict[str, Any]


def encode_reservation(reservation: Reservation, group_uid: str, nodes: Mapping[NodeName, Node]) -> str:
    """A reservation with a claim.

    Raises :class:`.plans.PlanTooLargeError`, and ``KeyError`` for a card that its node lacks.
    """
    members = {key: PlannedMember(place) for key, place in reservation.members.items()}
    record = PlanRecord(_NO_PLAN, group_uid, "ready", members, created=reservation.claimed)
    return json.dumps(
        {"version": 1, "since": reservation.since, "claim": json.loads(plans.encode(record, nodes))},
        separators=(",", ":"),
    )


def decode_reservation(text: str, group_uid: str, nodes: Mapping[NodeName, Node]) -> Reservation | None:
    """None for garbage, and for what was written for another PodGroup.

    Where a node is gone or has other cards now, the gang has its place in the line, and no claim any more.
    """
    if not text or len(text) > 2 * plans.MAX_PLAN_BYTES:
        return None
    try:
        wire = _Reserved.model_validate_json(text)
        record = plans.decode(json.dumps(wire.claim), nodes)
    except (ValidationError, AnnotationError, ValueError):
        return None
    if record.group_uid != group_uid:
        return None
    if record.lost:
        return Reservation(wire.since)
    places = {key: member.placement for key, member in record.members.items()}
    return Reservation(wire.since, record.created, places)


class _Moved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    at: _At
    whom: Annotated[str, Field(max_length=512)] = ""
    empties: Annotated[str, Field(max_length=253)] = ""
    won: Annotated[int, Field(ge=0, lt=1 << 40)] = 0
    given_up: Annotated[int, Field(ge=0, le=MOST_GIVEN_UP)] = 0
    counts: Annotated[
        dict[Annotated[str, Field(max_length=317)], Annotated[int, Field(ge=0, lt=1 << 62)]],
        Field(max_length=64),
    ] = {}
    claim: dict[str, Any] | None = None


def encode_move(move: Move, group_uid: str, nodes: Mapping[NodeName, Node]) -> str:
    """A move, with the cards that are claimed for it while it lasts.

    Raises :class:`.plans.PlanTooLargeError`, and ``KeyError`` for a card that its node lacks.
    """
    claim = None
    if move.places:
        members = {key: PlannedMember(place) for key, place in move.places.items()}
        record = PlanRecord(
            _NO_PLAN, group_uid, "waiting", members, victims=move.pods, cause=Cause.DEFRAGMENTATION
        )
        claim = json.loads(plans.encode(record, nodes))
    wire = _Moved(
        at=move.at,
        whom=move.whom,
        won=move.won_milli,
        counts=dict(move.counts),
        claim=claim,
        given_up=move.given_up,
        empties=move.empties,
    )
    return wire.model_dump_json(exclude_defaults=True, exclude_none=True)


def decode_move(text: str, group_uid: str, nodes: Mapping[NodeName, Node]) -> Move | None:
    """None for garbage. What was written for another PodGroup, or for cards that are not there any more,
    claims nothing: then only the instant counts."""
    if not text or len(text) > 2 * plans.MAX_PLAN_BYTES:
        return None
    try:
        wire = _Moved.model_validate_json(text)
    except ValidationError:
        return None
    past = Move(wire.at, whom=wire.whom, won_milli=wire.won, empties=wire.empties)
    if wire.claim is None:
        return replace(past, given_up=wire.given_up)
    try:
        record = plans.decode(json.dumps(wire.claim), nodes)
    except (AnnotationError, ValueError):
        return past
    if record.group_uid != group_uid or record.lost:
        return past
    places = {key: member.placement for key, member in record.members.items()}
    return replace(past, places=places, pods=record.victims, counts=wire.counts, given_up=wire.given_up)


def claims(text: str) -> bool:
    """Whether the text of a move still claims cards."""
    try:
        return bool(text) and _Moved.model_validate_json(text).claim is not None
    except ValidationError:
        return False


def since(text: str) -> Instant | None:
    """Since when the gang waits as the first of its queue; None for garbage."""
    try:
        return _Reserved.model_validate_json(text).since if text else None
    except ValidationError:
        return None
