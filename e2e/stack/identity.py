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
    path = cluster.state_dir / "identities" / f"{namespace}-{account}.kubeconfig"
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
