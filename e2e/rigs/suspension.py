"""The stack on one real node whose agent carries out orders to suspend, and a team that trains on it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from isolation.image import IMAGE, archive
from isolation.world import c_program
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from stack.install import ISOLATED, NAMESPACE, Stack, stack_images
from stack.kit import running
from stack.suspension import until_suspendable
from vc_egpu.kube.resources import DEPLOYMENTS, NODES, PODS, STATEFUL_SETS
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words import names

Json = dict[str, Any]
TEAM = "suspended"
ADMISSION = "system:serviceaccount:vc-egpu-system:vc-egpu-admission"
QUEUE = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "Queue",
    "metadata": {"name": TEAM},
    "spec": {"weight": 1, "capability": {"volcano.sh/vgpu-h20": 8}},
}
RBAC = "rbac.authorization.k8s.io"
USE: Json = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "suspended-use"},
    "rules": [
        {
            "apiGroups": ["scheduling.volcano.sh"],
            "resources": ["queues"],
            "resourceNames": [TEAM],
            "verbs": ["use"],
        }
    ],
}
"""A StatefulSet's controller asks for nobody: the pods' own account must be allowed to use the queue."""
USED: Json = {
    "apiVersion": f"{RBAC}/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "suspended-use"},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "suspended-use"},
    "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": f"system:serviceaccounts:{TEAM}"}],
}
GRANTED_MIB = 8_000
TRAIN = {"ns": 200_000, "kernels": 10, "every": 1, "memory-mib": 4_000}
"""What training does: steps of 10 kernels of 0.2 ms, each printed, on 4,000 MiB of the card."""


class Here:
    """The stack, without the controller that would take our orders back."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.kit = stack.kit
        self.node = stack.cluster.nodes[0].name
        self.orders = 0

    def train(self, name: str) -> str:
        """A low pod that trains and can be suspended; its UID."""
        self.run(pod(name, c_program("train", **TRAIN)))
        return self._until_it_trains(name)

    def train_on_both_cards(self) -> str:
        """Training of a StatefulSet, pod ``train-0``, that leaves inference no room; its UID."""
        self.kit.apply(owned(pod("train", c_program("train", **TRAIN), cards=2, mib=57_344)))
        self.kit.pods_until("training runs", TEAM, lambda pods: "train-0" in running(pods) or None)
        return self._until_it_trains("train-0")

    def ask_for_inference(self) -> None:
        """Pod ``infer``, which does not fit beside training."""
        self.kit.apply(pod("infer", c_program("train", **TRAIN), priority="high", mib=49_152))

    def until_inference_runs(self, timeout_s: float = 60) -> None:
        """Wait for pod ``infer``."""
        self.kit.pods_until("inference runs", TEAM, lambda pods: "infer" in running(pods) or None, timeout_s)

    def end_training(self) -> None:
        """Nothing is left of :meth:`train_on_both_cards`, nor of any other pod."""
        self.kit.api.delete(STATEFUL_SETS, "train", TEAM)
        self.kit.pods_until("all is gone", TEAM, lambda pods: not pods or None)

    def _until_it_trains(self, name: str) -> str:
        self.steps_after(name, 0)
        trains = self.kit.api.get(PODS, name, TEAM)
        until_suspendable(self.kit, [trains])
        return str(trains["metadata"]["uid"])

    def run(self, document: Json) -> None:
        """Until it runs; the controller is there for as long as that takes."""
        self.controllers(1)
        name = document["metadata"]["name"]
        self.kit.apply(document)
        self.kit.pods_until("it runs", TEAM, lambda pods: name in running(pods) or None)
        self.controllers(0)

    def controllers(self, count: int) -> None:
        """So many admission controllers."""
        self.kit.api.patch(DEPLOYMENTS, "vc-egpu-admission", {"spec": {"replicas": count}}, NAMESPACE)

        def there(pods: dict[str, Json]) -> bool:
            own = [one for one in pods if one.startswith("vc-egpu-admission")]
            return len(own) == count and len(running(pods, "vc-egpu-admission")) == count

        self.kit.pods_until(f"{count} controllers", NAMESPACE, lambda pods: there(pods) or None)

    def order(self, name: str, uid: str) -> str:
        """Order it to be suspended; the order's id."""
        self.orders += 1
        text = SuspendOrder(pod_uid=uid, plan_id=f"9-{self.orders}", why="a test").encode()
        self.annotate(name, f"{names.SUSPEND}={text}")
        return f"9-{self.orders}"

    def take_back(self, name: str) -> None:
        """The order is no more."""
        self.annotate(name, f"{names.SUSPEND}-")

    def annotate(self, name: str, change: str) -> None:
        """As the admission controller."""
        who = (f"--as={ADMISSION}", "--as-group=system:serviceaccounts", "--as-group=system:authenticated")
        self.kit.kubectl("annotate", "pod", name, "-n", TEAM, "--overwrite", change, *who)

    def said(self, uid: str) -> PodSuspension | None:
        """What the node says of it now."""
        return _answer(self.kit.api.get(NODES, self.node), uid)

    def until(self, uid: str, state: str, timeout_s: float = 90) -> PodSuspension:
        """Wait until the node says so."""

        def there(nodes: dict[str, Json]) -> PodSuspension | None:
            found = _answer(nodes[self.node], uid)
            assert found is None or found.state != "failed" or state == "failed", found
            return found if found is not None and found.state == state else None

        return self.kit.until(f"it is {state}", NODES, there, timeout_s=timeout_s)

    def steps(self, name: str) -> list[int]:
        """The program's own counter, as it printed it."""
        log = self.kit.api.pod_log(name, TEAM)
        return [int(found) for found in re.findall(r"^step (\d+)$", log, re.MULTILINE)]

    def steps_after(self, name: str, step: int) -> list[int]:
        """Wait until the counter is beyond."""
        wait_until(f"{name} is beyond step {step}", lambda: (self.steps(name) or [0])[-1] > step, 60)
        return self.steps(name)

    def metrics(self) -> dict[str, float]:
        """The agent's."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{self.agent()}:9445/proxy/metrics"
        text = self.kit.kubectl("get", "--raw", path).stdout
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {key: float(value) for key, _, value in lines}

    def used_mib(self) -> float:
        """Of this pod's and all others' memory on cards, as the driver tells the agent."""
        name = "egpu_node_container_memory_used_bytes{"
        return sum(value for key, value in self.metrics().items() if key.startswith(name))

    def agent(self) -> str:
        """Name of the agent's pod."""
        pods = self.kit.api.list(PODS, NAMESPACE, field_selector=f"spec.nodeName={self.node}").items
        found = (str(one["metadata"]["name"]) for one in pods)
        return next(name for name in found if name.startswith("vc-egpu-node-agent"))

    def helpers(self) -> list[str]:
        """Pods of the helper that are there."""
        label = "app.kubernetes.io/name=vc-egpu-checkpoint"
        return [
            str(one["metadata"]["name"])
            for one in self.kit.api.list(PODS, NAMESPACE, label_selector=label).items
        ]

    def gone(self, name: str) -> None:
        """Delete the pod and wait."""
        self.kit.api.delete(PODS, name, TEAM, grace_period_s=0)
        self.kit.pods_until("it is gone", TEAM, lambda pods: name not in pods or None)


def _answer(node: Json, uid: str) -> PodSuspension | None:
    text = (node["metadata"].get("annotations") or {}).get(names.NODE_SUSPENSION)
    return NodeSuspension.decode(text).pods.get(uid) if text else None


def pod(
    name: str, command: tuple[str, ...], *, priority: str = "low", cards: int = 1, mib: int = GRANTED_MIB
) -> Json:
    """One pod of the team that runs a program on so many cards, each with so much memory."""
    limits = {"volcano.sh/vgpu-h20": str(cards), "volcano.sh/vgpu-memory": str(mib)}
    annotations = {names.QUEUE_NAME: TEAM, names.PRIORITY: priority}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": TEAM, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def owned(document: Json) -> Json:
    """The pod as a StatefulSet's: one that nobody would make again is never evicted."""
    name, metadata = document["metadata"]["name"], document["metadata"]
    template = {
        "metadata": {"annotations": metadata["annotations"], "labels": {"app": name}},
        "spec": {**document["spec"], "restartPolicy": "Always"},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


@contextmanager
def suspending(name: str) -> Iterator[Here]:
    """A cluster of this name with two cards; gone afterwards."""
    images = (*stack_images(), str(archive(print)))
    with LocalCluster.up(ClusterSpec(name=name, real_nodes=1, images=images), print) as cluster:
        stack = Stack.install(cluster, cards_per_node=2, overlay=ISOLATED, say=print)
        stack.kit.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}}, QUEUE, USE, USED
        )
        try:
            yield Here(stack)
        finally:
            log = stack.kit.kubectl(
                "logs", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=vc-egpu-node-agent", check=False
            )
            print(log.stdout)
