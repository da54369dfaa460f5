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

    name: Annotated[str | None, Field(max_length=253)] = None
    """What the groups are called; each also has the values of its labels."""
    network_topology: NetworkTopology | None = None
    """How close the members of one group must be."""
    sub_group_size: Annotated[
        Positive | None, supported("read before pods are made; later their labels say it"), CrdDefault(1)
    ] = None
    """Members of each group."""
    min_sub_groups: Annotated[
        Count | None, kept("minMember and minTaskMember say how many members start"), CrdDefault(0)
    ] = None
    """Groups that have to start at least."""
    label_selector: LabelSelector | None = None
    """Which pods of the gang; all where it is absent."""
    match_label_keys: list[str] = Field(default_factory=list)
    """Pods with equal values of these labels are one group."""


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
    network_topology: NetworkTopology | None = None
    """How close members must be."""
    sub_group_policy: list[SubGroupPolicy] = Field(default_factory=list)
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
