"""What a cluster shall look like, checked when it is written down."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from localcluster.errors import LocalClusterError

MAX_REAL_NODES = 32
MAX_KWOK_NODES = 20_000
AuditLevel = Literal["Metadata", "Request", "RequestResponse"]
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?")


@dataclasses.dataclass(frozen=True, slots=True)
class ClientRate:
    """Client-side throttle of one component, in requests per second."""

    qps: int
    burst: int

    def __post_init__(self) -> None:
        if self.qps < 1 or self.burst < self.qps:
            raise LocalClusterError(
                f"client rate {self.qps}/{self.burst}: qps >= 1 and burst >= qps are needed"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One local cluster.

    ``services`` runs kube-proxy on each real node and gives Services addresses that also the machine
    itself reaches; ``dns`` adds CoreDNS. Both need real nodes. ``extra_args`` appends flags by component
    name ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kwok", "etcd").
    ``kubernetes`` is a minor version ("1.30"), and ``kubelet`` that of the nodes where theirs is another, as
    amid an upgrade; ``containerd`` likewise ("1.7"). Where empty, the environment says, see
    ``docs/local-cluster.md``. ``user_namespaces``: pods may have users of their own (``hostUsers: false``);
    for that a runc is built, since Debian 12's cannot map the owners of mounts. ``images``: archives that the
    nodes have from the start, beside those that the cluster needs; sooner there than by ``import_image``.
    """

    name: str = "local"
    real_nodes: int = 2
    kwok_nodes: int = 0
    services: bool = True
    dns: bool = True
    audit: bool = False
    audit_level: AuditLevel = "Metadata"
    priority_and_fairness: bool = True
    scheduler: bool = True
    rootless: bool = False
    kubernetes: str = ""
    kubelet: str = ""
    containerd: str = ""
    user_namespaces: bool = False
    images: tuple[str, ...] = ()
    controller_manager_rate: ClientRate = ClientRate(200, 400)
    scheduler_rate: ClientRate = ClientRate(500, 1000)
    node_monitor_grace_s: int = 40
    max_pods: int = 110
    node_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    feature_gates: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    extra_args: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_name(self.name)
        _in_range("real_nodes", self.real_nodes, 0, MAX_REAL_NODES)
        _in_range("kwok_nodes", self.kwok_nodes, 0, MAX_KWOK_NODES)
        _in_range("node_monitor_grace_s", self.node_monitor_grace_s, 5, 600)
        _in_range("max_pods", self.max_pods, 1, 1000)
        if self.rootless and self.real_nodes:
            raise LocalClusterError(
                f"real_nodes {self.real_nodes}: without root there are kwok nodes only, use 0"
            )
        if self.dns and not self.services:
            raise LocalClusterError("dns needs services")

    @property
    def real_node_names(self) -> tuple[str, ...]:
        """Names of the real nodes, in order."""
        return tuple(f"{self.name}-node-{i}" for i in range(self.real_nodes))

    def args_for(self, component: str) -> tuple[str, ...]:
        """Extra flags of one component."""
        return self.extra_args.get(component, ())

    def to_json(self) -> dict[str, Any]:
        """A JSON object that ``from_json`` reads back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote; keys of newer versions are dropped."""
        known = {field.name for field in dataclasses.fields(cls)}
        values = {key: value for key, value in raw.items() if key in known}
        for rate in ("controller_manager_rate", "scheduler_rate"):
            if rate in values:
                values[rate] = ClientRate(**values[rate])
        if "images" in values:
            values["images"] = tuple(values["images"])
        if "extra_args" in values:
            values["extra_args"] = {key: tuple(flags) for key, flags in values["extra_args"].items()}
        return cls(**values)


def check_name(name: str) -> None:
    """Refuse what is no name of a cluster: it is a folder of the state root, and part of its nodes' names."""
    if not _NAME.fullmatch(name):
        raise LocalClusterError(
            f"cluster name {name!r}: 1 to 20 of a-z, 0-9 and '-', a letter first, no '-' at the end"
        )


def _in_range(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LocalClusterError(f"{field} {value}: must be {low} to {high}")
