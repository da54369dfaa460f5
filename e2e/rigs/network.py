"""A cluster whose network enforces NetworkPolicies, and what there is on it to call.

The nodes' own network enforces none. ``kube-network-policies`` judges packets that the kernel hands it by a
queue (NFQUEUE). It is deployed by its own manifest, and so are its rights. Its rules that fill the queue
need ``nft_queue``, which kernels without modules often lack. The rules here say the same by iptables.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import yaml
from localcluster import ClusterSpec, LocalCluster, RealNode, toolchain
from localcluster.api import wait_until
from localcluster.controlplane import SWITCH
from localcluster.errors import LocalClusterError
from localcluster.net import Addresses
from localcluster.oci import ImageConfig, Text, build_image
from localcluster.procs import Entered
from outcomes.workload import container, pod_spec
from stack.kit import Kit, is_running
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import DAEMON_SETS, SERVICE_ACCOUNTS

Json = dict[str, Any]
ENFORCER: Final = "kube-network-policies"
METADATA: Final = "169.254.169.254"
"""Where clouds answer with credentials of the node."""
OUTSIDE: Final = "203.0.113.10"
"""A server of the internet, by an address for documents."""
PORT: Final = 8080
SERVES: Final = f"mkdir -p /tmp/www; echo it-answers > /tmp/www/index.html; httpd -f -p {PORT} -h /tmp/www"
_QUEUE: Final = 98
"""As its manifest names it."""
_ENFORCER_IMAGE: Final = "vc-egpu.local/kube-network-policies:1"
_DNS_IMAGE: Final = "vc-egpu.local/coredns:1"
_COREFILE: Final = """
example.test:53 {
    errors
    template IN A example.test {
        answer "{{ .Name }} 60 IN A 192.0.2.7"
    }
}
"""
_GIVEN_UP: Final = "quota evaluation timed out"
_MAKES_S: Final = 120
_CALL_S: Final = 3
"""A call that no policy forbids takes milliseconds."""
_WITH_CHAIN: Final = """
set -e
iptables -t mangle -N VC-EGPU
iptables -t mangle -A VC-EGPU -m owner --uid-owner 0 -j RETURN
iptables -t mangle -A VC-EGPU -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN
iptables -t mangle -A VC-EGPU -s {pods} -j NFQUEUE --queue-num {queue}
iptables -t mangle -A VC-EGPU -d {pods} -j NFQUEUE --queue-num {queue}
iptables -t mangle -A POSTROUTING -j VC-EGPU
ip route add {metadata}/32 via {switch}
ip route add {outside}/32 via {switch}
mkdir -p /run/nri
"""
"""The enforcer's own order: root of the node, then what was let in before, then all packets of pods."""


@dataclass(frozen=True, slots=True)
class Network:
    """The cluster, and addresses on it."""

    cluster: LocalCluster
    kit: Kit

    @property
    def addresses(self) -> Addresses:
        """Of nodes, services and the switch."""
        return self.cluster.context.real_addresses

    def node(self, index: int) -> RealNode:
        """One of the two."""
        return self.cluster.nodes[index]

    def run(self, *pods: Json) -> None:
        """Make these pods, and wait until they run."""
        wait_until("its pods are made", lambda: self._makes(pods), _MAKES_S)
        for one in pods:
            self.wait(one["metadata"]["namespace"], one["metadata"]["name"])

    def _makes(self, pods: Sequence[Json]) -> bool:
        """On a busy machine the API server gives quotas up after 10 seconds, and says so."""
        done = self.cluster.kubectl("apply", "-f", "-", text_in=yaml.safe_dump_all(pods), check=False)
        if done.returncode != 0 and _GIVEN_UP not in done.stderr:
            raise LocalClusterError(f"pods are refused: {done.stderr}")
        return done.returncode == 0

    def wait(self, namespace: str, name: str) -> str:
        """Wait until it runs; its address."""

        def runs(pods: dict[str, Json]) -> str | None:
            found = pods.get(name)
            return str(found["status"]["podIP"]) if found and is_running(found) else None

        return self.kit.pods_until(f"{name} runs", namespace, runs, timeout_s=120)

    def reached(self, namespace: str, pod: str, targets: Mapping[str, str]) -> set[str]:
        """Those of the targets (address and port by name) whose answer of any kind reaches the pod.

        All at once. A packet that is dropped gets no answer, not even that nobody listens.
        """
        calls = "\n".join(
            f"(said=$(nc -w {_CALL_S} {where} < /dev/null 2>&1 > /dev/null); echo {name} $? $said) &"
            for name, where in targets.items()
        )
        said = self.cluster.kubectl("exec", "-n", namespace, pod, "--", "sh", "-c", f"{calls}\nwait").stdout
        answers = dict(line.split(" ", 1) for line in said.splitlines())
        assert set(answers) == set(targets), said
        return {name for name, answer in answers.items() if "timed out" not in answer}

    def lookup(self, namespace: str, pod: str, server: str) -> str:
        """What a name server says to the pod, over UDP."""
        words = ("nslookup", "-type=a", "it.example.test", server)
        done = self.cluster.kubectl("exec", "-n", namespace, pod, "--", *words, check=False)
        return str(done.stdout + done.stderr)


def pod(namespace: str, name: str, node: RealNode, command: str = SERVES, **labels: str) -> Json:
    """A small server on that node."""
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    one = container(command=f"trap exit TERM; {command} & wait")
    spec = pod_spec(one, nodeSelector={"kubernetes.io/hostname": node.name})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def on_the_node(node: RealNode) -> Json:
    """The same in the node's own network."""
    found = pod("kube-system", "on-the-node", node)
    found["spec"]["hostNetwork"] = True
    return found


def name_server(node: RealNode) -> Json:
    """A pod as policies know those of the cluster's DNS, with another port besides."""
    found = pod("kube-system", "dns", node, **{"k8s-app": "kube-dns"})
    serves = container("dns", command="")
    del serves["command"], serves["securityContext"]
    found["spec"]["containers"].append({**serves, "image": _DNS_IMAGE})
    found["spec"]["securityContext"] = {"runAsUser": 0}
    return found


@contextmanager
def network(name: str) -> Iterator[Network]:
    """Two nodes without our stack, and the enforcer; gone at the end."""
    program = toolchain.program(ENFORCER)
    images = (
        build_image(None, _ENFORCER_IMAGE, files={"/bin/netpol": program}, config=ImageConfig()),
        build_image(
            None,
            _DNS_IMAGE,
            files={"/coredns": toolchain.program("coredns"), "/Corefile": Text(_COREFILE)},
            config=ImageConfig(entrypoint=("/coredns", "-conf", "/Corefile")),
        ),
    )
    with LocalCluster.up(ClusterSpec(name=name, images=tuple(map(str, images)))) as cluster:
        found = Network(cluster, Kit(ApiConnection.connect(cluster.kubeconfig), cluster.kubectl))
        _servers_outside(found)
        for node in cluster.nodes:
            node.run(["sh", "-c", _rules(found.addresses)])
        found.kit.apply(*_enforcer())

        def on_all(sets: dict[str, Json]) -> bool:
            status = (sets.get(ENFORCER) or {}).get("status") or {}
            return bool(status.get("numberReady") == len(cluster.nodes))

        found.kit.until("the enforcer runs", DAEMON_SETS, on_all, namespace="kube-system", timeout_s=120)
        yield found


def _rules(addresses: Addresses) -> str:
    return _WITH_CHAIN.format(
        pods=addresses.pods, queue=_QUEUE, metadata=METADATA, outside=OUTSIDE, switch=addresses.switch
    )


def _enforcer() -> Iterator[Json]:
    source = toolchain.source_of(ENFORCER)
    for document in yaml.safe_load_all((source / "install.yaml").read_text()):
        if document and document["kind"] == "DaemonSet":
            (one,) = document["spec"]["template"]["spec"]["containers"]
            one |= {"image": _ENFORCER_IMAGE, "imagePullPolicy": "Never", "resources": {}}
        if document:
            yield document


def _servers_outside(found: Network) -> None:
    """Servers at both addresses, on the switch: each answers with anything."""
    switch = found.cluster.context.process(SWITCH).pid
    assert switch is not None
    inside = Entered(switch, ("-n",))
    for name, address in (("metadata", METADATA), ("outside", OUTSIDE)):
        serve = f"ip addr add {address}/32 dev br0 && exec python3 -m http.server 80 --bind {address}"
        found.cluster.run_process(name, inside.argv(["sh", "-c", serve]))


def default_account(found: Network, namespace: str) -> None:
    """Wait until pods can be made there."""
    found.kit.until(
        "the default account is there",
        SERVICE_ACCOUNTS,
        lambda accounts: "default" in accounts,
        namespace=namespace,
    )
