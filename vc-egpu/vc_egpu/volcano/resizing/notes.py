"""What is said about other sizes of a running pod's shares, and what comes next.

The wish stands on the pod, by a user. The admission controller takes it off when it has judged it, and writes
a note in its place. While the note is *lowering*, the node's agent lowers the container's memory, if the
container uses less by now. While it is *applying*, the agent brings the container to the size in the cards
annotation. The agent's answer stands on the node and names the note that it answers.

So a limit in a container is never above what is booked for it. Larger sizes are booked before they are
applied, and smaller ones after. All of it is hostile input, decoded with bounds.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import (
    AnnotationError,
    Cards,
    CardShare,
    ContainerName,
    CoresPercent,
    MemoryMib,
    Wire,
)

MAX_WISH_BYTES: Final = 4096
MAX_WHY: Final = 512
MAX_PODS_PER_NODE: Final = 1024
MAX_REPORT_BYTES: Final = 160 * 1024
"""The API server allows 256 KiB for all annotations of a node; the inventory stands there too."""
LATE_S: Final = 60
"""An agent has so long to lower a container's memory."""
MAX_SINCE: Final = 1 << 40

_NoteId = Annotated[str, Field(pattern=r"^[0-9]{1,18}-[0-9]{1,18}$")]
_Uid = Annotated[str, Field(min_length=1, max_length=64)]
_Sizes = dict[ContainerName, tuple[CardShare, ...]]


class Amounts(Wire):
    """The size of one container's share of each of its cards; what is left out stays as it is."""

    memory_mib: MemoryMib | None = None
    cores: CoresPercent | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.memory_mib is None and self.cores is None:
            raise ValueError("neither memoryMiB nor cores is named")
        return self


class ResizeWish(Wire):
    """``egpu.volcano.sh/resize`` on a pod: a user who may update the pod's owner writes it."""

    version: Literal[1] = 1
    id: Annotated[str, Field(max_length=64)] = ""
    """Any word: the answer repeats it."""
    containers: Annotated[dict[ContainerName, Amounts], Field(min_length=1, max_length=64)]

    @classmethod
    def decode(cls, text: str) -> Self:
        """As for every annotation; a text that is too long is not parsed."""
        if len(text) > MAX_WISH_BYTES:
            raise AnnotationError(f"the document: {len(text)} bytes, the limit is {MAX_WISH_BYTES}")
        return super().decode(text)

    def sizes(self) -> tuple[tuple[str, int | None, int | None], ...]:
        """As the decision takes it."""
        return tuple((name, one.memory_mib, one.cores) for name, one in sorted(self.containers.items()))


class Stage(StrEnum):
    """How far the admission controller is with a wish."""

    LOWERING = "lowering"
    """Its agent is to lower the memory first."""
    APPLYING = "applying"
    """The cards annotation has the new size, and its agent is to apply it."""
    DONE = "done"
    REFUSED = "refused"


class ResizeNote(Wire):
    """``egpu.volcano.sh/resized`` on a pod: written by the admission controller alone."""

    version: Literal[1] = 1
    pod_uid: _Uid
    number: _NoteId
    """``<lease epoch>-<counter>``; no two notes have the same."""
    stage: Stage
    id: Annotated[str, Field(max_length=64)] = ""
    """That of the wish."""
    why: Annotated[str, Field(max_length=MAX_WHY)] = ""
    """Why it was refused; for people."""
    since: Annotated[int, Field(strict=True, ge=0, le=MAX_SINCE)] = 0
    """When it was judged, in seconds of Unix time."""
    was: Annotated[_Sizes, Field(default_factory=dict, max_length=64)]
    """The shares before."""
    then: Annotated[_Sizes, Field(default_factory=dict, max_length=64)]
    """The shares that were granted."""

    @property
    def waits_for_agent(self) -> bool:
        """Whether the node's agent has to do something."""
        return self.stage in {Stage.LOWERING, Stage.APPLYING}


class ResizeReport(Wire):
    """What a node's agent has done about one pod's note."""

    number: _NoteId
    state: Literal["lowered", "applied", "refused"]
    reason: Annotated[str, Field(max_length=MAX_WHY)] = ""
    """Why it was refused, with the numbers; for people."""


class NodeResizes(Wire):
    """``egpu.volcano.sh/node-resizes`` on a node: by pod UID, written by its agent on change."""

    version: Literal[1] = 1
    pods: Annotated[dict[_Uid, ResizeReport], Field(default_factory=dict, max_length=MAX_PODS_PER_NODE)]

    @classmethod
    def decode(cls, text: str) -> Self:
        """As for every annotation; a text that is too long is not parsed."""
        if len(text) > MAX_REPORT_BYTES:
            raise AnnotationError(f"the document: {len(text)} bytes, the limit is {MAX_REPORT_BYTES}")
        return super().decode(text)


def wish_on(annotations: Mapping[str, str]) -> ResizeWish | None:
    """The wish that stands on a pod; None: there is none. Raises :class:`AnnotationError`."""
    text = annotations.get(names.RESIZE)
    return None if text is None else ResizeWish.decode(text)


def note_on(annotations: Mapping[str, str], pod_uid: str) -> ResizeNote | None:
    """The note on a pod. What cannot be read, or was written for another pod, is none."""
    text = annotations.get(names.RESIZED)
    try:
        note = ResizeNote.decode(text) if text else None
    except AnnotationError:
        return None
    return note if note is not None and note.pod_uid == pod_uid else None


# --- sizes ---------------------------------------------------------------------------------------


def lowered(cards: Cards, note: ResizeNote | None) -> Cards:
    """What an agent holds a pod's containers to: the cards, and while a note is lowering no more memory than
    it says."""
    if note is None or note.stage is not Stage.LOWERING:
        return cards
    sizes = {
        name: _at_most(shares, note.then.get(name, shares), cores=False)
        for name, shares in cards.containers.items()
    }
    return cards.model_copy(update={"containers": sizes})


def with_sizes(cards: Cards, sizes: Mapping[str, Sequence[CardShare]]) -> Cards:
    """The cards annotation with other sizes of these containers' shares."""
    return cards.model_copy(
        update={"containers": {**cards.containers, **{k: tuple(v) for k, v in sizes.items()}}}
    )


def _at_most(
    shares: Sequence[CardShare], bound: Sequence[CardShare], *, cores: bool
) -> tuple[CardShare, ...]:
    """Each share with no more memory (and cores) than the one of the same card in ``bound``."""
    by_card = {share.uuid: share for share in bound}
    found = []
    for share in shares:
        most = by_card.get(share.uuid, share)
        memory_mib = min(share.memory_mib, most.memory_mib)
        physical_mib = min(share.on_card_mib, most.on_card_mib)
        found.append(
            share.model_copy(
                update={
                    "memory_mib": memory_mib,
                    "physical_mib": physical_mib if physical_mib < memory_mib else None,
                    "cores": min(share.cores, most.cores) if cores else share.cores,
                }
            )
        )
    return tuple(found)


# --- what comes next -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """What is written on the pod next."""

    note: ResizeNote
    sizes: Mapping[str, Sequence[CardShare]]
    """By container, what its cards annotation says from then on."""


def next_step(note: ResizeNote, report: ResizeReport | None, now_s: float) -> Step | None:
    """What follows from the agent's answer, or from having none for too long; None: nothing yet. Pure."""
    answer = report if report is not None and report.number == note.number else None
    if note.stage is Stage.LOWERING:
        if answer is not None and answer.state == "lowered":
            return Step(_at(note, Stage.APPLYING), note.then)
        if answer is not None and answer.state == "refused":
            return Step(_at(note, Stage.REFUSED, answer.reason), note.was)
        if now_s - note.since >= LATE_S:
            why = f"its node has not lowered its memory in {LATE_S} s; is the agent there?"
            return Step(_at(note, Stage.REFUSED, why), note.was)
    elif note.stage is Stage.APPLYING and answer is not None:
        if answer.state == "applied":
            return Step(_at(note, Stage.DONE), {})
        if answer.state == "refused":
            # What was lowered by now may be another pod's: only what grew is taken back.
            sizes = {
                name: _at_most(note.then[name], note.was.get(name, ()), cores=True) for name in note.then
            }
            return Step(_at(note, Stage.REFUSED, answer.reason), sizes)
    return None


def _at(note: ResizeNote, stage: Stage, why: str = "") -> ResizeNote:
    return note.model_copy(update={"stage": stage, "why": why[:MAX_WHY]})


# --- for people ----------------------------------------------------------------------------------


def changes(note: ResizeNote) -> Iterator[str]:
    """What was to become of each container: ``main from 8192 to 12288 MiB and from 20 to 30 cores``."""
    for name, shares in sorted(note.then.items()):
        before = {share.uuid: share for share in note.was.get(name, ())}
        for after in shares[:1]:  # all cards of a container have the same size
            was = before.get(after.uuid, after)
            parts = []
            if was.memory_mib != after.memory_mib:
                parts.append(f"from {was.memory_mib} to {after.memory_mib} MiB")
            if was.cores != after.cores:
                parts.append(f"from {was.cores} to {after.cores} cores")
            if parts:
                yield f"{name} {' and '.join(parts)}"
