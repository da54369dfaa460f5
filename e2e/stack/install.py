"""The stack on a local cluster as an operator installs it: our image, `kubectl apply -k`, until ready."""

import base64
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

from image.build import build as build_image
from isolation.driver import BUILT, FakeDriver
from localcluster import LocalCluster, RealNode
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import DAEMON_SETS, DEPLOYMENTS, MUTATING_WEBHOOKS, NODES
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import shared_resource

from stack import verify
from stack.fakes import Driver, nvml_state
from stack.kit import Json, Kit, StoryError
from stack.trouble import unready_pods

REPOSITORY = Path(__file__).resolve().parents[2]
OVERLAY = REPOSITORY / "manifests" / "overlays" / "local"
ISOLATED = REPOSITORY / "manifests" / "overlays" / "local-isolated"
"""The same with the isolation library, which needs a driver in containers: see :meth:`Stack.driver_of`."""
VOLCANO = REPOSITORY / "e2e" / "volcano" / "overlay"
"""The same without the library, on Volcano."""
VOLCANO_ISOLATED = REPOSITORY / "e2e" / "volcano" / "overlay-isolated"
"""With it, on Volcano."""
MODELS = REPOSITORY / "manifests" / "components" / "fake-gpus" / "models.yaml"
FAKE_NVML = REPOSITORY / "device-plugin" / "native" / "build" / "libnvidia-ml.so.1"
PROGRAMS = tuple(BUILT / "programs" / name for name in ("train", "serve", "allocate"))
FAKE_FOLDER = "/var/lib/vc-egpu-fake-gpus"
NAMESPACE = "vc-egpu-system"
READY_TIMEOUT_S = 180.0


def stack_images() -> tuple[str, ...]:
    """What nodes of a cluster for the stack have from the start, for ``ClusterSpec.images``."""
    return (str(build_image(lambda _line: None).archive),)


@dataclass(frozen=True)
class Stack:
    """An installed stack."""

    cluster: LocalCluster
    kit: Kit

    @classmethod
    def install(
        cls,
        cluster: LocalCluster,
        *,
        cards_per_node: int = 4,
        overlay: Path = OVERLAY,
        drivers: Mapping[str, Driver] = MappingProxyType({}),
        say: Callable[[str], None] = lambda _line: None,
    ) -> Self:
        """Fake cards on every real node, manifests; returns when all of it is ready. The nodes have
        :func:`stack_images` from the start. ``drivers``: by node, where it is another one."""
        stack = cls.of(cluster)
        for node in cluster.nodes:
            told = drivers.get(node.name, Driver())
            stack.put_cards(node, nvml_state(node.name, cards_per_node, driver=told))
            if overlay in (ISOLATED, VOLCANO_ISOLATED):
                stack.put_file(node, BUILT / "libcuda.so.1")
                driver = stack.driver_of(node, cards_per_node)
                driver.install(node.static_cdi_dir, PROGRAMS)
                driver.nvml_state.write_text(nvml_state(node.name, cards_per_node))
        say(f"kubectl apply -k manifests/overlays/{overlay.name}")
        cluster.kubectl("apply", "--server-side", "-k", str(overlay))
        stack.wait_ready({node.name: cards_per_node for node in cluster.nodes})
        say("the stack is ready: webhook, admission, jobs, one agent per node")
        return stack

    @classmethod
    def of(cls, cluster: LocalCluster) -> Self:
        """The handle of a stack that is (or will be) installed on ``cluster``."""
        return cls(cluster, Kit(ApiConnection.connect(cluster.kubeconfig), cluster.kubectl))

    def put_cards(self, node: RealNode, state: str) -> None:
        """Write the fake driver library and what it shall report into the node's own /var/lib."""
        self.put_file(node, FAKE_NVML)
        self.set_cards(node, state)

    def put_file(self, node: RealNode, source: Path) -> None:
        """Beside the fake driver library."""
        text = base64.b64encode(source.read_bytes()).decode()
        target = f"{FAKE_FOLDER}/{source.name}"
        node.run(["sh", "-c", f"mkdir -p {FAKE_FOLDER}; base64 -d > {target}"], text_in=text)

    def driver_of(self, node: RealNode, cards: int) -> FakeDriver:
        """The fake CUDA driver of a node that has so many cards, for its containers."""
        uuids = [f"GPU-{node.name}-{number}" for number in range(cards)]
        state = node.machine.run_dir / "fake-gpu"
        return FakeDriver(uuids, node.folder / "driver", state, Path("/run/fake-gpu"))

    def set_cards(self, node: RealNode, state: str) -> None:
        """Change what the fake driver of a node reports, at once and whole."""
        path = f"{FAKE_FOLDER}/state"
        node.run(["sh", "-c", f"cat > {path}.new && mv {path}.new {path}"], text_in=state)

    def wait_ready(self, cards_per_node: Mapping[str, int], model: str = "h20") -> None:
        """Until every Deployment and the DaemonSet are ready, the webhook has its certificate, and each
        node offers its cards. Raises :class:`StoryError` that tells what keeps its pods."""
        try:
            self._wait_ready(cards_per_node, model)
        except StoryError as error:
            raise StoryError(f"{error}\n{unready_pods(self.kit, NAMESPACE)}") from None

    def _wait_ready(self, cards_per_node: Mapping[str, int], model: str) -> None:
        for resource, done in ((DEPLOYMENTS, _deployed), (DAEMON_SETS, _on_all_nodes)):
            self.kit.until(
                f"the stack's {resource.plural} are ready",
                resource,
                lambda objects, done=done: bool(objects) and all(map(done, objects.values())),  # type: ignore[misc]
                namespace=NAMESPACE,
                timeout_s=READY_TIMEOUT_S,
            )

        def offers(nodes: dict[str, Json]) -> bool:
            wanted = [name for name, cards in cards_per_node.items() if cards]
            return all(name in nodes and _allocatable(nodes[name], shared_resource(model)) for name in wanted)

        self.kit.until("each node offers its cards", NODES, offers, timeout_s=READY_TIMEOUT_S)
        self.kit.until(
            "the webhook's certificate is in its configuration",
            MUTATING_WEBHOOKS,
            lambda found: all(
                hook["clientConfig"].get("caBundle")
                for name, configuration in found.items()
                if "egpu" in name
                for hook in configuration["webhooks"]
            ),
            timeout_s=READY_TIMEOUT_S,
        )

    def egpu(self, *arguments: str) -> str:
        """``kubectl egpu ...`` as the administrator; its output. Raises :class:`StoryError` if it fails."""
        command = [str(Path(sys.executable).parent / "kubectl-egpu"), *arguments]
        done = subprocess.run(
            [*command, "--kubeconfig", str(self.cluster.kubeconfig)],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise StoryError(f"kubectl egpu {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def check_invariants(self) -> None:
        """Raises :class:`StoryError` with every invariant of the design that does not hold."""
        verify.check_invariants(self.kit, ModelTable.from_yaml(MODELS.read_text()))


def _allocatable(node: Json, resource: str) -> int:
    return int((node["status"].get("allocatable") or {}).get(resource, 0))


def _deployed(deployment: Json) -> bool:
    status = deployment.get("status") or {}
    return bool(
        status.get("observedGeneration") == deployment["metadata"]["generation"]
        and status.get("readyReplicas", 0) == deployment["spec"]["replicas"]
        and status.get("updatedReplicas", 0) == deployment["spec"]["replicas"]
    )


def _on_all_nodes(daemon_set: Json) -> bool:
    status = daemon_set.get("status") or {}
    wanted = status.get("desiredNumberScheduled", 0)
    return bool(
        status.get("observedGeneration") == daemon_set["metadata"]["generation"]
        and wanted
        and status.get("numberReady", 0) == wanted
    )
