"""Kubeconfigs of service accounts: processes beside a cluster get the rights that they have in it."""

from pathlib import Path

import yaml
from localcluster.cluster import LocalCluster

_TOKEN_LIFETIME = "24h"


def service_account_kubeconfig(cluster: LocalCluster, namespace: str, account: str) -> Path:
    """A kubeconfig with a fresh token of the service account, in the cluster's folder; returns its path."""
    token = cluster.kubectl(
        "create", "token", account, "-n", namespace, f"--duration={_TOKEN_LIFETIME}"
    ).stdout.strip()
    return _token_kubeconfig(cluster, f"{namespace}-{account}", token, namespace)


def bound_token_kubeconfig(cluster: LocalCluster, namespace: str, account: str, pod: str) -> Path:
    """The same with a token that is bound to a pod, as the kubelet gives it one."""
    token = cluster.kubectl(
        "create", "token", account, "-n", namespace, "--bound-object-kind=Pod", f"--bound-object-name={pod}"
    ).stdout.strip()
    return _token_kubeconfig(cluster, f"{namespace}-{account}-{pod}", token, namespace)


def _token_kubeconfig(cluster: LocalCluster, name: str, token: str, namespace: str) -> Path:
    """A kubeconfig that shows this token, in the cluster's folder under this name; returns its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": namespace}}],
        "clusters": [
            {
                "name": "it",
                "cluster": {
                    "server": cluster.server,
                    "certificate-authority": str(cluster.ca_certificate),
                },
            }
        ],
        "users": [{"name": "it", "user": {"token": token}}],
    }
    path = cluster.state_dir / "identities" / f"{name}.kubeconfig"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
