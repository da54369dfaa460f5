"""Gangs that take one of several kinds of cards: one simulated node of each model, our processes beside it.

Under our Job controller, or under Volcano's with one of its scheduler's configurations.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import yaml
from localcluster import ClusterSpec, LocalCluster
from localcluster.kwok import KwokNode
from stack.fakes import inventory, offered
from stack.hostmode import HostOptions, HostStack
from stack.kit import is_running
from stack.verify import check_invariants
from vc_egpu.kube.resources import NAMESPACES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from volcano.conf import ConfName
from volcano.processes import Volcano, VolcanoProcesses

from rigs.admission import wait_ready
from rigs.gangs import admitted

Json = dict[str, Any]
NAMESPACE: Final = "models"
TIMEOUT_S: Final = 90.0
UNDER_VOLCANO: Final = ("webhook", "admission")
"""Our processes there: the Job controller is Volcano's."""


@dataclass(frozen=True, slots=True)
class Cards:
    """What the one node of a model has."""

    memory_mib: int
    count: int = 4
    vendor: str = "nvidia"
    cuda: str = ""
    """What its driver offers; empty: its agent does not tell."""

    def node(self, name: str, model: str) -> KwokNode:
        """That node; its name ends with the model's."""
        full = f"{name}-{model}"
        told = inventory(full, self.count, model, self.memory_mib).model_copy(
            update={"vendor": self.vendor, "cuda_version": self.cuda}
        )
        return KwokNode(
            full,
            cpu=64,
            extended={
                key: int(amount) for key, amount in offered(self.count, model, self.memory_mib).items()
            },
            annotations={names.NODE_CARDS: told.encode()},
        )


@dataclass(frozen=True)
class Choosing:
    """The stack beside a cluster with one node of each model."""

    stack: HostStack

    def queue(self, name: str, caps: Mapping[str, int]) -> None:
        """A queue with these caps on cards, by model."""
        capability = {names.shared_resource(model): str(count) for model, count in caps.items()}
        body = {"metadata": {"name": name}, "spec": {"weight": 1, "capability": capability}}
        self.apply({"apiVersion": QUEUES.api_version, "kind": "Queue", **body})
        self.stack.kit.until(
            f"{name} is open", QUEUES, lambda found: (found[name].get("status") or {}).get("state")
        )

    def cap(self, queue: str, model: str, cards: int) -> None:
        """Change a cap of that queue."""
        patch = json.dumps({"spec": {"capability": {names.shared_resource(model): str(cards)}}})
        self.stack.kit.kubectl("patch", "queue", queue, "--type=merge", "-p", patch)

    def apply(self, document: Json) -> str:
        """``kubectl apply``; what it says."""
        text = yaml.safe_dump(document)
        done = self.stack.kit.kubectl("apply", "-n", NAMESPACE, "-f", "-", text_in=text, check=False)
        return str(done.stdout) + str(done.stderr)

    def delete(self, *jobs: str) -> None:
        """These Jobs and their pods."""
        for name in jobs:
            self.stack.kit.kubectl("delete", "vcjob", name, "-n", NAMESPACE, "--wait=true")

    def runs(self, name: str, members: int, namespace: str = NAMESPACE) -> dict[str, Json]:
        """Wait until so many pods of this name run; by name."""

        def there(pods: dict[str, Json]) -> dict[str, Json] | None:
            found = {key: pod for key, pod in pods.items() if key.startswith(f"{name}-") and is_running(pod)}
            return found if len(found) == members else None

        return self.stack.kit.until(f"{name} runs", PODS, there, namespace=namespace, timeout_s=TIMEOUT_S)

    def waits(self, name: str, reason: str) -> str:
        """Wait until the Job's PodGroup says this reason; the sentence."""

        def said(groups: dict[str, Json]) -> str | None:
            mine = [group for key, group in groups.items() if key.startswith(f"{name}-")]
            told = admitted(mine[0]) if mine else None
            return str(told["message"]) if told is not None and told["reason"] == reason else None

        return self.stack.kit.until(
            f"{name} waits: {reason}", POD_GROUPS, said, namespace=NAMESPACE, timeout_s=TIMEOUT_S
        )

    def group(self, name: str) -> Json:
        """The Job's PodGroup."""
        groups = self.stack.kit.api.list(POD_GROUPS, NAMESPACE).items
        (mine,) = [group for group in groups if group["metadata"]["name"].startswith(f"{name}-")]
        return mine

    def choice(self, name: str) -> str:
        """What stands on the Job's PodGroup."""
        return str(self.group(name)["metadata"]["annotations"].get(names.CHOICE))

    def tries(self, name: str) -> int:
        """How often the Job was tried again."""
        found = self.stack.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
        return int((found.get("status") or {}).get("retryCount") or 0)

    def check(self) -> None:
        """No invariant is broken."""
        check_invariants(self.stack.kit, ModelTable.from_yaml(self.stack.options.models.read_text()))


def uids(pods: Mapping[str, Json]) -> set[str]:
    """Which pods these are."""
    return {str(pod["metadata"]["uid"]) for pod in pods.values()}


@contextmanager
def choosing(
    name: str, cards: Mapping[str, Cards], options: HostOptions, theirs: Volcano | None, conf: ConfName
) -> Iterator[Choosing]:
    """The cluster, with our Job controller where ``theirs`` is None; gone afterwards."""
    spec = ClusterSpec(name=name, real_nodes=0, services=False, dns=False)
    models = sorted(cards)
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster.up(spec))
        cluster.add_kwok_nodes(len(cards), lambda index, on: cards[models[index]].node(on, models[index]))
        ours = HostStack.install(cluster, options, theirs)
        stack.callback(ours.stop)
        ours.start()
        wait_ready(ours.kit, len(cards))
        if theirs is not None:
            VolcanoProcesses.of(cluster, theirs, conf).start(webhook=False)
        body: Mapping[str, Any] = {"metadata": {"name": NAMESPACE}}
        ours.kit.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **body})
        found = Choosing(ours)
        for document in MAY_USE:
            found.apply(document)
        yield found


MAY_USE: Final = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "models"},
        "rules": [
            {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": [names.VERB_USE]}
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "models"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "models"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}],
    },
)
"""Pods that a ReplicaSet makes count in a queue that their own account may use."""
