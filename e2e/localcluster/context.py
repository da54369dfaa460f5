"""What every part needs to know of one cluster: its files, its record, its addresses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localcluster.api import Api
from localcluster.net import Addresses
from localcluster.packages import search_path
from localcluster.pki import Authority, KeyPair
from localcluster.procs import MARKER, ManagedProcess
from localcluster.spec import ClusterSpec
from localcluster.state import ClusterRecord, StateDir

USUAL_PORTS = {
    "kube-apiserver": 6443,
    "kube-controller-manager": 10257,
    "kube-scheduler": 10259,
    "kwok": 10247,
}
"""Where the control plane listens at a cluster's own address, unless its record says otherwise."""


@dataclass(frozen=True, slots=True)
class Context:
    """One cluster, seen from its parts."""

    state: StateDir
    record: ClusterRecord

    @property
    def spec(self) -> ClusterSpec:
        """What was asked for."""
        return self.record.spec

    @property
    def addresses(self) -> Addresses | None:
        """The cluster's addresses; None where it has no real nodes."""
        return Addresses(self.record.block) if self.record.block is not None else None

    @property
    def real_addresses(self) -> Addresses:
        """The cluster's addresses, where it has real nodes."""
        addresses = self.addresses
        assert addresses is not None, "only clusters with real nodes have addresses"
        return addresses

    @property
    def all_addresses(self) -> tuple[str, ...]:
        """Its network, for programs that know ranges, and its hosts, for Python, which knows names."""
        addresses = self.addresses
        if addresses is None:
            return ()
        nodes = (addresses.node(index) for index in range(self.spec.real_nodes))
        return (addresses.network, addresses.host, addresses.switch, *nodes)

    @property
    def host_ip(self) -> str:
        """Address of this machine, as the cluster knows it."""
        return self.addresses.host if self.addresses else "127.0.0.1"

    def port(self, component: str) -> int:
        """Where a component listens."""
        return self.record.ports.get(component, USUAL_PORTS[component])

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.host_ip}:{self.port('kube-apiserver')}"

    @property
    def service_range(self) -> str:
        """Range of Service addresses."""
        return self.addresses.services if self.addresses else "10.96.0.0/20"

    @property
    def kubernetes_service(self) -> str:
        """Address of the Service ``kubernetes``."""
        return self.addresses.kubernetes_service if self.addresses else "10.96.0.1"

    def pair(self, name: str) -> KeyPair:
        """Certificate and key of one identity."""
        return KeyPair(self.state.pki / f"{name}.crt", self.state.pki / f"{name}.key")

    @property
    def authority(self) -> Authority:
        """The cluster's authority."""
        return Authority(self.state.pki)

    def kubeconfig_of(self, name: str) -> Path:
        """Kubeconfig of one component."""
        return self.state.config / f"{name}.kubeconfig"

    def api(self) -> Api:
        """A client with the administrator's rights."""
        return Api(self.server, self.authority, self.pair("admin"))

    def process(self, name: str) -> ManagedProcess:
        """A managed process of this cluster."""
        return self.state.process(name)

    def environment(
        self, path_first: Path | None = None, extra: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Environment of a process: little of the caller's, and the mark by which `down` finds it."""
        path = search_path()
        return {
            "PATH": f"{path_first}:{path}" if path_first else path,
            "HOME": os.environ.get("HOME", "/"),
            "LANG": "C.UTF-8",
            MARKER: str(self.state.path),
            **(extra or {}),
        }
