"""Configuration files of the components, as values. Pure: nothing here looks at the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from localcluster.net import Addresses
from localcluster.pki import KeyPair
from localcluster.spec import ClusterSpec

PAUSE_IMAGE = "vc-egpu.local/pause:1"
_BEFORE_1_31 = "1.30"
"""Minor version of the nodes that know less than all others that are pinned here."""

_UNUSED_PLUGINS = (
    *(f"io.containerd.snapshotter.v1.{name}" for name in ("blockfile", "btrfs", "devmapper", "erofs", "zfs")),
    "io.containerd.nri.v1.nri",
    "io.containerd.tracing.processor.v1.otlp",
)
"""Of containerd."""
_SANDBOX_SINCE_2 = f"""\
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  use_local_image_pull = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = {json.dumps(PAUSE_IMAGE)}
"""


def to_yaml(document: Any) -> str:
    """YAML with keys in the given order."""
    return str(yaml.safe_dump(document, sort_keys=False, width=1000))


def kubelet_config(
    spec: ClusterSpec,
    addresses: Addresses,
    index: int,
    *,
    group: str,
    ca: Path,
    serving: KeyPair,
    resolv_conf: Path,
) -> dict[str, Any]:
    """KubeletConfiguration of the node ``index``, whose control group is ``group`` (absolute)."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.node(index),
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        **({} if spec.kubelet == _BEFORE_1_31 else {"failCgroupV1": False}),
        "failSwapOn": False,
        # The nodes share one machine: each would reserve all of it.
        "enforceNodeAllocatable": [],
        # Without CAP_SYS_RESOURCE a lower value than the present one is refused.
        "oomScoreAdj": 0,
        "clusterDomain": "cluster.local",
        "clusterDNS": [addresses.dns_service] if spec.dns else [],
        "resolvConf": str(resolv_conf),
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": min(40, spec.node_monitor_grace_s),
        "syncFrequency": "5s",
        "readOnlyPort": 0,
        "maxPods": spec.max_pods,
        # Images are imported, never pulled: one that the collector took could not be had again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        # The disk is this machine's, whatever its size: at one part in a hundred pods were refused with
        # gigabytes left. Whether there is room for a cluster is asked before it starts (`room`).
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "100Mi",
            "imagefs.available": "100Mi",
            "nodefs.inodesFree": "1000",
            "imagefs.inodesFree": "1000",
        },
        "serializeImagePulls": False,
        "registryPullQPS": 0,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "featureGates": dict(spec.feature_gates),
    }


def containerd_config(runc: Path, cni_folder: Path, *, scratch: Path, version: str = "") -> str:
    """containerd's TOML. Paths are those inside the node, the same as on a usual machine.

    ``scratch`` is a folder of the node for the plugins that nobody uses here; ``version``: the minor one.
    """
    text = json.dumps  # a JSON string is a TOML string
    old = version.startswith("1.")
    runtime = "io.containerd.grpc.v1.cri" if old else "io.containerd.cri.v1.runtime"
    sandbox = f"  sandbox_image = {text(PAUSE_IMAGE)}" if old else ""
    plugins = f"bin_dir = {text(str(cni_folder))}" if old else f"bin_dirs = [{text(str(cni_folder))}]"
    return f"""\
version = {2 if old else 3}
root = "/var/lib/containerd"
state = "/run/containerd"
temp = {text(str(scratch))}
oom_score = 0
disabled_plugins = {json.dumps(_UNUSED_PLUGINS)}

[grpc]
  address = "/run/containerd/containerd.sock"

{_SANDBOX_SINCE_2 if not old else ""}
[plugins."{runtime}"]
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  restrict_oom_score_adj = true
{sandbox}
  [plugins."{runtime}".cni]
    {plugins}
    conf_dir = "/etc/cni/net.d"
  [plugins."{runtime}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{runtime}".containerd.runtimes.runc.options]
      BinaryName = {text(str(runc))}
      SystemdCgroup = false
"""


def importing_config(root: Path, work: Path, socket: Path, *, version: str = "") -> str:
    """TOML of a containerd that only unpacks images, into the folder ``root``."""
    text = json.dumps
    kubelets = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]
    return f"""\
version = {2 if version.startswith("1.") else 3}
root = {text(str(root))}
state = {text(str(work / "state"))}
temp = {text(str(work / "temp"))}
disabled_plugins = {json.dumps([*_UNUSED_PLUGINS, *kubelets])}

[grpc]
  address = {text(str(socket))}
"""


def cni_config(addresses: Addresses, index: int) -> str:
    """Network list of one node: a cable per pod, routed, so that all pod traffic meets kube-proxy's rules."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": addresses.node_pods(index)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/var/lib/cni/networks",
    }
    plugins = [
        {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
    ]
    return json.dumps({"cniVersion": "1.0.0", "name": "vc-egpu", "plugins": plugins}, indent=1)


def kube_proxy_config(
    spec: ClusterSpec, addresses: Addresses, index: int, kubeconfig: Path
) -> dict[str, Any]:
    """KubeProxyConfiguration of the node ``index``."""
    keep = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        # nftables, as all others have it.
        "featureGates": {"NFTablesProxyMode": True} if spec.kubelet == _BEFORE_1_31 else {},
        "hostnameOverride": spec.real_node_names[index],
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 50, "burst": 100},
        "bindAddress": addresses.node(index),
        "healthzBindAddress": f"{addresses.node(index)}:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # What comes from outside this range, this machine above all, is masqueraded: answers of pods on
        # other nodes come back through the node that translated.
        "clusterCIDR": addresses.pods,
        "detectLocalMode": "ClusterCIDR",
        # The limits of connection tracking belong to the machine.
        "conntrack": keep,
        "nftables": {"minSyncPeriod": "100ms", "syncPeriod": "30s"},
        "oomScoreAdj": 0,
    }


def corefile(addresses: Addresses, kubeconfig: Path) -> str:
    """CoreDNS: the cluster's names, and a quick no for all others (nodes have no way out)."""
    return f"""\
cluster.local:53 in-addr.arpa:53 {{
    bind {addresses.switch}
    errors
    ready {addresses.switch}:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods verified
        ttl 5
    }}
    cache 5
}}
.:53 {{
    bind {addresses.switch}
    template ANY ANY . {{
        rcode NXDOMAIN
    }}
}}
"""


def audit_policy(level: str) -> dict[str, Any]:
    """Audit each write once, when it is answered; reads, leases and reviews are left out."""
    reviews = [
        "subjectaccessreviews",
        "selfsubjectaccessreviews",
        "tokenreviews",
        "localsubjectaccessreviews",
    ]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
            {
                "level": "None",
                "resources": [
                    {"group": "authorization.k8s.io", "resources": reviews},
                    {"group": "authentication.k8s.io", "resources": reviews},
                ],
            },
            {"level": level},
        ],
    }


def dns_objects(addresses: Addresses) -> list[tuple[str, dict[str, Any]]]:
    """The Service ``kube-dns`` and its endpoint outside the nodes: (path of the object, body)."""
    ports = [
        {"name": "dns", "port": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": addresses.dns_service, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-local",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [addresses.switch], "conditions": {"ready": True}}],
    }
    return [
        ("/api/v1/namespaces/kube-system/services/kube-dns", service),
        ("/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns-local", endpoints),
    ]


def role_for(user: str, name: str, rules: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    """A ClusterRole and its binding to one user: (path of the object, body)."""
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    return [
        (f"/apis/{group}/v1/clusterroles/{name}", role),
        (f"/apis/{group}/v1/clusterrolebindings/{name}", binding),
    ]


def dns_rules() -> list[dict[str, Any]]:
    """What CoreDNS reads."""
    read = ["list", "watch"]
    return [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": read},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
    ]
