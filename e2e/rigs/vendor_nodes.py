"""A cluster whose nodes have cards of several vendors, each faked at its own library.

One node has 16 Ascend cards, one has a Hygon card, one an H100 that MIG has cut, and one plain H20 cards.
Drivers' files and device nodes lie where a real node has them, and behind each device is ``/dev/null``.
Our processes run next to the cluster, with the rights that their pods would have.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fakes.nvml_state import FakeCard, FakeInstance, FakeNode
from fakes.vendor_script import VendorScript
from localcluster import ClusterSpec, LocalCluster, RealNode
from localcluster.images import BUSYBOX_IMAGE
from stack.hostmode import NAMESPACE, REPOSITORY, HostOptions, HostStack
from stack.identity import bound_token_kubeconfig
from vc_egpu.kube.resources import CONFIG_MAPS, DAEMON_SETS, NODES, PODS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCards

from rigs.agent_on_node import FAKE_LIBRARIES, AgentOnNode

Json = dict[str, Any]
MODELS: Final = REPOSITORY / "manifests/base/config/models.yaml"
"""The table that users get, with the layouts of all vendors."""
KINDS: Final = ("ascend", "hygon", "mig", "plain")
"""What each node has, in the nodes' order."""
MODEL_OF: Final = {"ascend": "910b3", "hygon": "k100-ai", "mig": "h100", "plain": "h20"}
NPUS: Final = 16
DCU: Final = 1
"""Number of the Hygon card's device nodes: the first belong to the board's own display."""
GROUP: Final = 1500
"""Owner of the vendors' device nodes."""
VNPUS: Final = 4
"""Most vNPUs of a card; the driver makes their device nodes."""
H100: Final = "GPU-00000003-0000-4000-8000-000000000001"
INSTANCES: Final = (
    FakeInstance("MIG-3g", 1, 2, 4, 40448),
    FakeInstance("MIG-2g", 2, 1, 0, 19968),
    FakeInstance("MIG-1g-a", 7, 0, 2, 9728),
    FakeInstance("MIG-1g-b", 8, 0, 3, 9728),
)
ACCOUNT: Final = "vc-egpu-node-agent"
EVERY_VENDOR: Final = ("--vendor=nvidia", "--vendor=ascend", "--vendor=hygon")


@dataclass(frozen=True)
class VendorCluster:
    """The stack, and a hand on each fake."""

    stack: HostStack
    agents: Mapping[str, AgentOnNode]
    """By what its node has, see :data:`KINDS`."""
    npus: VendorScript
    dcus: VendorScript

    def inventory(self, kind: str) -> NodeCards:
        """What the agent of that node says."""
        node = self.stack.kit.api.get(NODES, self.agents[kind].node.name)
        return NodeCards.decode(node["metadata"]["annotations"][names.NODE_CARDS])

    def log(self, kind: str) -> str:
        """All that the agent of that node has logged."""
        return self.agents[kind].process.log_file.read_text()


@contextmanager
def vendor_cluster(name: str) -> Iterator[VendorCluster]:
    """Up, with every card offered; gone afterwards."""
    spec = ClusterSpec(name=name, real_nodes=len(KINDS), services=False, dns=False)
    with ExitStack() as exits:
        cluster = exits.enter_context(LocalCluster.up(spec))
        stack = HostStack.install(cluster, HostOptions(models=MODELS))
        exits.callback(stack.stop)
        stack.start()
        _show_models(stack)
        rights = _rights(stack)
        agents = {
            kind: _agent(stack, node, kind, rights[node.name])
            for kind, node in zip(KINDS, cluster.nodes, strict=True)
        }
        found = VendorCluster(
            stack, agents, _script(agents["ascend"], "dcmi"), _script(agents["hygon"], "dcu")
        )
        found.npus.cards = {card: {"chip": "910B3", "die": card + 1} for card in range(NPUS)}
        found.dcus.cards = {0: {"unique": 0x1001, "bus": 0x33}}
        for fake in (found.npus, found.dcus):
            fake.write()
        ascend_driver(agents["ascend"].node)
        _hygon_driver(agents["hygon"].node, agents["hygon"].folder / "sys")
        cluster.kubectl("label", "node", agents["mig"].node.name, f"{names.NODE_MODE_LABEL}=mig")
        for agent in agents.values():
            agent.start()
        for kind, agent in agents.items():
            exits.callback(_tell, kind, agent)
            agent.wait_ready()
        _wait_offered(found)
        yield found


def _tell(kind: str, agent: AgentOnNode) -> None:
    """Shown where a story fails."""
    print(f"--- {kind}\n{agent.process.log_tail(40)}")


def _show_models(stack: HostStack) -> None:
    """``kubectl egpu`` reads the table where an installation has it."""
    metadata = {"name": names.MODELS_CONFIG_MAP, "namespace": NAMESPACE}
    data = {"models.yaml": MODELS.read_text()}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    stack.kit.api.create(CONFIG_MAPS, body)


def _wait_offered(found: VendorCluster) -> None:
    def offered(nodes: dict[str, Json]) -> bool:
        allocatable = {kind: nodes[found.agents[kind].node.name]["status"]["allocatable"] for kind in KINDS}
        return all(
            int(allocatable[kind].get(names.shared_resource(model), 0)) for kind, model in MODEL_OF.items()
        )

    found.stack.kit.until("each node offers its cards", NODES, offered)


# --- agents ------------------------------------------------------------------------------------------


def _agent(stack: HostStack, node: RealNode, kind: str, rights: Path) -> AgentOnNode:
    """It may look for every vendor, as one DaemonSet for all nodes would tell it to."""
    folder = node.folder / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    cards = {"mig": [_h100()], "plain": [FakeCard.h20(number, 4) for number in (1, 2)]}
    fake = FakeNode(folder / "nvml.state", cards.get(kind, []))
    fake.write()
    states = {"FAKE_DCMI_STATE": str(folder / "dcmi.state"), "FAKE_DCU_STATE": str(folder / "dcu.state")}
    flags = (*EVERY_VENDOR, f"--sys-dir={folder}/sys", "--rescan-interval-s=4")
    agent = AgentOnNode(stack.cluster, node, fake, flags=flags, extra_environment=states, kubeconfig=rights)
    (folder / "models.yaml").write_text(MODELS.read_text())
    return agent


def _rights(stack: HostStack) -> Mapping[str, Path]:
    """By node, a kubeconfig with the rights of the agent's pod there. The pods here only sleep: a DaemonSet
    makes them, since our policies let nobody else use the agent's account."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
    }
    labels = {"app": "stand-in"}
    spec = {
        "serviceAccountName": ACCOUNT,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "stand-in", "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    stack.kit.api.create(DAEMON_SETS, body)

    def on_each(pods: dict[str, Json]) -> dict[str, str] | None:
        found = {str(pod["spec"].get("nodeName")): name for name, pod in pods.items()}
        return found if found.keys() >= {node.name for node in stack.cluster.nodes} else None

    pods = stack.kit.until("each node has its pod", PODS, on_each, namespace=NAMESPACE)
    return {
        node.name: bound_token_kubeconfig(stack.cluster, NAMESPACE, ACCOUNT, pods[node.name])
        for node in stack.cluster.nodes
    }


def _script(agent: AgentOnNode, name: str) -> VendorScript:
    return VendorScript(agent.folder / f"{name}.state")


def _h100() -> FakeCard:
    name = "NVIDIA H100 80GB HBM3"
    return FakeCard(H100, name, 81559, minor=0, mig=1, mig_slices=8, instances=list(INSTANCES))


# --- drivers -----------------------------------------------------------------------------------------


def ascend_driver(node: RealNode) -> None:
    """Device nodes of :data:`NPUS` cards and of what the driver may make on them, and its files."""
    cards = range(NPUS)
    made = [f"vdavinci{100 + 16 * card + number}" for card in cards for number in range(VNPUS)]
    common = ("davinci_manager", "devmm_svm", "hisi_hdc")
    _put_devices(node, [*common, *(f"davinci{card}" for card in cards), *made])
    driver = "/usr/local/Ascend/driver"
    _put_library(node, "libdcmi.so", f"{driver}/lib64/driver")
    node.run(["sh", "-c", f"echo Version=24.1.rc3 > {driver}/version.info"])


def _hygon_driver(node: RealNode, sys_dir: Path) -> None:
    own = (f"card{DCU}", f"renderD{128 + DCU}")
    _put_devices(node, ["kfd", "mkfd", "dri/card0", *(f"dri/{name}" for name in own)])
    for library in ("librocm_smi64.so", "libhydmi.so"):
        _put_library(node, library, "/opt/hyhal/lib")
    for name in own:
        (sys_dir / "bus/pci/devices/0000:33:00.0/drm" / name).mkdir(parents=True)


def _put_library(node: RealNode, library: str, folder: str) -> None:
    node.run(["sh", "-c", f"mkdir -p {folder} && cp {FAKE_LIBRARIES}/{library} {folder}/"])


def _put_devices(node: RealNode, devices: Sequence[str]) -> None:
    """Device nodes below ``/dev`` of that node alone: a layer of its own lies over this machine's."""
    layer = node.folder / "dev"
    paths = " ".join(f"/dev/{name}" for name in devices)
    script = f"""
        set -eu
        mkdir -p {layer}/upper {layer}/work {layer}/real
        mount --rbind /dev {layer}/real
        mount -t overlay overlay -o lowerdir=/dev,upperdir={layer}/upper,workdir={layer}/work /dev
        for name in pts shm mqueue; do
            ! mountpoint -q {layer}/real/$name || mount --rbind {layer}/real/$name /dev/$name
        done
        mkdir -p /dev/dri
        for path in {paths}; do mknod -m 660 $path c 1 3; done
        chgrp {GROUP} {paths}
    """
    node.run(["sh", "-c", script])
