"""Volcano's HyperNode, ``topology.volcano.sh/v1alpha1``: nodes that are near each other on the network."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from vc_egpu.volcano.api.meta import DNS_SUBDOMAIN, AnyObject, ApiModel, ApiObject, LabelSelector, kept


class ExactMatch(ApiModel):
    """One member by its name."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]


class RegexMatch(ApiModel):
    """Members by a pattern of their names."""

    pattern: Annotated[str, Field(min_length=1)]
    """Found anywhere in the name, unless it says otherwise."""


class MemberSelector(ApiModel):
    """Which members; one of the three."""

    exact_match: ExactMatch | None = None
    """By name."""
    regex_match: RegexMatch | None = None
    """By a pattern of names; nodes alone."""
    label_match: LabelSelector | None = None
    """By labels; nodes alone."""


class HyperNodeMember(ApiModel):
    """Nodes or HyperNodes that belong to it."""

    type: Literal["Node", "HyperNode"]
    """What the members are."""
    selector: MemberSelector | None = None
    """Which they are."""


class HyperNodeSpec(ApiModel):
    """Where it stands, and what belongs to it."""

    tier: Annotated[int, Field(strict=True, ge=0)]
    """How wide it is: the lower, the nearer its nodes are to each other."""
    tier_name: Annotated[str | None, Field(max_length=253)] = None
    """What its tier is called; a Job may name it in highestTierName."""
    members: Annotated[list[HyperNodeMember], Field(min_length=1)] = Field(default_factory=list)
    """What belongs to it."""


class HyperNodeStatus(ApiModel):
    """What Volcano's controllers say of it."""

    conditions: Annotated[list[AnyObject], kept("")] = Field(default_factory=list)
    node_count: Annotated[int | None, Field(strict=True, ge=0), kept("")] = None


class HyperNode(ApiObject):
    """A part of the network: a rack, a block, a zone."""

    api_version: Literal["topology.volcano.sh/v1alpha1"] = "topology.volcano.sh/v1alpha1"
    kind: Literal["HyperNode"] = "HyperNode"
    spec: HyperNodeSpec
    status: HyperNodeStatus = Field(default_factory=HyperNodeStatus)

    GROUP: ClassVar[str] = "topology.volcano.sh"
    VERSION: ClassVar[str] = "v1alpha1"
    PLURAL: ClassVar[str] = "hypernodes"
    NAMESPACED: ClassVar[bool] = False
