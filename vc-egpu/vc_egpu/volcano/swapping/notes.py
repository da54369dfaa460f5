"""What node agents say of pods that take their cards in turns. Hostile input, decoded with bounds."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field

from vc_egpu.volcano.codec.suspension import MAX_REASON, MAX_SINCE
from vc_egpu.volcano.words.annotations import MAX_MEMORY_MIB, AnnotationError, Wire

MAX_PODS: Final = 256
MAX_BYTES: Final = 64 * 1024
SwapPlace = Literal["card", "leaving", "away", "coming", "lost"]


class PodSwap(Wire):
    """Where one pod's GPU memory is."""

    place: SwapPlace = "card"
    since: Annotated[int, Field(strict=True, ge=0, le=MAX_SINCE)] = 0
    """In seconds of Unix time."""
    reason: Annotated[str, Field(max_length=MAX_REASON)] = ""
    """What it waits for, or what went wrong; for people."""
    host_mib: Annotated[int, Field(strict=True, ge=0, le=MAX_MEMORY_MIB)] = 0
    """GPU memory of it that lies on the host."""


class NodeSwaps(Wire):
    """``egpu.volcano.sh/node-swaps`` on a node: its swap pods by UID, written by its agent on change."""

    version: Literal[1] = 1
    pods: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=64)], PodSwap],
        Field(default_factory=dict, max_length=MAX_PODS),
    ]

    @classmethod
    def decode(cls, text: str) -> Self:
        """As for every annotation; a text that is too long is not parsed."""
        if len(text) > MAX_BYTES:
            raise AnnotationError(f"the document: {len(text)} bytes, the limit is {MAX_BYTES}")
        return super().decode(text)
