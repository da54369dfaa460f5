"""Pods with plans written by hand: what the admission layer does, without it, for tests of the node agent."""

import json
import random
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards, CardShare

BUSYBOX = "vc-egpu.local/busybox:1"
NAMESPACE = "default"
REPORT = (
    'echo "EGPU_CARDS=$EGPU_CARDS"; echo "VISIBLE=$NVIDIA_VISIBLE_DEVICES"; '
    'tr -d "\\n" < /etc/egpu/limits.json; echo'
)
SLEEP = "trap 'exit 0' TERM; while :; do sleep 1 & wait $!; done"
Json = dict[str, Any]


@dataclass(frozen=True)
class PlannedPod:
    """A pod and, by container, the cards that it shall get."""

    name: str
    containers: Mapping[str, tuple[CardShare, ...]]
    model: str = "h20"
    script: str = f"{REPORT}; {SLEEP}"
    sidecars: Collection[str] = ()
    """Which of the containers are sidecars."""

    def document(self, node: str) -> Json:
        """The pod, which waits for its Binding."""
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "labels": {"app": "planned"}},
            "spec": {
                "schedulerName": names.SCHEDULER_DIRECT,
                "terminationGracePeriodSeconds": 1,
                "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [
                    self._container(name) for name in self.containers if name not in self.sidecars
                ],
                "initContainers": [
                    {**self._container(name), "restartPolicy": "Always"} for name in self.sidecars
                ],
            },
        }

    def _container(self, name: str) -> Json:
        limits = self._limits(self.containers[name])
        return {
            "name": name,
            "image": BUSYBOX,
            "imagePullPolicy": "Never",
            "command": ["/bin/sh", "-c", self.script],
            "resources": {"limits": limits, "requests": limits},
        }

    def _limits(self, shares: Sequence[CardShare]) -> Json:
        return {
            names.shared_resource(self.model): str(len(shares)),
            names.memory_total_resource(self.model): str(sum(share.memory_mib for share in shares)),
            names.cores_total_resource(self.model): str(sum(share.cores for share in shares)),
        }

    def cards(self, uid: str, node: str, plan_id: str = "1-1", **changes: Any) -> Cards:
        """The annotation for this pod's UID."""
        values = {"pod_uid": uid, "node": node, "plan_id": plan_id, "containers": dict(self.containers)}
        return Cards(**{**values, **changes})


class Planner:
    """Creates, plans and releases pods, as the admission layer would.

    Without ``host_users`` their root is nobody on the host.
    """

    def __init__(self, api: ApiConnection, node: str, *, host_users: bool = True) -> None:
        self.api = api
        self.node = node
        self.host_users = host_users

    def start(self, pods: Sequence[PlannedPod]) -> None:
        """All pods made first, then planned and bound at once."""
        with ThreadPoolExecutor(16) as pool:
            uids = list(pool.map(self.create, pods))
            list(pool.map(self.release, pods, uids))

    def create(self, pod: PlannedPod) -> str:
        """The pod, not bound yet; its UID."""
        document = pod.document(self.node)
        document["spec"]["hostUsers"] = self.host_users
        return str(self.api.create(PODS, document)["metadata"]["uid"])

    def release(self, pod: PlannedPod, uid: str, cards: Cards | None = None) -> None:
        """Bind it with its cards."""
        self._bind(pod, {names.CARDS: (cards or pod.cards(uid, self.node)).encode()})

    def bind_without_plan(self, pod: PlannedPod) -> None:
        """Bind it as a client would that goes past the admission layer."""
        self._bind(pod, {})

    def _bind(self, pod: PlannedPod, annotations: Json) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        metadata = {"name": pod.name, "namespace": NAMESPACE, "annotations": annotations}
        self.api.bind({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})

    def delete(self, pods: Sequence[PlannedPod], grace_period_s: int | None = None) -> None:
        """Delete them all."""

        def one(pod: PlannedPod) -> None:
            self.api.delete(PODS, pod.name, NAMESPACE, grace_period_s=grace_period_s)

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(one, pods))


def said(log: str) -> tuple[list[Json], Json]:
    """What a container reported: its EGPU_CARDS and its limits.json."""
    lines = log.splitlines()
    cards = next(line.removeprefix("EGPU_CARDS=") for line in lines if line.startswith("EGPU_CARDS="))
    assert "VISIBLE=void" in lines
    limits = next(line for line in lines if line.startswith("{"))
    return json.loads(cards), json.loads(limits)


def random_round(
    rng: random.Random,
    uuids: Sequence[str],
    *,
    pods: int,
    containers: int,
    prefix: str = "pod",
    most: int = 2,
) -> list[PlannedPod]:
    """Pods whose shares are all different in size, so that no two containers can be confused."""
    sizes = iter(rng.sample(range(64, 2048), pods * containers * most))
    turn = rng.randrange(len(uuids))
    planned = []
    for number in range(pods):
        parts: dict[str, tuple[CardShare, ...]] = {}
        for index in range(containers):
            count = rng.randint(1, most)
            chosen = [uuids[(turn + k) % len(uuids)] for k in range(count)]
            turn += count
            parts[f"c{index}"] = tuple(
                CardShare(uuid=uuid, memory_mib=next(sizes), cores=rng.randint(0, 3)) for uuid in chosen
            )
        planned.append(PlannedPod(f"{prefix}-{number}", parts))
    return planned
