"""Volcano's PodGroup, ``scheduling.volcano.sh/v1beta1``: a gang."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vc_egpu.volcano.api.meta import (
    ApiModel,
    ApiObject,
    Count,
    CrdDefault,
    Int32,
    LabelSelector,
    NetworkTopology,
    Positive,
    Quantities,
    SubdomainName,
    Time,
    kept,
    supported,
)


class PodGroupPhase(StrEnum):
    """Where a gang stands."""

    PENDING = "Pending"
    INQUEUE = "Inqueue"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    COMPLETED = "Completed"


class SubGroupPolicy(ApiModel):
    """Groups of pods within a gang."""

    name: Annotated[str | None, Field(max_length=253), kept("")] = None
    network_topology: Annotated[NetworkTopology | None, kept("")] = None
    sub_group_size: Annotated[Positive | None, kept(""), CrdDefault(1)] = None
    min_sub_groups: Annotated[Count | None, kept(""), CrdDefault(0)] = None
    label_selector: Annotated[LabelSelector | None, kept("")] = None
    match_label_keys: Annotated[list[str], kept("")] = Field(default_factory=list)


class PodGroupSpec(ApiModel):
    """What the gang needs."""

    min_member: Count = 0
    """Members without which none starts."""
    min_task_member: dict[str, Int32] = Field(default_factory=dict)
    """The same by task name."""
    queue: Annotated[SubdomainName, CrdDefault("default")] = "default"
    """The queue whose caps apply."""
    priority_class_name: Annotated[str | None, Field(max_length=253)] = None
    """Priority class of the gang."""
    min_resources: Annotated[
        Quantities | None, supported("written for Volcano's scheduler; our caps count the pods themselves")
    ] = None
    """Requests of the members without which none starts."""
    network_topology: Annotated[NetworkTopology | None, supported("tiers are counted by labels of nodes")] = (
        None
    )
    """How close members must be."""
    sub_group_policy: Annotated[list[SubGroupPolicy], kept("")] = Field(default_factory=list)
    """Groups of pods within the gang."""


class PodGroupCondition(ApiModel):
    """One thing that is true of the gang, or not."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: Time | None = None
    transition_id: Annotated[str | None, Field(alias="transitionID")] = None


class PodGroupStatus(ApiModel):
    """What is."""

    phase: PodGroupPhase | None = None
    """Where the gang stands; pods are made from Inqueue on."""
    conditions: list[PodGroupCondition] = Field(default_factory=list)
    """Among them egpu.volcano.sh/Admitted: why the gang waits."""
    running: Count = 0
    """Members that run."""
    succeeded: Count = 0
    """Members that ended well."""
    failed: Count = 0
    """Members that failed."""


class PodGroup(ApiObject):
    """Pods that start together or not at all."""

    api_version: Literal["scheduling.volcano.sh/v1beta1"] = "scheduling.volcano.sh/v1beta1"
    kind: Literal["PodGroup"] = "PodGroup"
    spec: PodGroupSpec = Field(default_factory=PodGroupSpec)
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)

    GROUP: ClassVar[str] = "scheduling.volcano.sh"
    VERSION: ClassVar[str] = "v1beta1"
    PLURAL: ClassVar[str] = "podgroups"
