"""What goes wrong on purpose on the shared cluster, and the way back."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localcluster import RealNode
from stack.install import FAKE_FOLDER, NAMESPACE, Stack
from stack.kit import Json, is_true
from vc_egpu.kube.resources import CONFIG_MAPS, DEPLOYMENTS, LEASES, NODES, PODS, Resource
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.words.annotations import NodeCards
from vc_egpu.volcano.words.names import NODE_CARDS, POLICY_CONFIG_MAP

STATE: Final = f"{FAKE_FOLDER}/state"
AGENT: Final = "vc-egpu-node-agent"
TIMEOUT_S: Final = 120.0
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")


# --- cards --------------------------------------------------------------------------------------------


def read_cards(node: RealNode) -> str:
    """What the fake driver of a node reports."""
    return node.run(["cat", STATE]).stdout


def card_lines(uuid: str, product: str, memory_mib: int, number: int) -> str:
    """One card of the fake driver's file."""
    pci = f"00000000:{0x1A + number:02X}:00.0"
    card = f"card={uuid}\nname={product}\nmemory_mib={memory_mib}\n"
    return f"{card}pci={pci}\nminor={number}\ncores=9984\ncc=9.0\n"


def with_fault(state: str, uuid: str) -> str:
    """The driver's file with one card that is lost."""
    return state.replace(f"card={uuid}\n", f"card={uuid}\nerror=15\n")


def inventory(stack: Stack, node: str) -> NodeCards:
    """What the node's agent wrote."""
    return NodeCards.decode(stack.kit.api.get(NODES, node)["metadata"]["annotations"][NODE_CARDS])


def wait_inventory(
    stack: Stack, node: str, what: str, check: Callable[[NodeCards], bool], timeout_s: float = TIMEOUT_S
) -> None:
    """Until the node's inventory is as ``check`` says."""

    def holds(nodes: dict[str, Json]) -> bool:
        text = (nodes[node]["metadata"].get("annotations") or {}).get(NODE_CARDS) if node in nodes else None
        return text is not None and check(NodeCards.decode(text))

    stack.kit.until(f"inventory of {node}: {what}", NODES, holds, timeout_s=timeout_s)


@contextlib.contextmanager
def other_cards(stack: Stack, node: RealNode, state: str) -> Iterator[None]:
    """The node has other cards, as after a change of hardware: its agent starts anew."""
    before = read_cards(node)
    stack.set_cards(node, state)
    restart_agent(stack, node)
    try:
        yield
    finally:
        stack.set_cards(node, before)
        restart_agent(stack, node)


# --- our own processes ----------------------------------------------------------------------------------


def own_pods(stack: Stack, name: str, node: str = "") -> list[Json]:
    """Pods of one of our Deployments or of the DaemonSet."""
    items = stack.kit.api.list(PODS, NAMESPACE, label_selector=f"app.kubernetes.io/name={name}").items
    return [pod for pod in items if not node or pod["spec"].get("nodeName") == node]


def leader(stack: Stack, name: str = "vc-egpu-admission") -> str:
    """Name of the pod that leads now; empty if none."""
    holder = stack.kit.api.get(LEASES, name, NAMESPACE)["spec"].get("holderIdentity") or ""
    known = {str(pod["metadata"]["name"]) for pod in own_pods(stack, name)}
    return next((pod for pod in known if holder.startswith(pod)), "")


def kill_pod(stack: Stack, name: str) -> None:
    """``kubectl delete pod --force --grace-period=0``."""
    stack.kit.kubectl("delete", "pod", name, "-n", NAMESPACE, "--force", "--grace-period=0")


def wait_own_ready(stack: Stack, timeout_s: float = TIMEOUT_S) -> None:
    """Until every pod of ours is ready, and none is missing."""
    deployed = stack.kit.api.list(DEPLOYMENTS, NAMESPACE).items
    wanted = {found["metadata"]["name"]: found["spec"]["replicas"] for found in deployed}
    wanted[AGENT] = len(stack.cluster.nodes)

    def all_ready(pods: dict[str, Json]) -> bool:
        found = dict.fromkeys(wanted, 0)
        for pod in pods.values():
            name = (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name", "")
            if name in found and is_true(pod, "Ready") and not pod["metadata"].get("deletionTimestamp"):
                found[name] += 1
        return found == wanted

    stack.kit.until("our pods are ready", PODS, all_ready, namespace=NAMESPACE, timeout_s=timeout_s)


def restart_agent(stack: Stack, node: RealNode, timeout_s: float = TIMEOUT_S) -> None:
    """Another pod of the DaemonSet on this node; returns when it is ready."""
    before = {pod["metadata"]["uid"] for pod in own_pods(stack, AGENT, node.name)}
    for pod in own_pods(stack, AGENT, node.name):
        with contextlib.suppress(NotFound):
            stack.kit.api.delete(PODS, pod["metadata"]["name"], NAMESPACE)

    def another(pods: dict[str, Json]) -> bool:
        mine = [
            pod
            for pod in pods.values()
            if pod["spec"].get("nodeName") == node.name
            and (pod["metadata"].get("labels") or {}).get("app.kubernetes.io/name") == AGENT
        ]
        return len(mine) == 1 and mine[0]["metadata"]["uid"] not in before and is_true(mine[0], "Ready")

    stack.kit.until(f"another agent on {node.name}", PODS, another, namespace=NAMESPACE, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class HostPids:
    """Processes of one container, as this machine numbers them: to freeze and to kill without warning."""

    pids: tuple[int, ...]

    def freeze(self) -> None:
        """SIGSTOP."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, signum: int) -> None:
        for pid in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)


def processes_of(node: RealNode, *words: str) -> HostPids:
    """Processes inside a node whose command line has all these words."""
    group = f"/{node.group}/"
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if set(words) <= set(line) and group in (folder / "cgroup").read_text():
                found.append(int(folder.name))
    return HostPids(tuple(sorted(found)))


def agent_processes(node: RealNode) -> HostPids:
    """The node agent's."""
    return processes_of(node, "/usr/local/bin/vc-egpu", "node-agent")


@contextlib.contextmanager
def node_policy(stack: Stack, text: str) -> Iterator[None]:
    """Another node policy; agents that start anew see it at once, others after the kubelet's delay."""
    before = stack.kit.api.get(CONFIG_MAPS, POLICY_CONFIG_MAP, NAMESPACE)["data"]
    _set_policy(stack, {"policy.yaml": text})
    try:
        yield
    finally:
        _set_policy(stack, before)


def _set_policy(stack: Stack, data: Json) -> None:
    stack.kit.api.patch(CONFIG_MAPS, POLICY_CONFIG_MAP, {"data": data}, NAMESPACE)


# --- nodes and the API server -----------------------------------------------------------------------------


@contextlib.contextmanager
def api_server_away(stack: Stack, *, frozen: bool = False) -> Iterator[None]:
    """The API server is killed (or hangs); at the end it is back and answers."""
    server = stack.cluster.component("kube-apiserver")
    if frozen:
        server.pause()
    else:
        server.kill()
    try:
        yield
    finally:
        if frozen:
            server.resume()
        else:
            server.start()


def wait_not_ready(stack: Stack, node: str, timeout_s: float = 150) -> None:
    """Until the control plane has noticed that a node's kubelet is silent."""
    stack.kit.until(
        f"{node} is not ready", NODES, lambda nodes: not is_true(nodes[node], "Ready"), timeout_s=timeout_s
    )


def wait_all_well(stack: Stack, timeout_s: float = 180) -> None:
    """After something went wrong: both nodes ready, all of ours ready, all cards offered."""
    names: Sequence[str] = [node.name for node in stack.cluster.nodes]
    stack.kit.until(
        "all nodes are ready",
        NODES,
        lambda nodes: all(name in nodes and is_true(nodes[name], "Ready") for name in names),
        timeout_s=timeout_s,
    )
    wait_own_ready(stack, timeout_s)
    for name in names:
        wait_inventory(
            stack,
            name,
            "all cards are well",
            lambda found: (
                not found.problem
                and len([card for card in found.cards if card.healthy and card.offered]) == 4
            ),
            timeout_s,
        )


# --- the webhook --------------------------------------------------------------------------------------


@contextlib.contextmanager
def webhook_down(stack: Stack) -> Iterator[None]:
    """No webhook pod is left; at the end they are back and answer."""

    def scale(replicas: int) -> None:
        stack.kit.kubectl("scale", "deployment", "vc-egpu-webhook", "-n", NAMESPACE, f"--replicas={replicas}")

    def endpoints(slices: dict[str, Json]) -> int:
        mine = [s for name, s in slices.items() if name.startswith("vc-egpu-webhook")]
        return sum(bool(e["conditions"].get("ready")) for s in mine for e in s.get("endpoints") or ())

    scale(0)
    try:
        stack.kit.pods_until("the webhook is gone", NAMESPACE, lambda pods: not _webhooks(pods))
        yield
    finally:
        scale(2)
        wait_own_ready(stack)
        stack.kit.until(
            "it can be reached", ENDPOINT_SLICES, lambda found: endpoints(found) == 2, namespace=NAMESPACE
        )


def _webhooks(pods: dict[str, Json]) -> list[str]:
    return [name for name in pods if name.startswith("vc-egpu-webhook")]
