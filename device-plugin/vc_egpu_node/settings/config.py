"""The node agent's settings: where things are, fixed while it runs.

How cards are offered is read from a file again and again (:mod:`vc_egpu.volcano.words.node_policy`).
"""

import argparse
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from vc_egpu.volcano.words import names

TOOLKIT_SPECS: Final = ("/var/run/cdi", "/etc/cdi")
"""Where `nvidia-ctk cdi generate` and the toolkit's service leave their specs."""

MOST_INTERVAL_S: Final = 7 * 86_400.0
Action = Literal["run", "check", "remove", "remove-by-force"]
ToolkitMode = Literal["auto", "required", "off"]
ContainerMetrics = Literal["basic", "full"]
DcgmNames = Literal["auto", "on", "off"]
VendorName = Literal["nvidia", "ascend", "hygon"]
CHECKPOINT_BY_POD: Final = "pod"
"""The helper runs in a pod of its own; anything else is its path, and the agent runs it itself."""


class ConfigError(ValueError):
    """A setting is wrong; the text names it."""


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
    dev_char_dir: Path = Path("/dev/char")
    """The host's: by its links systemd knows the devices of containers."""
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
    vendors: tuple[VendorName, ...] = ("nvidia",)
    """Whose cards this node may have."""
    dev_dir: Path = Path("/dev")
    """Where the agent sees the host's device nodes."""
    host_root: Path = Path("/")
    """Where the agent sees the driver's files of the host, for vendors other than NVIDIA."""
    sys_dir: Path = Path("/sys")
    listen: str = "[::]:9445"
    probe_interval_s: float = 5.0
    """How often health and utilisation are read."""
    rescan_interval_s: float = 60.0
    """How often cards are counted again (at once when one is lost)."""
    probe_cuda_interval_s: float = 0.0
    """How often a context is made on each card that nobody is on; 0: never."""
    container_metrics: ContainerMetrics = "basic"
    """full: also what only the library counts."""
    dcgm_names: DcgmNames = "auto"
    """Whether cards are shown under DCGM's names; auto: unless a dcgm-exporter answers on the node."""
    dcgm_host_label: str = "Hostname"
    """As the dcgm-exporter of other nodes calls it."""
    host_address: str = ""
    """The node's own, to look for a dcgm-exporter there; empty: none is looked for."""
    log_level: str = "INFO"
    action: Action = "run"


def add_paths(parser: argparse.ArgumentParser, defaults: Settings, *fields: str) -> None:
    """A flag for each of these paths of the settings."""
    for field in fields:
        value: Path = getattr(defaults, field)
        parser.add_argument(
            f"--{field.replace('_', '-')}", type=Path, default=value, help=f"default: {value}"
        )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= MOST_INTERVAL_S:  # nor is "nan" between them
        raise ValueError(text)
    return value


def _add_metrics(parser: argparse.ArgumentParser, defaults: Settings) -> None:
    parser.add_argument(
        "--container-metrics",
        choices=get_args(ContainerMetrics),
        default=defaults.container_metrics,
        help="full: also memory charged, managed and beyond the grant, and units, as the library counts them",
    )
    parser.add_argument(
        "--dcgm-names",
        choices=get_args(DcgmNames),
        default=defaults.dcgm_names,
        help="show cards as dcgm-exporter does; auto: unless one answers on port 9400 of --host-address",
    )
    parser.add_argument(
        "--dcgm-host-label",
        choices=("Hostname", "hostname"),
        default=defaults.dcgm_host_label,
        help="the node's label on DCGM's names",
    )
    parser.add_argument(
        "--host-address", default=os.environ.get("HOST_IP", ""), help="of this node; default: $HOST_IP"
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
        *("dev_char_dir", "driver_device", "dev_dir", "host_root", "sys_dir"),
    )
    parser.add_argument("--library", type=Path, help="libvgpu-egpu.so; without it nothing is limited")
    parser.add_argument("--checkpoint", default="", metavar="pod|PATH",
                        help="suspend pods: helped by a pod, or by egpu-checkpoint at that path")  # fmt: skip
    parser.add_argument("--checkpoint-namespace", default=defaults.checkpoint_namespace)
    parser.add_argument("--toolkit", choices=("auto", "required", "off"), default=defaults.toolkit)
    parser.add_argument("--toolkit-spec", type=Path, action="append", dest="toolkit_specs",
                        help="file or folder of NVIDIA's CDI specs; may be repeated")  # fmt: skip
    parser.add_argument("--runtime-config", type=Path, action="append", dest="runtime_configs")
    parser.add_argument("--vendor", choices=get_args(VendorName), action="append", dest="vendors",
                        help="whose cards this node may have; may be repeated; default: nvidia")  # fmt: skip
    parser.add_argument("--listen", default=defaults.listen, help="metrics and probes; port 0: any free one")
    parser.add_argument("--probe-interval-s", type=float, default=defaults.probe_interval_s)
    parser.add_argument("--rescan-interval-s", type=float, default=defaults.rescan_interval_s)
    parser.add_argument(
        "--probe-cuda-interval-s",
        type=_seconds,
        default=defaults.probe_cuda_interval_s,
        help="make a CUDA context so often on each card that nobody is on; default: never",
    )
    _add_metrics(parser, defaults)
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
    for name in ("toolkit_specs", "runtime_configs", "vendors"):
        given[name] = tuple(given[name]) if given[name] else getattr(defaults, name)
    return Settings(**given)
