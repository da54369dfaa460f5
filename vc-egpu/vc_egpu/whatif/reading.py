"""A question as JSON, as the command line sends it.

The Job is a Volcano Job as a user writes it. Whatever else stands in the document is refused by its name::

    {"job": {...}, "changes": [{"addNodes": {"like": "gpu-1", "count": 4}}, {"drain": "gpu-2"},
     {"cap": {"queue": "team", "resource": "volcano.sh/vgpu-h20", "to": 8}}, {"end": "ns/podgroup"}]}

``gang`` instead of ``job`` names a PodGroup that waits: ``ns/podgroup``.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from vc_egpu.core.model.cluster import Gang, NodeName, QueueName
from vc_egpu.whatif.question import (
    MOST_CHANGES,
    MOST_NODES_ADDED,
    AddNodes,
    Change,
    Drain,
    End,
    Question,
    QuestionError,
    SetCap,
    Tasks,
)

Json = Mapping[str, Any]
Asked = tuple[Gang, Tasks]
AskedBy = Callable[[Json], Asked]
"""Reads a Job; raises :class:`QuestionError`."""
Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Key = Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]{1,63}/[a-z0-9.-]{1,253}$")]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Nodes(_Part):
    like: Name
    count: Annotated[int, Field(ge=1, le=MOST_NODES_ADDED)]


class _Cap(_Part):
    queue: Name
    resource: Name
    to: Annotated[int, Field(ge=0, le=1 << 60)] | None


class _AddNodes(_Part):
    addNodes: _Nodes  # noqa: N815 - as it stands in the document


class _Drain(_Part):
    drain: Name


class _SetCap(_Part):
    cap: _Cap


class _End(_Part):
    end: Key


class _Document(_Part):
    version: Literal[1] = 1
    job: dict[str, Any] | None = None
    gang: Key | None = None
    changes: Annotated[list[_AddNodes | _Drain | _SetCap | _End], Field(max_length=MOST_CHANGES)] = []


def question_of(document: object, asked_by: AskedBy) -> Question:
    """The question. Raises :class:`QuestionError`, whose text names the part that is wrong."""
    try:
        read = _Document.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("_"))
        raise QuestionError(f"{where or 'the question'}: {first['msg']}") from None
    changes = tuple(_change(part) for part in read.changes)
    if (read.job is None) == (read.gang is None):
        raise QuestionError("name one of job and gang")
    if read.job is None:
        return Question(str(read.gang), changes=changes)
    gang, tasks = asked_by(read.job)
    return Question(gang.key, gang, tasks, changes)


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
