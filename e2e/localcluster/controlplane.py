"""etcd, API server, controllers, scheduler and the other processes that run beside the nodes."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

from localcluster import kwok, toolchain
from localcluster.api import wait_until
from localcluster.context import Context
from localcluster.errors import LocalClusterError
from localcluster.pki import Authority, write_kubeconfig, write_service_account_keys
from localcluster.procs import Entered, ManagedProcess
from localcluster.render import audit_policy, corefile, to_yaml
from localcluster.state import ETCD_SOCKET

DNS_USER = "system:vc-egpu:coredns"
KWOK_USER = "system:vc-egpu:kwok"
SWITCH = "switch"
GOGC_PERCENT = 200
"""Of the API server and etcd: a few hundred MiB more, and less of the cores that everybody shares here."""
STOP_ORDER = ("kwok", "coredns", "kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
"""Who leaves first when a cluster goes down."""


def write_identities(context: Context) -> None:
    """Make the authority, and certificate and kubeconfig of each component and node."""
    pki, server, spec = context.state.pki, context.server, context.spec
    authority = Authority.create(pki)
    write_service_account_keys(pki)
    hosts = ("127.0.0.1", context.host_ip, context.kubernetes_service, "localhost", "kubernetes")
    names = ("kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    authority.issue("kube-apiserver", "kube-apiserver", hosts=tuple(dict.fromkeys(hosts + names)))
    # The API server's own identity towards kubelets: exec and logs, nothing else of the cluster.
    authority.issue("apiserver-kubelet", "kube-apiserver-kubelet-client", ("system:masters",))
    admin = authority.issue("admin", "kubernetes-admin", ("system:masters",))
    write_kubeconfig(context.state.kubeconfig, server, authority, admin, spec.name)
    users = {
        "kube-controller-manager": ("system:kube-controller-manager", ()),
        "kube-scheduler": ("system:kube-scheduler", ()),
        "kube-proxy": ("system:kube-proxy", ()),
        "coredns": (DNS_USER, ()),
        "kwok": (KWOK_USER, ()),
    }
    for file_name, (user, groups) in users.items():
        pair = authority.issue(file_name, user, groups)
        write_kubeconfig(context.kubeconfig_of(file_name), server, authority, pair, spec.name)
    for index, node in enumerate(spec.real_node_names):
        address = context.real_addresses.node(index)
        pair = authority.issue(node, f"system:node:{node}", ("system:nodes",), (node, address))
        write_kubeconfig(context.kubeconfig_of(node), server, authority, pair, spec.name)


def etcd_argv(context: Context) -> list[str]:
    """etcd on a socket of the state folder: no port, and no other user may talk to it."""
    url = f"unix://{context.state.path}/{ETCD_SOCKET}"
    return [
        str(toolchain.program("etcd")),
        f"--data-dir={context.state.path}/etcd",
        # The data does not outlive the machine, so nothing is gained by waiting for the disk.
        "--unsafe-no-fsync",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=unix://{context.state.path}/peer.sock",
        f"--initial-advertise-peer-urls=unix://{context.state.path}/peer.sock",
        f"--initial-cluster=default=unix://{context.state.path}/peer.sock",
        "--quota-backend-bytes=8589934592",
        "--auto-compaction-retention=10m",
        "--log-level=warn",
        *context.spec.args_for("etcd"),
    ]


def apiserver_argv(context: Context) -> list[str]:
    """The API server, on this machine's address in the cluster."""
    spec, pki, config = context.spec, context.state.pki, context.state.config
    argv = [
        str(toolchain.program("kube-apiserver", spec.kubernetes)),
        f"--etcd-servers=unix://{context.state.path}/{ETCD_SOCKET}",
        f"--bind-address={context.host_ip}",
        f"--secure-port={context.port('kube-apiserver')}",
        f"--tls-cert-file={pki}/kube-apiserver.crt",
        f"--tls-private-key-file={pki}/kube-apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--anonymous-auth=false",
        "--profiling=false",
        f"--service-cluster-ip-range={context.service_range}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        "--kubelet-preferred-address-types=InternalIP",
        # Webhooks are called at their pods: a node that is down does not cut off the others' webhooks.
        "--enable-aggregator-routing=true",
        f"--enable-priority-and-fairness={str(spec.priority_and_fairness).lower()}",
    ]
    if context.addresses:
        argv.append(f"--advertise-address={context.host_ip}")
    else:
        # A loopback address may not be advertised; nobody reads the Service `kubernetes` here.
        argv.append("--endpoint-reconciler-type=none")
    if spec.feature_gates:
        argv.append(
            "--feature-gates=" + ",".join(f"{k}={str(v).lower()}" for k, v in spec.feature_gates.items())
        )
    if spec.audit:
        argv += [
            f"--audit-policy-file={config}/audit-policy.yaml",
            f"--audit-log-path={context.state.audit_log}",
            "--audit-log-maxsize=10240",
        ]
    return argv + list(spec.args_for("kube-apiserver"))


def controller_manager_argv(context: Context) -> list[str]:
    """The controllers."""
    pki, rate = context.state.pki, context.spec.controller_manager_rate
    return [
        str(toolchain.program("kube-controller-manager", context.spec.kubernetes)),
        f"--kubeconfig={context.kubeconfig_of('kube-controller-manager')}",
        f"--bind-address={context.host_ip}",
        f"--secure-port={context.port('kube-controller-manager')}",
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        f"--kube-api-qps={rate.qps}",
        f"--kube-api-burst={rate.burst}",
        f"--node-monitor-grace-period={context.spec.node_monitor_grace_s}s",
        "--node-monitor-period=2s",
        *context.spec.args_for("kube-controller-manager"),
    ]


def scheduler_argv(context: Context) -> list[str]:
    """The default scheduler."""
    return [
        str(toolchain.program("kube-scheduler", context.spec.kubernetes)),
        f"--config={context.state.config}/kube-scheduler.yaml",
        f"--bind-address={context.host_ip}",
        f"--secure-port={context.port('kube-scheduler')}",
        *context.spec.args_for("kube-scheduler"),
    ]


def scheduler_config(context: Context) -> dict[str, object]:
    """KubeSchedulerConfiguration: the defaults, with our client rate (the flags are gone)."""
    rate = context.spec.scheduler_rate
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(context.kubeconfig_of("kube-scheduler")),
            "qps": rate.qps,
            "burst": rate.burst,
        },
    }


def coredns_argv(context: Context) -> list[str]:
    """CoreDNS, on the switch."""
    return [str(toolchain.program("coredns")), "-conf", f"{context.state.config}/Corefile"]


def kwok_argv(context: Context) -> list[str]:
    """The simulated nodes."""
    return [
        str(toolchain.program("kwok")),
        f"--kubeconfig={context.kubeconfig_of('kwok')}",
        f"--config={context.state.config}/kwok.yaml",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--server-address={context.host_ip}:{context.port('kwok')}",
        "--v=WARN",
        *context.spec.args_for("kwok"),
    ]


_ARGV: dict[str, Callable[[Context], list[str]]] = {
    "etcd": etcd_argv,
    "kube-apiserver": apiserver_argv,
    "kube-controller-manager": controller_manager_argv,
    "kube-scheduler": scheduler_argv,
    "coredns": coredns_argv,
    "kwok": kwok_argv,
}


def write_configs(context: Context) -> None:
    """Configuration files of the control plane."""
    config = context.state.config
    config.mkdir(parents=True, exist_ok=True)
    (config / "kube-scheduler.yaml").write_text(to_yaml(scheduler_config(context)))
    documents = "---\n".join(to_yaml(document) for document in kwok.configuration())
    (config / "kwok.yaml").write_text(documents)
    if context.spec.audit:
        (config / "audit-policy.yaml").write_text(to_yaml(audit_policy(context.spec.audit_level)))
    if context.addresses:
        (config / "Corefile").write_text(corefile(context.addresses, context.kubeconfig_of("coredns")))


@dataclass(frozen=True, slots=True)
class Component:
    """One process beside the nodes, which tests may stop, start and freeze."""

    context: Context
    name: str

    @property
    def process(self) -> ManagedProcess:
        """Its pid file and log."""
        return self.context.process(self.name)

    @property
    def pid(self) -> int | None:
        """Its pid while it runs, else None."""
        return self.process.pid

    def launch(self) -> None:
        """Start it and do not wait."""
        within = None
        if self.name == "coredns":
            switch = self.context.process(SWITCH).pid
            if switch is None:
                raise LocalClusterError("the cluster's network is gone: the cluster has to be started anew")
            within = Entered(switch, ("-n",))
        extra = {"GOGC": str(GOGC_PERCENT)} if self.name in {"kube-apiserver", "etcd"} else {}
        self.process.launch(_ARGV[self.name](self.context), self.context.environment(extra=extra), within)

    def start(self, timeout_s: float = 60) -> None:
        """Start it; the API server is waited for until it is ready."""
        self.launch()
        if self.name == "kube-apiserver":
            wait_apiserver(self.context, timeout_s)

    def stop(self, timeout_s: float = 5) -> None:
        """End it: SIGTERM, and SIGKILL after ``timeout_s`` (an API server with watchers takes its time)."""
        self.process.stop(timeout_s)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self.process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.process.signal(signal.SIGCONT)


def component(context: Context, name: str) -> Component:
    """The component ``name``."""
    if name not in _ARGV:
        raise LocalClusterError(f"no component {name!r}; there are {', '.join(_ARGV)}")
    return Component(context, name)


def check_alive(context: Context, *names: str) -> None:
    """Raise with the end of its log where one of the processes has ended."""
    for name in names:
        process = context.process(name)
        if not process.alive():
            raise LocalClusterError(f"{name} has ended; the end of {process.log_file}:\n{process.log_tail()}")


def wait_apiserver(context: Context, timeout_s: float) -> None:
    """Wait until the API server is ready."""
    api = context.api()
    try:
        wait_until(
            "kube-apiserver ready",
            api.ready,
            timeout_s,
            lambda: check_alive(context, "etcd", "kube-apiserver"),
        )
    except LocalClusterError as error:
        log = context.process("kube-apiserver").log_tail()
        raise LocalClusterError(f"{error}; the end of kube-apiserver's log:\n{log}") from None
    finally:
        api.close()
