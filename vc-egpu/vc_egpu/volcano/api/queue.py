"""Volcano's Queue, ``scheduling.volcano.sh/v1beta1``: a tenant's share of the cluster, with caps."""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from vc_egpu.volcano.api.meta import (
    ApiModel,
    ApiObject,
    Count,
    CrdDefault,
    Int32,
    Quantities,
    SubdomainName,
    kept,
    supported,
)


class QueueState(StrEnum):
    """Whether a queue takes work."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    UNKNOWN = "Unknown"


class NodeGroupAffinity(ApiModel):
    """Node groups by name."""

    required_during_scheduling_ignored_during_execution: Annotated[list[str], kept("")] = Field(
        default_factory=list
    )
    preferred_during_scheduling_ignored_during_execution: Annotated[list[str], kept("")] = Field(
        default_factory=list
    )


class QueueAffinity(ApiModel):
    """Node groups that the queue's pods prefer or avoid (Volcano's nodegroup plugin)."""

    node_group_affinity: Annotated[NodeGroupAffinity | None, kept("")] = None
    node_group_anti_affinity: Annotated[NodeGroupAffinity | None, kept("")] = None


class Guarantee(ApiModel):
    """What the queue is guaranteed."""

    resource: Annotated[
        Quantities | None, supported("kept on real cards; low gangs may use it while it is idle")
    ] = None


class ExtendCluster(ApiModel):
    """A cluster that the queue forwards to."""

    name: Annotated[str | None, kept("")] = None
    weight: Annotated[Int32 | None, kept("")] = None
    capacity: Annotated[Quantities | None, kept("")] = None


class QueueSpec(ApiModel):
    """Caps and order."""

    weight: Annotated[
        Int32 | None,
        Field(ge=1, le=65535),
        supported("orders where no deserved is named; with an option of the controller it takes back"),
        CrdDefault(1),
    ] = None
    """Share relative to other queues."""
    capability: Quantities | None = None
    """The cap. Absent keys: see the rules on queues."""
    reclaimable: Annotated[bool | None, supported("false: nothing is taken back from it")] = None
    """Whether others may take back what is above deserved."""
    extend_clusters: Annotated[list[ExtendCluster], kept("forwarding to other clusters is Volcano's")] = (
        Field(default_factory=list)
    )
    """Clusters that the queue forwards to."""
    guarantee: Guarantee | None = None
    """What the queue is guaranteed."""
    affinity: Annotated[QueueAffinity | None, kept("")] = None
    """Node groups by name."""
    type: Annotated[str | None, Field(max_length=253), kept("")] = None
    """Free text of Volcano's."""
    parent: SubdomainName | None = None
    """The queue above; its caps bind its children together."""
    deserved: Annotated[
        Quantities | None, supported("orders, and is taken back; in parts of cards for each model")
    ] = None
    """What the queue should get while others wait."""
    priority: Count | None = None
    """Queues with a higher number come first."""
    dequeue_strategy: Annotated[
        Literal["fifo", "traverse"] | None, supported("Volcano itself ignores it"), CrdDefault("traverse")
    ] = None
    """Whether a gang that does not fit holds up those behind it."""


class Reservation(ApiModel):
    """Nodes and resources set aside."""

    nodes: Annotated[list[str], kept("")] = Field(default_factory=list)
    resource: Annotated[Quantities | None, kept("")] = None


class QueueStatus(ApiModel):
    """What is."""

    state: QueueState | None = None
    """Whether the queue takes work."""
    unknown: Count = 0
    """Gangs in phase Unknown."""
    pending: Count = 0
    """Gangs in phase Pending."""
    running: Count = 0
    """Gangs in phase Running."""
    inqueue: Count = 0
    """Gangs in phase Inqueue."""
    completed: Count = 0
    """Gangs in phase Completed."""
    reservation: Annotated[Reservation | None, kept("")] = None
    """Nodes and resources set aside."""
    allocated: Quantities | None = None
    """Requests of the queue's bound pods."""


class Queue(ApiObject):
    """A tenant's share of the cluster."""

    api_version: Literal["scheduling.volcano.sh/v1beta1"] = "scheduling.volcano.sh/v1beta1"
    kind: Literal["Queue"] = "Queue"
    spec: QueueSpec = Field(default_factory=QueueSpec)
    status: QueueStatus = Field(default_factory=QueueStatus)

    GROUP: ClassVar[str] = "scheduling.volcano.sh"
    VERSION: ClassVar[str] = "v1beta1"
    PLURAL: ClassVar[str] = "queues"
    NAMESPACED: ClassVar[bool] = False
