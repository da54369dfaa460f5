"""The back-off of a gang that was rolled back, kept on its PodGroup for the next leader. Pure."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vc_egpu.core.model.cluster import Instant, NodeName
from vc_egpu.core.model.policy import CLOCK_SKEW_S, MAX_BACK_OFF_S

FIRST_S: Final = 10.0
MOST_S: Final = MAX_BACK_OFF_S
FORGET_S: Final = 3600.0
"""A gang that ran this long since its last roll-back starts afresh."""
_MAX_NODES: Final = 64


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    count: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    at: Annotated[float, Field(ge=0, lt=1e12)] = 0.0
    until: Annotated[float, Field(ge=0, lt=1e12)] = 0.0
    nodes: Annotated[tuple[Annotated[str, Field(max_length=253)], ...], Field(max_length=_MAX_NODES)] = ()
    why: Annotated[str, Field(max_length=512)] = ""
    most: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    spared: Annotated[float, Field(ge=0, lt=1e12)] = 0.0
    kubelet: bool = False


@dataclass(frozen=True, slots=True)
class RolledBack:
    """How often a gang was rolled back, when last and why, and how it is tried again."""

    count: int = 0
    at: Instant = 0.0
    until: Instant = 0.0
    nodes: frozenset[NodeName] = frozenset()
    why: str = ""
    most: int = 0
    """Members that may be on one node, as long as its nodes are left out; 0: as many as fit."""
    spared: Instant = 0.0
    """When the scheduler refused it although others had gone for it; 0: it never did."""
    kubelet: bool = False
    """A kubelet refused a member the last time. No gang goes for it while the nodes are left out."""

    @property
    def nodes_until(self) -> Instant:
        """Until when those nodes are left out: twice the wait, so that others come first, and no longer: the
        gang may fit nowhere else."""
        return max(self.until, 2 * self.until - self.at)

    def shuts(self, now: Instant) -> bool:
        """Whether its nodes are left out now; no longer than they were meant to be. A clock may have been set
        back since, this one or that of the leader that wrote it."""
        longest_s = min(self.nodes_until - self.at, 2 * MOST_S) + CLOCK_SKEW_S
        return 0 < self.nodes_until - now <= longest_s

    def again(
        self,
        now: Instant,
        nodes: frozenset[NodeName],
        why: str,
        *,
        packed: int = 0,
        costly: bool = False,
        kubelet: bool = False,
    ) -> "RolledBack":
        """One more time: the wait doubles, the nodes that refused are added.

        ``packed``: so many members were on a node of which the scheduler refused one; 0: it was another one
        that refused. Half as many may be there next. ``costly``: others had gone for it. That is remembered
        as long as the PodGroup is there: nothing that passes by itself answers the scheduler. ``kubelet``: a
        kubelet refused a member.
        """
        fresh = now - self.at > FORGET_S
        count = 1 if fresh else self.count + 1
        wait_s = min(MOST_S, FIRST_S * 2 ** min(count - 1, 30))
        kept = nodes if fresh else self.nodes | nodes
        before = 0 if fresh else self.most
        most = max(1, min(before or packed, packed) // 2) if packed else before
        spared = now if costly and packed else self.spared
        shut = frozenset(sorted(kept)[:_MAX_NODES])
        return RolledBack(count, now, now + wait_s, shut, why[:512], most, spared, kubelet)


def encode(value: RolledBack) -> str:
    """The annotation's text."""
    return _Wire(
        count=value.count,
        at=value.at,
        until=value.until,
        nodes=tuple(sorted(value.nodes)),
        why=value.why,
        most=value.most,
        spared=value.spared,
        kubelet=value.kubelet,
    ).model_dump_json()


def decode(text: str) -> RolledBack:
    """Read the annotation; garbage means that nothing is known."""
    if not text:
        return RolledBack()
    try:
        wire = _Wire.model_validate_json(text)
    except ValidationError:
        return RolledBack()
    nodes = frozenset(NodeName(name) for name in wire.nodes)
    shut = (wire.count, wire.at, wire.until, nodes)
    return RolledBack(*shut, wire.why, wire.most, wire.spared, wire.kubelet)
