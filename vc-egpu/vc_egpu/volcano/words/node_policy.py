"""How nodes offer their cards: ConfigMap ``vc-egpu-node-policy``, which agents go by and the doctor reads.

Its ``policy.yaml``, which all nodes share::

    defaults:
      slotsPerCard: 100          # S: at most so many sharers of one card
      coreRatio: 1.0             # cores that may be promised, per card
      memoryRatio: 1.0           # memory that may be promised, per card; above 1 for shares that may spill
      ratioClass: low            # only shares of that class (or high) have more than there is; absent: all
      hostMemoryMiB: 0           # host memory that cards' memory may spill or be suspended to; 0: none
      recoveryS: 60              # an ill card is offered again after this long without a new fault
      foreignResources: [nvidia.com/gpu, nvidia.com/mig-*]   # other plugins': a node with any is theirs
      foreignDrivers: [gpu.nvidia.com]   # the same, by the drivers of its ResourceSlices
      takeOverAfterS: 300        # their cards are ours so long after they left, unless pods of theirs stay
      isolation: auto            # what keeps shares to their memory: auto, driver, library or none
      compute: library           # what shares time: library, timeslice (the driver alone), or mps
      mpsNamespace: ""           # with mps: whose programs run there; docs/operator-isolation.md
      secondWall: report         # or kill: processes that take more than their container's grant
      hysteresisUs: 2000         # with the library: a class stays active so long after its last work, at most
      leaseMs: 100               # ... and holds no other if its activity is not renewed for so long
      hangS: 30                  # ... or its work makes no progress for so long
      inFlightUs: 500            # low's queued work where a high share sits
      lowFloorPercent: 5         # of time, for low that has been held for lowFloorAfterS
      lowFloorAfterS: 60
      suspendLockS: 10           # to suspend a pod: its work in flight has so long to end
      suspendDrainS: 20          # ... and a program that offers a suspend-signal has so long to come to rest
      suspendSeveralProcesses: false   # also pods whose several processes on the GPU may talk to each other
      resumeRoomS: 60            # a pod that finds no room on its cards for so long could not be resumed
      swapMinStayS: 60           # a pod that takes its card in turns keeps it so long at least
      swapIdleS: 10              # ... and counts as idle after so long without work
      migOnDemand: false         # in mode mig: instances are made for containers, and removed after them
      measuredUse: true          # the node says how busy it was, for placement: docs/placement.md
    pools:                       # over the defaults, for nodes with all of these labels; the last one counts
      - {name: a100, labels: {example.com/pool: a100}, settings: {isolation: driver}}
    nodes:
      gpu-7: {coreRatio: 1.5}    # over both, for this node
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from vc_egpu.core.environments.backends import Compute
from vc_egpu.volcano.words.annotations import MAX_HOST_MEMORY_MIB, MAX_MEMORY_RATIO
from vc_egpu.volcano.words.other_plugins import FOREIGN_DRIVERS, FOREIGN_RESOURCES
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml

WallPolicy = Literal["report", "kill"]
IsolationPolicy = Literal["auto", "driver", "library", "none"]
"""``auto``: the driver where it can, else the library. ``driver``: no shares where it cannot."""


class PolicyError(ValueError):
    """The policy cannot be read; the text names the key."""


class Policy(BaseModel):
    """How this node's cards are offered. Reloaded without a restart."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    slots_per_card: Annotated[int, Field(strict=True, ge=1, le=1000)] = 100
    core_ratio: Annotated[float, Field(ge=0.01, le=10.0)] = 1.0
    memory_ratio: Annotated[float, Field(ge=0.01, le=MAX_MEMORY_RATIO)] = 1.0
    ratio_class: Literal["high", "low"] | None = None
    host_memory_mib: Annotated[
        int, Field(strict=True, ge=0, le=MAX_HOST_MEMORY_MIB, alias="hostMemoryMiB")
    ] = 0
    recovery_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 60.0
    foreign_resources: tuple[str, ...] = FOREIGN_RESOURCES
    foreign_drivers: tuple[str, ...] = FOREIGN_DRIVERS
    take_over_after_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 300.0
    isolation: IsolationPolicy = "auto"
    compute: Compute = "library"
    mps_namespace: Annotated[str, Field(max_length=63)] = ""
    second_wall: WallPolicy = "report"
    hysteresis_us: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 2_000
    lease_ms: Annotated[int, Field(strict=True, ge=5, le=10_000)] = 100
    hang_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 30.0
    in_flight_us: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 500
    low_floor_percent: Annotated[int, Field(strict=True, ge=0, le=100)] = 5
    low_floor_after_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 60.0
    suspend_lock_s: Annotated[float, Field(ge=0.1, le=600.0)] = 10.0
    suspend_drain_s: Annotated[float, Field(ge=0.1, le=120.0)] = 20.0
    suspend_several_processes: bool = False
    resume_room_s: Annotated[float, Field(ge=0.0, le=3600.0)] = 60.0
    swap_min_stay_s: Annotated[float, Field(ge=1.0, le=86_400.0)] = 60.0
    swap_idle_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 10.0
    mig_on_demand: Annotated[bool, Field(strict=True)] = False
    measured_use: Annotated[bool, Field(strict=True)] = True

    @model_validator(mode="after")
    def _class_has_more(self) -> Self:
        if self.ratio_class is not None and min(self.core_ratio, self.memory_ratio) < 1:
            raise ValueError(
                f"ratioClass {self.ratio_class}: names who has more than there is, but coreRatio is "
                f"{self.core_ratio:g} and memoryRatio {self.memory_ratio:g}"
            )
        return self

    @model_validator(mode="after")
    def _who_shares_time(self) -> Self:
        if (self.compute == "mps") != bool(self.mps_namespace):
            raise ValueError(
                f"compute: {self.compute}, mpsNamespace: {self.mps_namespace!r}: compute: mps and "
                "mpsNamespace go together, for programs of one namespace that trust each other"
            )
        if self.compute != "library" and self.isolation == "none":
            raise ValueError(
                f"compute: {self.compute}, isolation: none: leave compute out, since nothing is limited there"
            )
        return self


class _Pool(BaseModel):
    """Nodes with all of these labels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=63)]
    labels: Annotated[dict[str, str], Field(min_length=1, max_length=16)]
    settings: dict[str, Any]


class _PolicyFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    defaults: dict[str, Any] = {}
    pools: Annotated[tuple[_Pool, ...], Field(max_length=256)] = ()
    nodes: dict[str, dict[str, Any]] = {}


def parse_policy(text: str, node: str, labels: Mapping[str, str] | None = None) -> Policy:
    """The policy of one node; raises :class:`PolicyError` with the path of the wrong key.

    ``labels``: the node's; None: not known, and then a file with pools is refused. The entries of other nodes
    and pools are not checked.
    """

    def settings(file: _PolicyFile) -> list[dict[str, Any]]:
        if file.pools and labels is None:
            raise PolicyError("pools: the labels of this node are not known yet")
        mine = [pool for pool in file.pools if pool.labels.items() <= (labels or {}).items()]
        own = file.nodes.get(node, {})
        return [{key: value for one in mine for key, value in one.settings.items()} | own]

    return _parse_policy(text, settings)


def check_policy(text: str) -> None:
    """The same for all nodes and pools that the file names."""
    _parse_policy(text, lambda file: [*(pool.settings for pool in file.pools), *file.nodes.values()])


def _parse_policy(text: str, over: Callable[[_PolicyFile], Iterable[dict[str, Any]]]) -> Policy:
    """The policy with the last one of these over the defaults; all are checked."""
    try:
        document = _PolicyFile.model_validate(read_yaml(text) or {})
        policy = Policy.model_validate(document.defaults)
        for own in over(document):
            policy = Policy.model_validate({**document.defaults, **own})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise PolicyError(f"{path}: {first['msg']}, got {str(first['input'])[:100]!r}") from error
    except NotYamlError as error:
        raise PolicyError(f"not YAML: {error}") from error
    return policy
