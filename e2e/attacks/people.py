"""Identities of a tenant on a cluster: a person with a certificate, and a service account with a token."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from localcluster import LocalCluster
from localcluster.pki import Authority, write_kubeconfig
from stack.identity import service_account_kubeconfig

from attacks.requests import Json


@dataclass(frozen=True, slots=True)
class Identity:
    """Somebody who acts in one namespace."""

    who: str
    cluster: LocalCluster
    namespace: str
    kubeconfig: Path

    def kubectl(
        self, *arguments: str, text_in: str | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """kubectl as this identity; with ``check`` a failure raises what kubectl said."""
        own = ("--kubeconfig", str(self.kubeconfig), "-n", self.namespace)
        return self.cluster.kubectl(*own, *arguments, text_in=text_in, check=check)

    def create(self, document: Json) -> None:
        """``kubectl create`` of one object."""
        self.kubectl("create", "-f", "-", text_in=yaml.safe_dump(document))

    def creates(self, document: Json) -> bool:
        """The same; False where it was refused."""
        done = self.kubectl("create", "-f", "-", text_in=yaml.safe_dump(document), check=False)
        return done.returncode == 0

    def inside(self, pod: str, script: str) -> str:
        """All that a shell in the pod's first container says, its errors as well."""
        done = self.kubectl("exec", pod, "--", "sh", "-c", f"exec 2>&1; {script}", check=False)
        return done.stdout + done.stderr


def person(cluster: LocalCluster, namespace: str, name: str, groups: Sequence[str]) -> Identity:
    """A person of these groups, by a certificate of the cluster's authority."""
    authority = Authority(cluster.state_dir / "pki")
    pair = authority.issue(name, name, groups=tuple(groups))
    path = cluster.state_dir / "identities" / f"{name}.kubeconfig"
    write_kubeconfig(path, cluster.server, authority, pair, "it")
    return Identity("user", cluster, namespace, path)


def account(cluster: LocalCluster, namespace: str, name: str) -> Identity:
    """A service account that is there, by a token."""
    path = service_account_kubeconfig(cluster, namespace, name)
    return Identity("service account", cluster, namespace, path)
