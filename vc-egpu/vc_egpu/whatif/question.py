"""A question: which gang, and what is supposed to be otherwise."""

from dataclasses import dataclass, field
from typing import Final

from vc_egpu.core.model.cluster import Gang, NodeName, PodShape, QueueName

MOST_CHANGES: Final = 16
MOST_NODES_ADDED: Final = 64
"""By one question, together."""

Tasks = tuple[tuple[str, int, PodShape], ...]
"""(task, members, shape)."""


class QuestionError(ValueError):
    """The question cannot be answered; the text says which part of it is wrong."""


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Nodes like one that is there are added, empty and in order."""

    like: NodeName
    count: int


@dataclass(frozen=True, slots=True)
class Drain:
    """The node takes nothing new, and what runs there has to go."""

    node: NodeName


@dataclass(frozen=True, slots=True)
class SetCap:
    """The queue's cap of one resource is set; None: it names none any more."""

    queue: QueueName
    resource: str
    amount: int | None
    """Whole units: cards, MiB, percent, milli-CPU, bytes."""


@dataclass(frozen=True, slots=True)
class End:
    """A gang ends now."""

    gang: str


Change = AddNodes | Drain | SetCap | End


@dataclass(frozen=True, slots=True)
class Question:
    """About ``gang`` with ``tasks``; without tasks, about the gang of that key that waits already."""

    key: str
    gang: Gang | None = None
    tasks: Tasks = ()
    changes: tuple[Change, ...] = field(default=())

    def __post_init__(self) -> None:
        if len(self.changes) > MOST_CHANGES:
            raise QuestionError(f"{len(self.changes)} changes are too many: at most {MOST_CHANGES}")
        added = sum(change.count for change in self.changes if isinstance(change, AddNodes))
        if added > MOST_NODES_ADDED:
            raise QuestionError(f"{added} nodes are too many: at most {MOST_NODES_ADDED} are added")
