"""What a PodGroup remembers of its gang for the next leader. Pure: annotation texts in, values out, and back.

Garbage means that nothing is known. Only the admission controller writes these.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vc_egpu.core.model.cluster import Instant
from vc_egpu.core.model.policy import OFTEN

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
