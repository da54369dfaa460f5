"""A small cluster to review things in: two models, four queues, alice of team-a, an operator."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.webhook.protocol.context import Context, QueueTree, Review, Settings
from vc_egpu.webhook.protocol.decision import Decision
from vc_egpu.webhook.protocol.questions import Access, MakerLookup, PodGroupLookup, QueueLookup, Subject

Json = dict[str, Any]
TABLE = ModelTable.from_yaml(
    """
models:
  - {name: h20, memoryMiB: 98304, cardsPerNode: 8}
  - {name: v100-32g, memoryMiB: 32768, cardsPerNode: 4}
  - {name: a100-40g, memoryMiB: 40960, cardsPerNode: 8}
"""
)
NAMESPACE = "team-a"
ALICE = Subject("alice", ("system:authenticated",))
OPERATOR = Subject("operator", ("system:authenticated",))
JOB_CONTROLLER = Subject("system:serviceaccount:volcano-system:volcano-controllers")
REPLICA_SETS = Subject("system:serviceaccount:kube-system:replicaset-controller")


class Rbac:
    """Answers in the words of RBAC: ``"alice use queues a"``. Everything else is denied."""

    def __init__(
        self, rules: Iterable[str], groups: Iterable[Json] = (), makers: Mapping[str, Json] | None = None
    ) -> None:
        self.makers = makers or {}
        self.makers_asked: list[MakerLookup] = []
        self.rules = set(rules)
        self.groups = {(g["metadata"]["namespace"], g["metadata"]["name"]): g for g in groups}
        self.asked: list[Access] = []

    def access(self, question: Access) -> bool | None:
        self.asked.append(question)
        return f"{question.subject.user} {question.verb} {question.resource} {question.name}" in self.rules

    def pod_group(self, question: PodGroupLookup) -> tuple[bool, Json | None]:
        return True, self.groups.get((question.namespace, question.name))

    def looked_up(self, question: QueueLookup) -> bool:
        return True

    def maker(self, question: MakerLookup) -> tuple[bool, Json]:
        self.makers_asked.append(question)
        return True, self.makers.get(question.uid, {})


class Ignorant(Rbac):
    """Knows nothing until it is told: how the edge sees the first round of a review."""

    def __init__(self, rules: Iterable[str]) -> None:
        super().__init__(rules)
        self.told: set[Access] = set()

    def access(self, question: Access) -> bool | None:
        return super().access(question) if question in self.told else None


def queue(name: str, parent: str = "", state: str = "Open", **spec: Any) -> Json:
    full = {"weight": 1, **spec, **({"parent": parent} if parent else {})}
    return {"metadata": {"name": name}, "spec": full, "status": {"state": state}}


def caps(count: int, memory: int | None = None, model: str = "h20") -> Json:
    extra = {} if memory is None else {f"volcano.sh/vgpu-{model}-memory": memory}
    return {f"volcano.sh/vgpu-{model}": count, **extra}


QUEUES = {
    "a": queue("a", capability=caps(8, 400_000)),
    "closed": queue("closed", state="Closed", capability=caps(8)),
    "default": queue("default"),
    "org": queue("org", capability=caps(10)),
    "org-1": queue("org-1", parent="org", capability=caps(8)),
    "org-2": queue("org-2", parent="org", capability=caps(2)),
    "root": queue("root"),
}
RULES = (
    "alice use queues a",
    "alice use queues closed",
    "alice use queues org-1",
    "operator set-cap queues a",
)


def priority_class(name: str, policy: str = "Never", *, default: bool = False) -> Json:
    return {"metadata": {"name": name}, "preemptionPolicy": policy, "globalDefault": default}


def context(
    *rules: str,
    groups: Iterable[Json] = (),
    queues: Json | None = None,
    makers: Mapping[str, Json] | None = None,
    **settings: Any,
) -> Context:
    """``makers``: by UID of a pod, ReplicaSet, StatefulSet, batch Job or JobSet, the reference to what made
    it."""
    return Context(
        table=TABLE,
        settings=Settings(**settings),
        queues=QueueTree(QUEUES if queues is None else queues),
        namespaces={NAMESPACE: {"metadata": {"name": NAMESPACE}}},
        priority_classes={
            name: priority_class(name, policy, default=default)
            for name, policy, default in (
                ("egpu-high", "Never", False),
                ("egpu-standard", "Never", False),
                ("egpu-low", "Never", False),
                ("team", "Never", False),
                ("pushy", "PreemptLowerPriority", False),
                ("cluster-default", "PreemptLowerPriority", True),
            )
        },
        answers=Rbac([*RULES, *rules], groups, makers),
    )


def limits(**amounts: Any) -> Json:
    """``limits(vgpu_h20=1)`` is ``{"volcano.sh/vgpu-h20": 1}``."""
    return {"volcano.sh/" + name.replace("_", "-"): amount for name, amount in amounts.items()}


def container(name: str = "c", **amounts: Any) -> Json:
    return {"name": name, "image": "i", **({"resources": {"limits": limits(**amounts)}} if amounts else {})}


def pod(*containers: Json, annotations: Json | None = None, labels: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": NAMESPACE,
            "annotations": {"scheduling.volcano.sh/queue-name": "a", **(annotations or {})},
            **({"labels": labels} if labels else {}),
        },
        "spec": {"containers": list(containers) or [container(vgpu_h20=1)], **spec},
    }


def task(name: str, replicas: int, *containers: Json, annotations: Json | None = None, **fields: Any) -> Json:
    template: Json = {"spec": {"containers": list(containers) or [container(vgpu_h20=1)]}}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    return {"name": name, "replicas": replicas, "template": template, **fields}


def job(*tasks: Json, annotations: Json | None = None, queue: str | None = "a", **spec: Any) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": NAMESPACE, "uid": "job-uid", "annotations": annotations or {}},
        "spec": {**({"queue": queue} if queue else {}), "tasks": list(tasks) or [task("w", 2)], **spec},
    }


def create(obj: Json, subject: Subject = ALICE) -> Review:
    return Review("CREATE", NAMESPACE, subject, obj)


def update(obj: Json, old: Json, subject: Subject = ALICE) -> Review:
    return Review("UPDATE", NAMESPACE, subject, obj, old)


def patched(obj: Json, decision: Decision) -> Json:
    """The object after the decision's JSON patch."""
    assert decision.allowed, decision.message
    result = copy.deepcopy(obj)
    for operation in decision.patch:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = result
        for part in way:
            target = target[int(part)] if isinstance(target, list) else target[part]
        key: Any = int(last) if isinstance(target, list) else last
        if operation["op"] == "remove":
            del target[key]
        else:
            assert operation["op"] == "add" or key in target or isinstance(target, list)
            target[key] = copy.deepcopy(operation["value"])
    return result
