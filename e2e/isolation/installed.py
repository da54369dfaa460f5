"""The isolation library as an operator installs it, and pods through the webhook."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from localcluster import ClusterSpec, LocalCluster
from stack.install import ISOLATED, Stack, stack_images
from vc_egpu.volcano.words.names import QUEUE_NAME

from isolation.image import IMAGE, archive


@contextmanager
def installed(name: str, cards: int) -> Iterator[Stack]:
    """A cluster of one real node with our image; its namespace and queue (8 shares of h20) have its name."""
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, "capability": {"volcano.sh/vgpu-h20": 8}},
    }
    images = (*stack_images(), str(archive(print)))
    with LocalCluster.up(ClusterSpec(name=name, real_nodes=1, images=images), print) as cluster:
        stack = Stack.install(cluster, cards_per_node=cards, overlay=ISOLATED, say=print)
        stack.kit.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, queue)
        yield stack


def pod_on_one_card(
    world: str,
    name: str,
    memory_mib: int,
    command: tuple[str, ...],
    *,
    limits: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod in the namespace and queue of that world with one share of an h20, and what else is said."""
    amounts = {"volcano.sh/vgpu-h20": "1", "volcano.sh/vgpu-memory": str(memory_mib), **(limits or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": world,
            "annotations": {QUEUE_NAME: world, **(annotations or {})},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "main",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": list(command),
                    "resources": {"limits": amounts},
                }
            ],
            **spec,
        },
    }
