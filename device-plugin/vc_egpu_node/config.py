"""Settings of the agent: where things are (flags, fixed while it runs) and how cards are offered (a YAML
file, read again when it changes).

The file, usually a ConfigMap that all nodes share::

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
      secondWall: report         # or kill: processes that take more than their container's grant
      hysteresisUs: 2000         # with the library: a class stays active so long after its last work, at most
      leaseMs: 100               # ... and holds nobody if its activity is not renewed for so long
      hangS: 30                  # ... or its work makes no progress for so long
      inFlightUs: 500            # low's queued work where a high share sits
      lowFloorPercent: 5         # of time, for low that has been held for lowFloorAfterS
      lowFloorAfterS: 60
      suspendLockS: 10           # to suspend a pod: its work in flight has so long to end
      suspendSeveralProcesses: false   # also pods whose several processes on the GPU may talk to each other
      resumeRoomS: 60            # a pod that finds no room on its cards for so long could not be resumed
    nodes:
      gpu-7: {coreRatio: 1.5}    # over the defaults, for this node
"""

import argparse
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from vc_egpu.volcano import names
from vc_egpu.volcano.annotations import MAX_HOST_MEMORY_MIB, MAX_MEMORY_RATIO
from vc_egpu.volcano.others import FOREIGN_DRIVERS, FOREIGN_RESOURCES

TOOLKIT_SPECS: Final = ("/var/run/cdi", "/etc/cdi")
"""Where `nvidia-ctk cdi generate` and the toolkit's service leave their specs."""

Action = Literal["run", "check", "remove", "remove-by-force"]
ToolkitMode = Literal["auto", "required", "off"]
WallPolicy = Literal["report", "kill"]
CHECKPOINT_BY_POD: Final = "pod"
"""The helper runs in a pod of its own; anything else is its path, and the agent runs it itself."""


class ConfigError(ValueError):
    """A setting is wrong; the text names it."""


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
    second_wall: WallPolicy = "report"
    hysteresis_us: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 2_000
    lease_ms: Annotated[int, Field(strict=True, ge=5, le=10_000)] = 100
    hang_s: Annotated[float, Field(ge=1.0, le=3600.0)] = 30.0
    in_flight_us: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 500
    low_floor_percent: Annotated[int, Field(strict=True, ge=0, le=100)] = 5
    low_floor_after_s: Annotated[float, Field(ge=0.0, le=86_400.0)] = 60.0
    suspend_lock_s: Annotated[float, Field(ge=0.1, le=600.0)] = 10.0
    suspend_several_processes: bool = False
    resume_room_s: Annotated[float, Field(ge=0.0, le=3600.0)] = 60.0

    @model_validator(mode="after")
    def _class_has_more(self) -> Self:
        if self.ratio_class is not None and min(self.core_ratio, self.memory_ratio) < 1:
            raise ValueError(
                f"ratioClass {self.ratio_class}: names who has more than there is, but coreRatio is "
                f"{self.core_ratio:g} and memoryRatio {self.memory_ratio:g}"
            )
        return self


class _PolicyFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    defaults: dict[str, Any] = {}
    nodes: dict[str, dict[str, Any]] = {}


def parse_policy(text: str, node: str) -> Policy:
    """The policy of one node; raises :class:`ConfigError` with the path of the wrong key. What stands there
    for other nodes is theirs."""
    return _parse_policy(text, lambda _nodes: [node])


def check_policy(text: str) -> None:
    """The same for all nodes that the file names."""
    _parse_policy(text, lambda nodes: ["", *nodes])


def _parse_policy(text: str, whose: Callable[[Iterable[str]], Iterable[str]]) -> Policy:
    """The policy of the last one of them."""
    try:
        document = _PolicyFile.model_validate(yaml.safe_load(text) or {})
        policy = Policy.model_validate(document.defaults)
        for node in whose(document.nodes):
            policy = Policy.model_validate({**document.defaults, **document.nodes.get(node, {})})
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path}: {first['msg']}, got {str(first['input'])[:100]!r}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}") from error
    return policy


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are. Fixed for the life of the process."""

    node_name: str
    models: Path = Path("/etc/vc-egpu/models.yaml")
    """The table of GPU models."""
    policy: Path | None = None
    kubeconfig: Path | None = None
    """None: the service account of the pod."""
    kubelet_dir: Path = Path("/var/lib/kubelet/device-plugins")
    """The kubelet's plugin folder: its registration socket, ours, and its checkpoint."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    cdi_dir: Path = Path("/var/run/cdi")
    state_dir: Path = Path("/var/lib/vc-egpu")
    """Same path on the host and in the agent: folders in it are mounted into containers."""
    cgroup_dir: Path = Path("/sys/fs/cgroup")
    proc_dir: Path = Path("/proc")
    """The host's, to find the container behind a process."""
    library: Path | None = None
    """The isolation library; None: containers get cards and nothing that limits them."""
    run_dir: Path = Path("/run/vc-egpu")
    """In memory, same path on the host and in the agent: pages that containers write are mounted from
    here."""
    checkpoint: str = ""
    """How pods are suspended: :data:`CHECKPOINT_BY_POD`, a path, or empty: they are not."""
    checkpoint_namespace: str = names.SYSTEM_NAMESPACE
    """Where the helper's pods are made, and their template is."""
    toolkit: ToolkitMode = "auto"
    """Whether containers need NVIDIA's own CDI edits; auto: where :attr:`driver_device` exists."""
    driver_device: Path = Path("/dev/nvidiactl")
    """Exists where the NVIDIA driver is loaded: there a container without the toolkit's edits has no card."""
    toolkit_specs: tuple[Path, ...] = tuple(Path(path) for path in TOOLKIT_SPECS)
    runtime_configs: tuple[Path, ...] = (Path("/etc/containerd"), Path("/etc/docker"), Path("/etc/crio"))
    """Looked at for a default runtime that would hand out cards past us."""
    listen: str = "0.0.0.0:9445"
    probe_interval_s: float = 5.0
    """How often health and utilisation are read."""
    rescan_interval_s: float = 60.0
    """How often cards are counted anew (they are at once when one is lost)."""
    log_level: str = "INFO"
    action: Action = "run"


def add_paths(parser: argparse.ArgumentParser, defaults: Settings, *fields: str) -> None:
    """A flag for each of these paths of the settings."""
    for field in fields:
        value: Path = getattr(defaults, field)
        parser.add_argument(
            f"--{field.replace('_', '-')}", type=Path, default=value, help=f"default: {value}"
        )


def parse_flags(arguments: Sequence[str]) -> Settings:
    """Settings from the command line; exits with usage on a wrong one."""
    defaults = Settings(node_name="")
    parser = argparse.ArgumentParser(prog="vc-egpu-node", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--node-name", default=os.environ.get("NODE_NAME", ""), help="default: $NODE_NAME")
    parser.add_argument("--models", type=Path, default=defaults.models, help="table of GPU models (YAML)")
    parser.add_argument("--policy", type=Path, help="ratios and slots (YAML), reloaded when it changes")
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    add_paths(
        parser,
        defaults,
        *("kubelet_dir", "pod_resources_socket", "cdi_dir", "state_dir", "cgroup_dir", "proc_dir", "run_dir"),
        "driver_device",
    )
    parser.add_argument("--library", type=Path, help="libvgpu-egpu.so; without it nothing is limited")
    parser.add_argument("--checkpoint", default="", metavar="pod|PATH",
                        help="suspend pods: helped by a pod, or by egpu-checkpoint at that path")  # fmt: skip
    parser.add_argument("--checkpoint-namespace", default=defaults.checkpoint_namespace)
    parser.add_argument("--toolkit", choices=("auto", "required", "off"), default=defaults.toolkit)
    parser.add_argument("--toolkit-spec", type=Path, action="append", dest="toolkit_specs",
                        help="file or folder of NVIDIA's CDI specs; may be repeated")  # fmt: skip
    parser.add_argument("--runtime-config", type=Path, action="append", dest="runtime_configs")
    parser.add_argument("--listen", default=defaults.listen, help="metrics and probes; port 0: any free one")
    parser.add_argument("--probe-interval-s", type=float, default=defaults.probe_interval_s)
    parser.add_argument("--rescan-interval-s", type=float, default=defaults.rescan_interval_s)
    parser.add_argument("--log-level", default=defaults.log_level)
    parser.add_argument(
        "--action",
        choices=("run", "check", "remove", "remove-by-force"),
        default=defaults.action,
        help="check: only say whether --models and --policy are right, for all nodes; "
        "remove: take back all that the agent wrote on this node (no agent may run), refused while pods "
        "hold cards, which remove-by-force ignores",
    )
    given = vars(parser.parse_args(arguments))
    given["node_name"] = given["node_name"] or socket.gethostname().lower()
    for name in ("toolkit_specs", "runtime_configs"):
        given[name] = tuple(given[name]) if given[name] else getattr(defaults, name)
    return Settings(**given)
