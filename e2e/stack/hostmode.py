"""Our processes beside a cluster, as programs of this machine under their own service accounts.

Everything but the Deployments is installed from the manifests, and each process talks to the API server with
a token of its service account: a right that the manifests forget is missing here too. The webhook is called
by URL. Simulated nodes are enough, and each process can be started, killed, frozen and started again.
"""

import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

import yaml
from localcluster.api import wait_until
from localcluster.cluster import LocalCluster
from localcluster.net import free_ports
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.words.names import SCHEDULER_DEFAULT, SCHEDULER_VOLCANO
from volcano.processes import Volcano

from stack import webhook
from stack.hostprocess import HostProcess
from stack.identity import service_account_kubeconfig
from stack.kit import Kit, StoryError

Json = dict[str, Any]
ProcessName = Literal["webhook", "admission", "jobs"]
SchedulerName = Literal["default-scheduler", "volcano"]
REPOSITORY: Final = Path(__file__).resolve().parents[2]
MODELS: Final = REPOSITORY / "manifests" / "components" / "fake-gpus" / "models.yaml"
NAMESPACE: Final = "vc-egpu-system"
READY_TIMEOUT_S: Final = 60.0
OverlayName = Literal["standalone", "volcano", "volcano-counts"]
_OVERLAYS: Final[Mapping[OverlayName, Path]] = {
    "standalone": REPOSITORY / "manifests" / "overlays" / "standalone",
    "volcano": REPOSITORY / "manifests" / "overlays" / "volcano",
    "volcano-counts": REPOSITORY / "e2e" / "volcano" / "overlay-counts",
}
_IN_CLUSTER_ONLY: Final = frozenset(
    {"Deployment", "DaemonSet", "Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"}
)
_PROCESS_OF: Final[Mapping[str, ProcessName]] = {
    "vc-egpu-webhook": "webhook",
    "vc-egpu-admission": "admission",
    "vc-egpu-jobs": "jobs",
}


@dataclass(frozen=True, slots=True)
class HostOptions:
    """What runs, and how. ``flags`` are added to those of the manifests, by process."""

    processes: tuple[ProcessName, ...] = ("webhook", "admission", "jobs")
    scheduler: SchedulerName = SCHEDULER_DEFAULT
    """Who binds managed pods."""
    models: Path = MODELS
    flags: Mapping[ProcessName, Sequence[str]] = field(default_factory=dict)
    overlay: OverlayName = "standalone"
    """``volcano-counts``: Volcano's controllers run without vc-scheduler, and our Job controller counts."""

    def __post_init__(self) -> None:
        if self.overlay == "volcano" and "jobs" in self.processes:
            raise ValueError("processes: with Volcano's controllers there is no Job controller of ours")
        if not self.models.is_file():
            raise ValueError(f"models {self.models}: no such file")


@dataclass(frozen=True, slots=True)
class HostStack:
    """Our stack beside one cluster."""

    cluster: LocalCluster
    kit: Kit
    options: HostOptions
    processes: Mapping[ProcessName, HostProcess]
    ports: Mapping[ProcessName, int]
    """Where each answers probes and shows metrics."""

    @classmethod
    def install(cls, cluster: LocalCluster, options: HostOptions, volcano: Volcano | None = None) -> Self:
        """Apply the manifests and make the processes, which are not started yet.

        ``volcano`` names whose CRDs are used; without it they are ours.
        """
        documents = kustomize(cluster, _OVERLAYS[options.overlay])
        if volcano is not None:
            volcano.install_crds(cluster)
            documents = [document for document in documents if document["kind"] != "CustomResourceDefinition"]
        *ports, hook_port = free_ports(len(options.processes) + 1, set(cluster.context.record.ports.values()))
        by_process = dict(zip(options.processes, ports, strict=True))
        url = f"https://127.0.0.1:{hook_port}"
        apply(cluster, [document for document in documents if document["kind"] not in _IN_CLUSTER_ONLY], url)
        arguments = {
            name: container_arguments(document)
            for document in documents
            if document["kind"] == "Deployment"
            and (name := _PROCESS_OF.get(document["metadata"]["name"])) is not None
        }
        processes = {
            name: _process(cluster, options, name, arguments[name], ports=(by_process[name], hook_port))
            for name in options.processes
        }
        kit = Kit(ApiConnection.connect(cluster.kubeconfig), cluster.kubectl)
        return cls(cluster, kit, options, processes, by_process)

    def start(self, *names: ProcessName) -> None:
        """Start these processes (all where none is named), the webhook first; returns when they are ready."""
        wanted = names or self.options.processes
        for name in self.options.processes:
            if name in wanted:
                self.processes[name].start()
                if name == "webhook":
                    self.wait_webhook()
        for name in wanted:
            self.wait_ready(name)

    def wait_ready(self, name: ProcessName) -> None:
        """Until the process says so at ``/readyz``."""
        process = self.processes[name]
        wait_until(
            f"{name} ready", lambda: answers(self.ports[name]), READY_TIMEOUT_S, lambda: check_alive(process)
        )

    def wait_webhook(self) -> None:
        """Until the API server calls the webhook."""
        self.wait_ready("webhook")
        process = self.processes["webhook"]
        wait_until(
            "the webhook is called",
            lambda: webhook.answers(self.kit.api),
            READY_TIMEOUT_S,
            lambda: check_alive(process),
        )

    def check_alive(self) -> None:
        """Raise with the log's end when one of the processes has died."""
        for process in self.processes.values():
            check_alive(process)

    def stop(self) -> None:
        """End all of them, frozen ones too."""
        for process in self.processes.values():
            if process.alive:
                process.resume()
                process.stop()


def kustomize(cluster: LocalCluster, folder: Path) -> list[Json]:
    """The documents that ``kubectl apply -k`` would apply."""
    text = cluster.kubectl("kustomize", str(folder)).stdout
    return [document for document in yaml.safe_load_all(text) if document]


def apply(cluster: LocalCluster, documents: Sequence[Json], webhook_url: str) -> None:
    """Apply documents, kinds before their objects; webhooks are called at ``webhook_url``."""
    kinds = [d for d in documents if d["kind"] in {"CustomResourceDefinition", "Namespace"}]
    others = [_by_url(d, webhook_url) for d in documents if d not in kinds]
    for batch in (kinds, others):
        cluster.kubectl("apply", "--server-side", "-f", "-", text_in=yaml.safe_dump_all(batch))
        if batch is kinds and any(d["kind"] == "CustomResourceDefinition" for d in kinds):
            cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


def _by_url(document: Json, url: str) -> Json:
    if not document["kind"].endswith("WebhookConfiguration"):
        return document
    hooks = [
        {**hook, "clientConfig": {"url": url + hook["clientConfig"]["service"]["path"]}}
        for hook in document["webhooks"]
    ]
    return {**document, "webhooks": hooks}


def container_arguments(deployment: Json) -> list[str]:
    """The arguments of a Deployment's only container."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return [str(argument) for argument in container["args"]]


def _process(
    cluster: LocalCluster,
    options: HostOptions,
    name: ProcessName,
    arguments: Sequence[str],
    *,
    ports: tuple[int, int],
) -> HostProcess:
    """``ports``: for probes, for the webhook."""
    port, hook_port = ports
    kubeconfig = service_account_kubeconfig(cluster, NAMESPACE, f"vc-egpu-{name}")
    common = ["--kubeconfig", str(kubeconfig)]
    match name:
        case "webhook":
            own = [
                *("--port", str(hook_port), "--metrics-port", str(port), "--listen", "127.0.0.1"),
                *("--hosts", "127.0.0.1", "--models", str(options.models), "--drain-s", "0"),
                *("--scheduler-name", options.scheduler, "--tls-interval-s", "0.5"),
            ]
        case "admission":
            own = [
                *("--port", str(port), "--bind-address", "127.0.0.1", "--models", str(options.models)),
                *("--scheduler", options.scheduler, "--identity", "host"),
            ]
        case "jobs":
            local = "" if options.scheduler == SCHEDULER_VOLCANO else SCHEDULER_DEFAULT
            own = ["--metrics-port", str(port), "--local-scheduler", local]
    flags = options.flags.get(name, ())
    argv = [sys.executable, "-m", "vc_egpu.cli.main", *arguments, *common, *own, *flags]
    # The code of this tree, whichever is installed.
    env = {"POD_NAMESPACE": NAMESPACE, "PYTHONPATH": str(REPOSITORY / "vc-egpu")}
    return HostProcess(cluster, f"vc-egpu-{name}", argv, env)


def answers(port: int) -> bool:
    """Whether a process says that it is ready."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def check_alive(process: HostProcess) -> None:
    """Raise with the log's end when a process that was started has died."""
    if not process.alive:
        raise StoryError(f"{process.name} ended:\n{process.log_tail()}")
