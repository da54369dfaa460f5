"""A question as JSON, and its answer for one reader.

Whatever else stands in the document is refused by its name::

    {"job": {...}, "changes": [{"addNodes": {"like": "gpu-1", "count": 4}}, {"drain": "gpu-2"},
     {"cap": {"queue": "team", "resource": "volcano.sh/vgpu-h20", "to": 8}}, {"end": "ns/podgroup"}]}

What is of namespaces that the reader may not see is told in numbers alone. Nodes and cards have names for
readers that may list the pods of all namespaces; others get how many cards of how many nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vc_egpu.admission.serving.callers import ANYWHERE, Sees
from vc_egpu.core.model.cluster import NodeName, QueueName, Snapshot
from vc_egpu.whatif.answers import Answer, Asked, Place
from vc_egpu.whatif.changes import AddNodes, Change, Drain, End, SetCap

Json = dict[str, Any]
MOST_CHANGES: Final = 16
MOST_NODES: Final = 64
"""Added by one change. The question is answered next to the decisions."""
_Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class QuestionError(ValueError):
    """The question cannot be answered; the text says which part of it is wrong."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Nodes(_Part):
    like: _Name
    count: Annotated[int, Field(ge=1, le=MOST_NODES)]


class _Cap(_Part):
    queue: _Name
    resource: _Name
    to: Annotated[int, Field(ge=0, le=1 << 60)] | None


class _AddNodes(_Part):
    addNodes: _Nodes  # noqa: N815 - as it stands in the document


class _Drain(_Part):
    drain: _Name


class _SetCap(_Part):
    cap: _Cap


class _End(_Part):
    end: _Name


class Document(_Part):
    """A question as it is sent."""

    job: Json
    changes: Annotated[list[_AddNodes | _Drain | _SetCap | _End], Field(max_length=MOST_CHANGES)] = []


def read(document: object) -> tuple[Json, tuple[Change, ...]]:
    """The Job and the changes. Raises :class:`QuestionError`, whose text names the part that is wrong."""
    try:
        found = Document.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("_"))
        raise QuestionError(f"{where or 'the question'}: {first['msg']}") from None
    return found.job, tuple(_change(part) for part in found.changes)


def _change(part: _AddNodes | _Drain | _SetCap | _End) -> Change:
    match part:
        case _AddNodes():
            return AddNodes(NodeName(part.addNodes.like), part.addNodes.count)
        case _Drain():
            return Drain(NodeName(part.drain))
        case _SetCap():
            return SetCap(QueueName(part.cap.queue), part.cap.resource, part.cap.to)
        case _End():
            return End(part.end)


def told(answer: Answer, asked: Asked, snapshot: Snapshot, sees: Sees) -> Json:
    """The answer as JSON; no byte of it names what the reader may not see."""
    mine = [entry for entry in answer.going if sees(namespace_of(entry.gang))]
    others = [entry for entry in answer.going if not sees(namespace_of(entry.gang))]
    forecast = answer.forecast
    ends = [key for key in forecast.ends if sees(namespace_of(key))] if forecast is not None else []
    names = hidden(asked, snapshot, sees)
    return {
        "version": 1,
        "gang": answer.gang,
        "outcome": answer.outcome,
        "reason": answer.reason,
        "message": "" if any(name in answer.message for name in names) else answer.message,
        "places": [_place(place, named=sees(ANYWHERE)) for place in answer.places],
        "going": [asdict(entry) for entry in mine],
        "goingOfOthers": {"gangs": len(others), "pods": sum(entry.pods for entry in others)},
        "more": answer.more,
        "moreIsLeast": answer.more_is_bounded,
        "forecast": None
        if forecast is None
        else {
            "at": forecast.at,
            "ends": ends,
            "endsOfOthers": len(forecast.ends) - len(ends),
            "waitingBefore": forecast.waiting_before,
        },
        "unknownEnds": answer.unknown_ends,
        "isCutShort": answer.is_cut_short,
    }


def _place(place: Place, *, named: bool) -> Json:
    told = {"members": place.members, "cardCount": len(place.cards)}
    return {**told, "node": place.node, "cards": list(place.cards)} if named else told


def hidden(asked: Asked, snapshot: Snapshot, sees: Sees) -> Iterator[str]:
    """Names that the reader must not learn: of nodes, and of others' namespaces, gangs, pods and queues."""
    if sees(ANYWHERE):
        return
    own = own_queues(asked.gang.queue, snapshot)
    yield from snapshot.nodes
    yield from (queue for queue in snapshot.queues if queue not in own)
    for key in snapshot.gangs:
        if not sees(namespace_of(key)):
            yield from key.split("/")
    for pod in snapshot.pods.values():
        if not sees(pod.namespace):
            yield from (pod.namespace, pod.name)


def own_queues(name: QueueName | None, snapshot: Snapshot) -> frozenset[QueueName]:
    """A queue and those above it."""
    queues: Mapping[QueueName, Any] = snapshot.queues
    found: set[QueueName] = set()
    while name is not None and name not in found:
        found.add(name)
        name = queues[name].parent if name in queues else None
    return frozenset(found)


def namespace_of(key: str) -> str:
    """The namespace in a gang's key."""
    return key.partition("/")[0]
