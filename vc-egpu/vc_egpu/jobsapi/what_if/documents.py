"""A question of a caller, and the answer of the admission controller. Pure."""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from vc_egpu.jobsapi.request import JobRequest, RequestError

Json = dict[str, Any]
MOST_CHANGES: Final = 16
MOST_NODES: Final = 64
_Name = Annotated[str, StringConstraints(min_length=1, max_length=253)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CapChange(_Part):
    """Another cap of a queue."""

    queue: _Name
    resource: _Name = Field(description="as volcano.sh/vgpu-h20")
    to: Annotated[int, Field(ge=0, le=1 << 60)] | None = Field(description="null: no cap")


class NodesChange(_Part):
    """Empty nodes like one that is there."""

    like: _Name
    count: Annotated[int, Field(ge=1, le=MOST_NODES)]


class Change(_Part):
    """What is changed before the question is asked: exactly one of these."""

    end: _Name | None = Field(default=None, description="NAMESPACE/PODGROUP of a gang that is over")
    cap: CapChange | None = None
    drain: _Name | None = Field(default=None, description="a node; for operators")
    add_nodes: NodesChange | None = Field(default=None, description="for operators")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise RequestError("change", "each names exactly one change", f"one of {', '.join(_CHANGES)}")
        return self

    def told(self) -> Json:
        """As the controller reads it."""
        found = self.model_dump(exclude_unset=True)
        return {to_camel(key): value for key, value in found.items()}


_CHANGES: Final = tuple(Change.model_fields)


class Question(_Part):
    """Would this start? Exactly one of ``request`` and ``job``."""

    request: JobRequest | None = Field(default=None, description="as POST /v1/jobs takes it")
    job: Json | None = Field(default=None, description="a Volcano Job")
    changes: Annotated[list[Change], Field(max_length=MOST_CHANGES)] = []

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.request is None) == (self.job is None):
            raise RequestError("request", "exactly one of request and job is asked about", "request or job")
        return self


TOLD: Final = ConfigDict(
    frozen=True, alias_generator=AliasGenerator(validation_alias=to_camel), populate_by_name=True
)
"""How documents of the controller are read: it writes camelCase, and we do not."""


class _Told(BaseModel):
    """The controller writes camelCase."""

    model_config = TOLD


class Place(_Told):
    """Members on one node."""

    members: int
    card_count: int
    node: str = Field(default="", description="empty for callers who may not list the pods of all namespaces")
    cards: list[str] = Field(default=[], description="UUIDs, for the same callers as node")


class Going(_Told):
    """Work of yours that has to go for it."""

    gang: str
    pods: int
    how: str
    whole: bool
    cause: str


class Others(_Told):
    """Work of others that has to go for it, without names."""

    gangs: int
    pods: int


class Forecast(_Told):
    """When it could start at the earliest."""

    at: float = Field(description="seconds since 1970")
    ends: list[str] = Field(description="gangs of yours that end until then")
    ends_of_others: int
    waiting_before: int = Field(description="gangs that wait now, and may be first")


class WhatIfAnswer(_Told):
    """What would happen to the Job."""

    gang: str
    outcome: Literal["starts", "makes room", "waits"]
    reason: str
    message: str = Field(description="empty where it would name what you may not see")
    places: list[Place]
    going: list[Going]
    going_of_others: Others
    more: int = Field(description="so many more of the same would start too")
    more_is_least: bool = Field(description="true: there may be more than that")
    forecast: Forecast | None = None
    unknown_ends: int = Field(description="running gangs of which nobody knows when they end")
    is_cut_short: bool = Field(default=False, description="no time was left for all known ends")
