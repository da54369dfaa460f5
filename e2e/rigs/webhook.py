"""The webhook beside a cluster's API server, under its own service account: for its e2e tests."""

import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from localcluster import LocalCluster
from localcluster.net import free_ports
from localcluster.patience import stretched
from stack import webhook
from stack.hostprocess import HostProcess
from stack.identity import service_account_kubeconfig
from stack.kit import Kit
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.words.names import PLAN
from vc_egpu.webhook.policies.checks import admission_policies
from vc_egpu.webhook.policies.manifests import webhook_configurations

Json = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[2]
BASE = REPOSITORY / "manifests" / "base"
NAMESPACE = "vc-egpu-system"
_NEEDS_PODS = {"Deployment", "PodDisruptionBudget", "Service"}
READY_TIMEOUT_S = 60.0


@dataclass
class Rig:
    """A cluster with our CRDs, classes, policies, and the webhook as a process of this machine."""

    cluster: LocalCluster
    kit: Kit
    process: HostProcess
    port: int
    metrics_port: int
    tenants: dict[str, ApiConnection] = field(default_factory=dict)

    @classmethod
    def start(
        cls, cluster: LocalCluster, folder: Path, flags: Sequence[str] = (), models: str | None = None
    ) -> "Rig":
        """Install everything and return when reviews are answered."""
        kit = Kit(ApiConnection.connect(cluster.kubeconfig), cluster.kubectl)
        cluster.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "manifests" / "crds"))
        kit.apply(BASE / "namespace.yaml", BASE / "priority-classes.yaml", *_rbac(BASE / "webhook.yaml"))
        port, metrics_port = free_ports(2, set())
        table = folder / "models.yaml"
        table.write_text(models or (BASE / "config" / "models.yaml").read_text())
        kubeconfig = service_account_kubeconfig(cluster, NAMESPACE, "vc-egpu-webhook")
        argv = [
            str(REPOSITORY / ".venv" / "bin" / "vc-egpu"), "webhook",
            "--kubeconfig", str(kubeconfig), "--models", str(table), "--namespace", NAMESPACE,
            "--port", str(port), "--metrics-port", str(metrics_port), "--hosts", "127.0.0.1",
            "--tls-interval-s", "0.5", "--drain-s", "0", *flags,
        ]  # fmt: skip
        rig = cls(cluster, kit, HostProcess(cluster, "webhook", argv), port, metrics_port)
        kit.apply(*map(yaml.safe_dump, admission_policies()))
        rig.process.start()
        rig.install_webhooks()
        rig.wait_ready()
        return rig

    def install_webhooks(self) -> None:
        """Both configurations, with the address of this machine; the process fills in its CA."""
        self.kit.apply(*map(yaml.safe_dump, webhook_configurations(url=f"https://127.0.0.1:{self.port}")))

    def wait_ready(self) -> None:
        """Until ``/readyz`` says so and a dry run gets through the configured webhooks."""
        deadline = time.monotonic() + stretched(READY_TIMEOUT_S)
        while time.monotonic() < deadline:
            if self._ready() and webhook.answers(self.kit.api) and self.policies_bite():
                return
            time.sleep(0.05)
        raise AssertionError(f"the webhook is not ready:\n{self.process.log_tail()}")

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def policies_bite(self) -> bool:
        """True once the API server has compiled the policies: a PodGroup with a forged plan is refused."""
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "probe", "annotations": {PLAN: "forged"}},
            "spec": {"minMember": 1},
        }
        path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
        try:
            self.kit.api.request("POST", path, body, query={"dryRun": "All"})
        except KubeError as error:
            return "ValidatingAdmissionPolicy" in str(error)
        return False

    def tenant(self, user: str, namespace: str) -> ApiConnection:
        """A connection of a service account ``user`` that may edit its own namespace."""
        key = f"{namespace}/{user}"
        if key not in self.tenants:
            path = service_account_kubeconfig(self.cluster, namespace, user)
            self.tenants[key] = ApiConnection.connect(path)
        return self.tenants[key]

    @contextmanager
    def webhook_down(self) -> Any:
        """The process is killed, then started again."""
        self.process.kill()
        try:
            yield
        finally:
            self.process.start()
            self.wait_ready()


def _rbac(path: Path) -> list[str]:
    """The service account and its rights; what needs nodes is left out."""
    documents = [d for d in yaml.safe_load_all(path.read_text()) if d and d["kind"] not in _NEEDS_PODS]
    return [yaml.safe_dump(document) for document in documents]
