"""What one pod or one gang of a queue may ask for: the annotation ``egpu.volcano.sh/limits`` of a Queue.

Caps bound a queue's sum. These limits bound one ask, so that one gang cannot take all that its queue has.
The limits of all queues above hold too::

    egpu.volcano.sh/limits: '{"maxCardsPerPod": 2, "maxMemoryMiBPerCard": 49152, "maxMembersPerGang": 16}'

The operator writes it. To raise or to remove a limit needs the verb ``set-cap``.
"""

from typing import Annotated, Final, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

MOST: Final = 2**31 - 1
LONGEST: Final = 1024
"""Characters: the three numbers need 100."""


class QueueLimitsError(ValueError):
    """The annotation cannot be read; the text names the key."""


Limit = Annotated[int, Field(ge=1, le=MOST, strict=True)]


class QueueLimits(BaseModel):
    """The limits; None where there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    max_cards_per_pod: Limit | None = None
    """Cards of one pod, shared and whole together."""
    max_memory_mib_per_card: Annotated[Limit | None, Field(alias="maxMemoryMiBPerCard")] = None
    """MiB of one share; a whole card counts all of its model's memory."""
    max_members_per_gang: Limit | None = None
    """Pods of one Job."""

    @classmethod
    def decode(cls, text: object) -> Self:
        """From the annotation; raises :class:`QueueLimitsError`."""
        if not isinstance(text, str) or len(text) > LONGEST:
            raise QueueLimitsError(f"is no text of at most {LONGEST} characters")
        try:
            document = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise QueueLimitsError(f"is no JSON: {error}") from error
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part)[:63] for part in first["loc"])
            known = ", ".join(str(field.alias) for field in cls.model_fields.values())
            if first["type"] == "extra_forbidden":
                raise QueueLimitsError(f"{where}: there is no such limit; known are {known}") from error
            raise QueueLimitsError(f"{where}: {first['msg']}" if where else first["msg"]) from error

    def encode(self) -> str:
        """As the annotation holds it; empty where no limit is named."""
        named = self.model_dump(by_alias=True, exclude_none=True)
        return orjson.dumps(named).decode() if named else ""
