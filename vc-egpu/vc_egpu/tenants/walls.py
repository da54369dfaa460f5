"""The walls of a tenant's namespace: Pod Security, quotas, defaults of containers, network policies. Pure.

Two traps are kept out. A quota counts an extended resource only as ``requests.<name>``. And no card stands in
a LimitRange: Kubernetes copies its ``max`` into each container that names none, which then has cards.
"""

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any, Final

from vc_egpu.kube.resources import VOLCANO_JOBS
from vc_egpu.tenants.document import ContainerDefault, Tenant
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.other_plugins import FOREIGN_RESOURCES

Json = dict[str, Any]
POD_SECURITY_VERSION: Final = "v1.30"
"""The oldest Kubernetes that we support: an upgrade of the cluster tightens nothing by itself."""
MIG_PROFILES: Final = (
    *("1g.5gb", "1g.5gb.me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    *("1g.10gb.me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    *("1g.6gb", "1g.6gb.me", "2g.12gb", "4g.24gb"),
)
"""As NVIDIA's device plugin names those of A30, A100 and H100; a quota has no wildcard."""
OTHER_CARDS: Final = tuple(
    sorted(
        {
            *(name for name in FOREIGN_RESOURCES if "*" not in name),
            *(f"nvidia.com/mig-{profile}" for profile in MIG_PROFILES),
            *("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "amd.com/gpu"),
            *("huawei.com/Ascend910", "huawei.com/Ascend310", "huawei.com/Ascend310P", "huawei.com/npu"),
            *("hygon.com/dcunum", "hygon.com/dcu", "cambricon.com/mlu", "tencent.com/vcuda-memory"),
        }
    )
)
"""Resources of other plugins that give cards."""
DYNAMIC_CLAIMS: Final = (
    "count/resourceclaims.resource.k8s.io",
    "count/resourceclaimtemplates.resource.k8s.io",
)
"""Dynamic resource allocation gives cards past our ledger."""
_PRIVATE: Final = (
    *("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16"),
    *("fc00::/7", "fe80::/10"),
)
"""Nodes, services and the metadata of clouds live there."""
_EVERYWHERE: Final = ("0.0.0.0/0", "::/0")
_DNS_PORT: Final = 53


def namespace(tenant: Tenant) -> Json:
    """The Namespace, with its Pod Security level and the document."""
    level = tenant.spec.pod_security
    modes: dict[str, str] = {"enforce": level, "warn": "restricted", "audit": "restricted"}
    labels = {f"pod-security.kubernetes.io/{mode}": wanted for mode, wanted in modes.items()}
    labels |= {f"pod-security.kubernetes.io/{mode}-version": POD_SECURITY_VERSION for mode in modes}
    annotations = {names.QUEUE_NAME: tenant.queue, names.TENANT_DOCUMENT: tenant.encode()}
    metadata = {"name": tenant.namespace, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def quotas(tenant: Tenant) -> Iterator[Json]:
    """What its pods may request together, and how many of them may be ``high``."""
    yield _object("v1", "ResourceQuota", tenant, "tenant", {"hard": _hard(tenant)})
    high = [{"scopeName": "PriorityClass", "operator": "In", "values": [names.PRIORITY_CLASS_HIGH]}]
    spec = {"hard": {"pods": str(tenant.spec.high_pods)}, "scopeSelector": {"matchExpressions": high}}
    yield _object("v1", "ResourceQuota", tenant, "tenant-high", spec)


def _hard(tenant: Tenant) -> dict[str, str]:
    quota, other = tenant.spec.quota, tenant.spec.other_cards
    hard = {
        "pods": quota.pods,
        "requests.cpu": quota.cpu,
        "requests.memory": quota.memory,
        "limits.memory": quota.memory_limits,
        "requests.ephemeral-storage": quota.ephemeral_storage,
        "persistentvolumeclaims": quota.volumes,
        "requests.storage": quota.storage,
        f"count/jobs.{VOLCANO_JOBS.group}": quota.jobs,
        "count/jobs.batch": quota.batch_jobs,
        "count/configmaps": quota.config_maps,
        "count/secrets": quota.secrets,
        "services.nodeports": 0,
        "services.loadbalancers": 0,
        **{f"requests.{name}": other.get(name, 0) for name in {*OTHER_CARDS, *other}},
        **dict.fromkeys(DYNAMIC_CLAIMS, 0),
    }
    return {key: str(hard[key]) for key in sorted(hard) if hard[key] is not None}


def limit_range(tenant: Tenant) -> Json:
    """What containers get that name nothing: a quota on requests refuses pods without them."""
    containers = tenant.spec.containers
    limits: Json = {"type": "Container"}
    for name, default in (("cpu", containers.cpu), ("memory", containers.memory)):
        _add_default(limits, name, default)
    return _object("v1", "LimitRange", tenant, "tenant", {"limits": [limits]})


def _add_default(limits: Json, name: str, default: ContainerDefault) -> None:
    limits.setdefault("defaultRequest", {})[name] = default.request
    if limit := default.limit or default.max:  # the API server fills in "max" where there is no default
        limits.setdefault("default", {})[name] = limit
    if default.max:
        limits.setdefault("max", {})[name] = default.max


def network_policies(tenant: Tenant) -> Iterator[Json]:
    """Nothing goes in or out but what a policy names; none with profile ``open``."""
    network = tenant.spec.network
    if network.profile == "open":
        return
    inside: list[Json] = [{"podSelector": {}}]
    yield _policy(tenant, "tenant-deny")
    yield _policy(tenant, "tenant-within", ingress=[{"from": inside}], egress=[{"to": inside}])
    dns = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    ports = [{"protocol": protocol, "port": _DNS_PORT} for protocol in ("UDP", "TCP")]
    yield _policy(tenant, "tenant-dns", egress=[{"to": [dns], "ports": ports}])
    if network.profile == "internet":
        closed = [ip_network(text) for text in (*_PRIVATE, *network.closed)]
        yield _policy(tenant, "tenant-internet", egress=[{"to": list(_outside(closed))}])
    if network.to:
        to = [{"ipBlock": {"cidr": text}} for text in network.to]
        yield _policy(tenant, "tenant-to", egress=[{"to": to}])
    if network.from_namespaces:
        selector = {
            "key": "kubernetes.io/metadata.name",
            "operator": "In",
            "values": list(network.from_namespaces),
        }
        sources = [{"namespaceSelector": {"matchExpressions": [selector]}}]
        yield _policy(tenant, "tenant-from", ingress=[{"from": sources}])


def _outside(closed: Sequence[IPv4Network | IPv6Network]) -> Iterator[Json]:
    for cidr in _EVERYWHERE:
        version = ip_network(cidr).version
        left_out = [str(one) for one in dict.fromkeys(closed) if one.version == version]
        yield {"ipBlock": {"cidr": cidr, "except": left_out}}


def _policy(tenant: Tenant, name: str, **rules: list[Json]) -> Json:
    types = [kind.capitalize() for kind in ("ingress", "egress") if kind in rules]
    spec = {"podSelector": {}, "policyTypes": types or ["Ingress", "Egress"], **rules}
    return _object("networking.k8s.io/v1", "NetworkPolicy", tenant, name, spec)


def _object(api_version: str, kind: str, tenant: Tenant, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": tenant.namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
