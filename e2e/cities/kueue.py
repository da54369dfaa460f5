"""Kueue as a program of this machine beside a local cluster, with a token of its own account."""

import base64
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml
from localcluster import LocalCluster
from localcluster.api import wait_until
from localcluster.net import free_ports
from stack.hostprocess import HostProcess
from stack.identity import service_account_kubeconfig

NAMESPACE: Final = "kueue-system"
ACCOUNT: Final = "kueue-controller-manager"
TIMEOUT_S: Final = 60.0
_LEFT_OUT: Final = frozenset({"Deployment", "Service", "APIService", "Secret", "ConfigMap"})
_EXCLUDED: Final = ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores")
"""As docs/operator-with-other-plugins.md says."""

Json = dict[str, Any]


class NoKueueError(RuntimeError):
    """The environment names no Kueue."""


@dataclass(frozen=True, slots=True)
class Kueue:
    """Where its program and its manifests lie."""

    program: Path
    config: Path

    @classmethod
    def from_environment(cls) -> Self:
        """Read KUEUE_BIN, the built program, and KUEUE_CONFIG_DIR, the folder ``config`` of its sources.

        Raises :class:`NoKueueError` where one is not set.
        """
        values = [os.environ.get(name, "") for name in ("KUEUE_BIN", "KUEUE_CONFIG_DIR")]
        if not all(values):
            raise NoKueueError("KUEUE_BIN and KUEUE_CONFIG_DIR name no Kueue")
        return cls(*(Path(value).resolve() for value in values))

    def install(self, cluster: LocalCluster) -> HostProcess:
        """Apply its manifests, and start it; returns when its webhooks answer."""
        port, health = free_ports(2, set(cluster.context.record.ports.values()))
        authority = cluster.context.authority
        pair = authority.issue("kueue", "kueue", hosts=("127.0.0.1",))
        hook = _Hook(f"https://127.0.0.1:{port}", _base64(authority.pair.certificate))
        documents = [
            _by_url(document, hook)
            for document in yaml.safe_load_all(
                cluster.kubectl("kustomize", str(self.config / "default")).stdout
            )
            if document and document["kind"] not in _LEFT_OUT
        ]
        kinds = [one for one in documents if one["kind"] in {"CustomResourceDefinition", "Namespace"}]
        for batch in (kinds, [one for one in documents if one not in kinds]):
            cluster.kubectl("apply", "--server-side", "-f", "-", text_in=yaml.safe_dump_all(batch))
        cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        folder = cluster.state_dir / "kueue"
        certificates = folder / "etc" / "kueue" / "metrics" / "certs"
        certificates.mkdir(parents=True)
        (certificates / "tls.crt").write_bytes(pair.certificate.read_bytes())
        (certificates / "tls.key").touch(mode=0o600)
        (certificates / "tls.key").write_bytes(pair.key.read_bytes())
        (folder / "config.yaml").write_text(yaml.safe_dump(_configuration(certificates, port, health)))
        kubeconfig = service_account_kubeconfig(cluster, NAMESPACE, ACCOUNT)
        argv = [
            *_with_own_etc(folder / "etc"),
            *(str(self.program), f"--config={folder / 'config.yaml'}", f"--kubeconfig={kubeconfig}"),
            "--feature-gates=VisibilityOnDemand=false",
        ]
        process = HostProcess(cluster, "kueue", argv, {"POD_NAMESPACE": NAMESPACE})
        process.start()
        wait_until("Kueue answers", lambda: _answers(cluster), TIMEOUT_S, lambda: _check(process))
        return process


def configure(cluster: LocalCluster, process: HostProcess, **more: Any) -> None:
    """Start it again with these keys in its configuration."""
    file = cluster.state_dir / "kueue" / "config.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **more}))
    process.restart()
    wait_until("Kueue answers", lambda: _answers(cluster), TIMEOUT_S, lambda: _check(process))


@dataclass(frozen=True, slots=True)
class _Hook:
    url: str
    authority: str

    def client(self, service: Json) -> Json:
        return {"url": self.url + service.get("path", ""), "caBundle": self.authority}


def _by_url(document: Json, hook: _Hook) -> Json:
    """Its webhooks, and those that convert its objects, are called on this machine."""
    if document["kind"].endswith("WebhookConfiguration"):
        for one in document["webhooks"]:
            one["clientConfig"] = hook.client(one["clientConfig"]["service"])
    if document["kind"] == "CustomResourceDefinition":
        conversion = document["spec"].get("conversion") or {}
        if conversion.get("strategy") == "Webhook":
            webhook = conversion["webhook"]
            webhook["clientConfig"] = hook.client(webhook["clientConfig"]["service"])
    return document


def _with_own_etc(folder: Path) -> list[str]:
    """It looks for certificates below /etc/kueue, whatever it is told: this process alone sees some there."""
    mount = f"mount -t overlay overlay -o lowerdir={folder}:/etc /etc"
    return ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]


def _configuration(certificates: Path, port: int, health: int) -> Json:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 50, "burst": 100},
        "integrations": {"frameworks": ["batch/job"]},
        "resources": {"excludeResourcePrefixes": list(_EXCLUDED)},
        "multiKueue": {"gcInterval": "5s", "workerLostTimeout": "60s"},
    }


def _answers(cluster: LocalCluster) -> bool:
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "cards"},
    }
    done = cluster.kubectl("apply", "-f", "-", text_in=yaml.safe_dump(flavor), check=False)
    return bool(done.returncode == 0)


def _check(process: HostProcess) -> None:
    if not process.alive:
        raise AssertionError(f"Kueue ended:\n{process.log_tail(40)}")


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
