"""What a node's agent measured in the last 15 minutes: ``egpu.volcano.sh/node-use``.

It orders nodes and refuses nothing. It is hostile input all the same: an intruder on a node may write there.
A text that is too long, or has a field of another form, counts as none. What is read is rounded to steps.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, Self

from pydantic import Field

from vc_egpu.core.measured.use import FULL_POINTS, UNKNOWN, CardUse, NodeUse, in_steps, is_current
from vc_egpu.core.model.cluster import Instant, PodUid
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import MAX_CARDS_PER_NODE, AnnotationError, Uuid, Wire

MAX_PODS: Final = 128
MAX_BYTES: Final = 32 * 1024
_MOST_S: Final = 1 << 40

_Points = Annotated[int, Field(strict=True, ge=0, le=FULL_POINTS)]
_Uid = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]


class CardUseNote(Wire):
    """One card; absent: it does not tell."""

    compute: _Points | None = None
    memory: _Points | None = None


class NodeUseNote(Wire):
    """The annotation. All figures are percent, in steps of ten, and the mean of the window."""

    version: Literal[1] = 1
    at: Annotated[int, Field(strict=True, ge=0, le=_MOST_S)]
    """When it was written, in seconds of Unix time."""
    cpu: _Points | None = None
    memory: _Points | None = None
    cards: dict[Uuid, CardUseNote] = Field(default_factory=dict, max_length=MAX_CARDS_PER_NODE)
    pods: dict[_Uid, _Points] = Field(default_factory=dict, max_length=MAX_PODS)
    """By UID: what each of a pod's cards was used by it, in the mean."""

    @classmethod
    def decode(cls, text: str) -> Self:
        """As for every annotation; a text that is too long is not parsed."""
        if len(text) > MAX_BYTES:
            raise AnnotationError(f"the document: {len(text)} bytes, the limit is {MAX_BYTES}")
        return super().decode(text)


@dataclass(frozen=True, slots=True)
class Told:
    """What a node says: of itself, and of its pods."""

    node: NodeUse
    pods: Mapping[PodUid, int] = field(default_factory=dict)


def told(text: str) -> Told:
    """The values in an annotation. Raises :class:`AnnotationError`."""
    note = NodeUseNote.decode(text)
    cards = {uuid: CardUse(_read(card.compute), _read(card.memory)) for uuid, card in note.cards.items()}
    node = NodeUse(float(note.at), _read(note.cpu), _read(note.memory), cards)
    return Told(node, {PodUid(uid): in_steps(points) for uid, points in note.pods.items()})


def current(text: str | None, now: Instant) -> NodeUse | None:
    """What counts now of an annotation, for people; None where it says nothing, nothing readable, or said it
    too long ago."""
    try:
        found = told(text).node if text else None
    except AnnotationError:
        return None
    return found if found is not None and is_current(found.at, now, CLOCK_SKEW_S) else None


def _read(points: int | None) -> int:
    return UNKNOWN if points is None else in_steps(points)


def without_use(annotations: Mapping[str, str] | None) -> Mapping[str, str]:
    """A node's annotations but for what it was measured to use, which asks for nothing."""
    return {key: text for key, text in (annotations or {}).items() if key != names.NODE_USE}
