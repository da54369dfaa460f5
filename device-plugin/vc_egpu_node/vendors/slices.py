"""Slices of fixed size on a card: what a vendor's driver does with them, in values and one small interface.

A :class:`Slicer` is the driver's part alone. It keeps no record. :mod:`.slice_book` records which container a
slice is for. It also knows what to do after the agent died in the middle. It is the same for all vendors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

T = TypeVar("T")

Refusal = Literal[
    "busy",
    "no-room",
    "not-permitted",
    "not-supported",
    "not-ready",
    "no-answer",
    "other-size",
    "absent",
    "failed",
]
"""Why a driver did not do what it was asked.

- ``busy``: something uses the slice or the card.
- ``no-room``: the card has none left for it.
- ``not-permitted``: the agent lacks a right.
- ``not-supported``: the card or the driver cannot do it.
- ``not-ready``: the driver asks to be called again.
- ``no-answer``: it did not answer in time.
- ``other-size``: it made a slice that is smaller.
- ``absent``: there is no such slice, or no such card.
- ``failed``: the driver says no more than that it failed.
"""
LATER: frozenset[Refusal] = frozenset({"busy", "not-ready", "no-answer"})
"""Refusals after which the same call may succeed."""


class SliceError(RuntimeError):
    """The driver refused. The text goes into the pod's event."""

    def __init__(self, why: Refusal, text: str) -> None:
        super().__init__(text)
        self.why = why


def if_supported(call: Callable[[], T]) -> T | None:
    """What the call gives; None where the driver says that it cannot do this."""
    try:
        return call()
    except SliceError as error:
        if error.why == "not-supported":
            return None
        raise


@dataclass(frozen=True, slots=True)
class HeldSlice:
    """One slice that lies on a card, as the driver tells."""

    id: str
    """The driver's name of it, unique on the node while the slice lives."""
    template: str
    """Name of its template in the card's layout; empty: it has none there."""
    start: int = -1
    """Its first memory slice; -1: the card has no places."""
    memory_mib: int = 0
    in_use: bool | None = None
    """Whether a program runs on it; None: the driver does not tell."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """What the vendor's edits need. ``boot``: the start of the node that a slice ends with, at the latest."""
    half: bool = False
    """It takes its place, and no container can use it: making or removing it was broken off."""

    def is_that(self, known: "HeldSlice") -> bool:
        """Whether it is the slice of a record. An id may be given again, to a slice of another kind or after
        another start of the node. One that is half gone has another id, and its number."""
        if (self.template, self.start) != (known.template, known.start):
            return False
        if len({self.numbers.get("boot", -1), known.numbers.get("boot", -1)} - {-1}) > 1:
            return False
        return self.id == known.id or (self.half and self.numbers.get("gi") == known.numbers.get("gi", -1))

    """Numbers that its device nodes are made of, such as ``gi`` and ``ci``, or ``vdev``."""


@dataclass(frozen=True, slots=True)
class SliceWish:
    """What a plan says that a container gets."""

    uuid: str
    """The card's."""
    template: str
    start: int = -1
    memory_mib: int = 0
    """At least; a smaller slice is refused as ``other-size``."""


@dataclass(frozen=True, slots=True)
class Realised:
    """A slice that is one container's."""

    owner: str
    """CDI device name of the container."""
    uuid: str
    slice: HeldSlice
    adopted: bool = False
    """It lay there before and stays when the container ends."""


class Slicer(Protocol):
    """The driver's calls. Each ends within 20 seconds, or raises ``no-answer``. Any thread may call. The
    caller lets one in at a time."""

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        """What lies on the card now; raises :class:`SliceError`."""

    def make(self, wish: SliceWish) -> HeldSlice | None:
        """Make the slice. None: this vendor's slices are only adopted, and none was made. Raises
        :class:`SliceError`."""

    def destroy(self, uuid: str, slice_id: str) -> None:
        """Remove the slice. One that is not there any more is removed already. Raises :class:`SliceError`."""
