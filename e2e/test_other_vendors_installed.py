"""Cards of another vendor, with agents as an operator installs them: our image, the component, a pod."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from fakes.vendor_script import VendorScript
from localcluster import ClusterSpec, LocalCluster, RealNode
from localcluster.api import wait_until
from localcluster.images import BUSYBOX_IMAGE
from rigs.vendor_nodes import NPUS, ascend_driver
from stack.install import NAMESPACE, REPOSITORY, Stack, stack_images
from stack.kit import cards_of, running
from vc_egpu.volcano.words.names import NODE_MODE_LABEL, QUEUE_NAME, shared_resource

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
Json = dict[str, Any]
NPU: Final = shared_resource("910b3")
WORLD: Final = "npus"
SCRIPT: Final = "/var/lib/vc-egpu/fake/dcmi.state"
"""Of the fake library, where an agent's pod may write: the fake keeps its vNPUs beside it."""
AGENT: Final = "vc-egpu-node-agent"


def overlay(folder: Path) -> Path:
    """An operator's own: the component, and where the fake finds its script."""
    variable = {"name": "FAKE_DCMI_STATE", "value": SCRIPT}
    place = "/spec/template/spec/containers/0/env/-"
    patch = [{"op": "add", "path": place, "value": variable}]
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../manifests/overlays/standalone-unlimited"],
        "components": ["../../manifests/components/other-vendors"],
        "patches": [{"target": {"kind": "DaemonSet", "name": AGENT}, "patch": yaml.safe_dump(patch)}],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder


def put_npus(node: RealNode, chips: Sequence[str]) -> None:
    """What the library says."""
    script = VendorScript(node.folder / "dcmi.state")
    script.cards = {card: {"chip": chip, "die": card + 1} for card, chip in enumerate(chips)}
    script.write()
    put = f"mkdir -p {Path(SCRIPT).parent} && cat > {SCRIPT}"
    node.run(["sh", "-c", put], text_in=script.path.read_text())


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """One node with NPUs."""
    spec = ClusterSpec(name="npu-pods", real_nodes=1, images=stack_images())
    with LocalCluster.up(spec, print) as cluster:
        stack = Stack.of(cluster)
        (node,) = cluster.nodes
        ascend_driver(node)
        put_npus(node, ["910B3"] * NPUS)
        cluster.kubectl("label", "node", node.name, f"{NODE_MODE_LABEL}=shared")
        own = overlay(REPOSITORY / "build" / "test-npu-pods")
        cluster.kubectl("apply", "--server-side", "-k", str(own))
        stack.wait_ready({node.name: NPUS}, model="910b3")
        queue = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": WORLD},
            "spec": {"weight": 1, "capability": {NPU: NPUS}},
        }
        stack.kit.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WORLD}}, queue)
        yield stack


def npu_pod(name: str) -> Json:
    """It sleeps on a slice."""
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "600"],
        "resources": {"limits": {NPU: "1", "volcano.sh/vgpu-memory": "12000"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": WORLD, "annotations": {QUEUE_NAME: WORLD}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def vnpus(stack: Stack) -> list[str]:
    """Lines of the fake, one a vNPU."""
    (node,) = stack.cluster.nodes
    return node.run(["sh", "-c", f"cat {SCRIPT}.slices || true"]).stdout.splitlines()


def test_an_agent_s_pod_makes_vnpus_keeps_them_over_its_end_and_removes_them(stack: Stack) -> None:
    stack.kit.apply(npu_pod("first"))
    pods = stack.kit.pods_until("it runs", WORLD, lambda found: found if running(found, "first") else None)
    assert len(cards_of(pods["first"])) == 1
    assert len(vnpus(stack)) == 1
    seen = stack.kit.kubectl("exec", "-n", WORLD, "first", "--", "ls", "/dev").stdout.split()
    assert len([name for name in seen if re.fullmatch("davinci[0-9]+", name)]) == 1

    stack.kit.kubectl(
        "delete", "pod", "-n", NAMESPACE, "-l", f"app.kubernetes.io/name={AGENT}", "--wait=true"
    )
    stack.kit.apply(npu_pod("second"))
    stack.kit.pods_until("another agent serves", WORLD, lambda found: len(running(found)) == 2 or None)
    assert len(vnpus(stack)) == 2

    stack.kit.kubectl("delete", "pod", "-n", WORLD, "first", "second", "--wait=true")
    wait_until("no vNPU is left", lambda: not vnpus(stack), 60)


def test_a_card_of_an_unknown_product_is_known_after_its_row_is_added(stack: Stack) -> None:
    """The last story: a card of the node is another one now."""
    (node,) = stack.cluster.nodes
    put_npus(node, ["910Z9", *["910B3"] * (NPUS - 1)])
    wait_until("a row is proposed", lambda: "910z9" in stack.egpu("models"), 90)
    assert "added to the model table: 910z9" in stack.egpu("models", "--add")
    assert "has a row for every card" in stack.egpu("models")
    wait_until("its agent knows it", lambda: "910z9" in stack.egpu("nodes"), 180)
    assert "the model table has no layout for it" in stack.egpu("cards", "--node", node.name)
