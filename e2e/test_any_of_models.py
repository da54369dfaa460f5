"""Gangs that take any of several models: the choice by wish, by cap and by room, on a real API server.

Simulated nodes of two models, and our processes beside the cluster with the rights of their own accounts.
Once with our Job controller, and with Volcano's under both of its configurations. With ours pods are there
before the choice, and are made again. Under Volcano's stock configuration the choice comes first.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, cast

import pytest
import yaml
from localcluster import ClusterSpec, LocalCluster
from localcluster.kwok import KwokNode
from outcomes.workload import container, pod_spec
from rigs.admission import wait_ready
from rigs.gangs import admitted
from rigs.volcano_job import ONE_TRY, volcano_job
from stack.fakes import inventory, offered
from stack.hostmode import MODELS, HostOptions, HostStack
from stack.kit import is_running
from stack.verify import check_invariants
from vc_egpu.kube.resources import NAMESPACES, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Request
from vc_egpu.volcano.words.model_table import ModelTable
from volcano.conf import ConfName
from volcano.processes import Volcano, VolcanoProcesses

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
Json = dict[str, Any]
NAMESPACE: Final = "models"
MEMORY_MIB: Final = {"h20": 98304, "t4": 16384}
CARDS: Final = 4
TIMEOUT_S: Final = 90.0


@dataclass(frozen=True)
class Models:
    """The stack beside a cluster with one node of each model."""

    stack: HostStack

    def queue(self, name: str, **cards: int) -> None:
        """A queue with these caps on cards."""
        caps = {names.shared_resource(model): str(count) for model, count in cards.items()}
        body = {"metadata": {"name": name}, "spec": {"weight": 1, "capability": caps}}
        self.apply({"apiVersion": QUEUES.api_version, "kind": "Queue", **body})
        self.stack.kit.until(
            f"{name} is open", QUEUES, lambda found: (found[name].get("status") or {}).get("state")
        )

    def apply(self, document: Json) -> str:
        """``kubectl apply``; what it says."""
        text = yaml.safe_dump(document)
        done = self.stack.kit.kubectl("apply", "-n", NAMESPACE, "-f", "-", text_in=text, check=False)
        return str(done.stdout) + str(done.stderr)

    def runs(self, name: str, members: int) -> dict[str, str]:
        """Wait until so many pods of this name run; their models, by pod."""

        def models(pods: dict[str, Json]) -> dict[str, str] | None:
            found = {key: pod for key, pod in pods.items() if key.startswith(f"{name}-") and is_running(pod)}
            return {key: model_of(pod) for key, pod in found.items()} if len(found) == members else None

        return self.stack.kit.until(f"{name} runs", PODS, models, namespace=NAMESPACE, timeout_s=TIMEOUT_S)

    def waits(self, name: str, reason: str) -> str:
        """Wait until the Job's PodGroup says this reason; the sentence."""

        def said(groups: dict[str, Json]) -> str | None:
            mine = [group for key, group in groups.items() if key.startswith(f"{name}-")]
            told = admitted(mine[0]) if mine else None
            return str(told["message"]) if told is not None and told["reason"] == reason else None

        return self.stack.kit.until(
            f"{name} waits: {reason}", POD_GROUPS, said, namespace=NAMESPACE, timeout_s=TIMEOUT_S
        )

    def choice(self, name: str) -> str:
        """What stands on the Job's PodGroup."""
        groups = self.stack.kit.api.list(POD_GROUPS, NAMESPACE).items
        (mine,) = [group for group in groups if group["metadata"]["name"].startswith(f"{name}-")]
        return str(mine["metadata"]["annotations"].get(names.CHOICE))

    def tries(self, name: str) -> int:
        """How often the Job was tried again."""
        found = self.stack.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
        return int((found.get("status") or {}).get("retryCount") or 0)

    def check(self) -> None:
        """No invariant is broken."""
        check_invariants(self.stack.kit, ModelTable.from_yaml(MODELS.read_text()))


def model_of(pod: Json) -> str:
    """The one model whose cards a pod asks for, by its annotation; its requests say the same."""
    request = Request.decode(pod["metadata"]["annotations"][names.REQUEST])
    (model,) = {ask.model for ask in request.containers.values()}
    assert request.choice == model
    (one,) = pod["spec"]["containers"]
    assert names.shared_resource(model) in one["resources"]["requests"]
    assert names.ANY_MODEL not in one["resources"]["limits"]
    assert pod["spec"]["nodeName"].endswith(model)
    return model


def template(models: str, memory_percent: int, **annotations: str) -> Json:
    limits = {names.ANY_MODEL: 1, names.LIMIT_MEMORY_PERCENTAGE: memory_percent, names.LIMIT_CORES: 50}
    metadata = {"annotations": {names.USE_MODELS: models, **annotations}}
    return {"metadata": metadata, "spec": pod_spec(container(limits=limits))}


def job(name: str, members: int, models: str, queue: str, memory_percent: int = 90) -> Json:
    pods = template(models, memory_percent)
    pods["spec"]["restartPolicy"] = "Never"
    return volcano_job(name, queue, members, pods, **ONE_TRY)


def node(index: int, name: str) -> KwokNode:
    model = sorted(MEMORY_MIB)[index]
    memory_mib = MEMORY_MIB[model]
    return KwokNode(
        f"{name}-{model}",
        cpu=64,
        extended={key: int(amount) for key, amount in offered(CARDS, model, memory_mib).items()},
        annotations={names.NODE_CARDS: inventory(name, CARDS, model, memory_mib).encode()},
    )


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


@pytest.fixture(
    scope="module",
    params=["ours", *(pytest.param(conf, marks=pytest.mark.volcano) for conf in ("own", "stock"))],
)
def models(request: pytest.FixtureRequest) -> Iterator[Models]:
    """Under our Job controller, and under Volcano's with both of its scheduler's configurations."""
    theirs: Volcano | None = request.getfixturevalue("volcano") if request.param != "ours" else None
    spec = ClusterSpec(name="models", real_nodes=0, services=False, dns=False)
    with ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster.up(spec))
        cluster.add_kwok_nodes(len(MEMORY_MIB), node)
        options = HostOptions()
        if theirs is not None:
            options = HostOptions(
                processes=("webhook", "admission"), overlay="volcano", scheduler=names.SCHEDULER_VOLCANO
            )
        ours = HostStack.install(cluster, options, theirs)
        stack.callback(ours.stop)
        ours.start()
        wait_ready(ours.kit, len(MEMORY_MIB))
        if theirs is not None:
            conf = cast("ConfName", request.param)
            VolcanoProcesses.of(cluster, theirs, conf).start(webhook=False)
        body: Mapping[str, Any] = {"metadata": {"name": NAMESPACE}}
        ours.kit.api.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", **body})
        models = Models(ours)
        for document in MAY_USE:
            models.apply(document)
        yield models


def test_by_wish_by_room_and_by_cap(models: Models) -> None:
    models.queue("wish", h20=8, t4=8)
    models.apply(job("first", 4, "t4,h20", "wish"))
    assert set(models.runs("first", 4).values()) == {"t4"}, "the wish of its user"
    models.apply(job("second", 2, "t4,h20", "wish"))
    assert set(models.runs("second", 2).values()) == {"h20"}, "no t4 has room"
    models.queue("capped", h20=1, t4=8)
    models.apply(job("third", 2, "h20,t4", "capped", memory_percent=5))
    assert set(models.runs("third", 2).values()) == {"t4"}, "its queue may use one h20"
    assert [models.choice(name) for name in ("first", "second", "third")] == ["t4", "h20", "t4"]
    assert {models.tries(name) for name in ("first", "second", "third")} == {0}
    models.check()
    for name in ("first", "second", "third"):
        models.stack.kit.kubectl("delete", "vcjob", name, "-n", NAMESPACE, "--wait=true")


def test_a_cap_that_is_raised_while_it_waits_decides(models: Models) -> None:
    models.queue("late", h20=2, t4=2)
    models.apply(job("holds", 2, "h20", "late", memory_percent=5))
    models.apply(job("held", 2, "t4", "late", memory_percent=5))
    models.runs("holds", 2)
    models.runs("held", 2)
    models.apply(job("waits", 2, "h20,t4", "late", memory_percent=5))
    sentence = models.waits("waits", "WaitingForQuota")
    assert "For h20 it asks for 2 shares of h20" in sentence
    assert "For t4 it asks for 2 shares of t4" in sentence
    patch = json.dumps({"spec": {"capability": {names.shared_resource("t4"): "4"}}})
    models.stack.kit.kubectl("patch", "queue", "late", "--type=merge", "-p", patch)
    assert set(models.runs("waits", 2).values()) == {"t4"}
    assert models.tries("waits") == 0
    models.check()
    for name in ("holds", "held", "waits"):
        models.stack.kit.kubectl("delete", "vcjob", name, "-n", NAMESPACE, "--wait=true")


def test_replicas_take_one_model_and_grow_with_it(models: Models) -> None:
    models.queue("web", h20=8, t4=8)
    labels = {"app": "chat"}
    pods = template("t4,h20", 10, **{names.QUEUE_NAME: "web"})
    pods["metadata"]["labels"] = labels
    models.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": pods},
        }
    )
    before = models.runs("chat", 2)
    assert set(before.values()) == {"t4"}
    models.stack.kit.kubectl("scale", "deployment", "chat", "-n", NAMESPACE, "--replicas=3")
    after = models.runs("chat", 3)
    assert before.items() <= after.items(), "those that ran go on"
    assert set(after.values()) == {"t4"}
    models.check()
    models.stack.kit.kubectl("delete", "deployment", "chat", "-n", NAMESPACE, "--wait=true")


def test_what_no_controller_makes_again_is_refused(models: Models) -> None:
    models.queue("bare", h20=8, t4=8)
    pod = template("t4,h20", 10, **{names.QUEUE_NAME: "bare"})
    said = models.apply(
        {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "b", **pod["metadata"]}}
    )
    assert "made again once its model is chosen" in said
    forged = job("forged", 1, "h20,t4", "bare")
    forged["metadata"]["annotations"] = {names.CHOICE: "h20"}
    assert "written by the admission layer alone" in models.apply(forged)


def test_a_job_takes_the_alternative_that_its_queue_has_room_for(models: Models) -> None:
    """With the image and the environment of that one. A cap that comes free later moves nothing."""
    models.queue("ways", h20=1, t4=4)
    large = {"name": "large", "model": "h20", "memory": "10%", "image": {"main": "reg/large"}}
    small = {
        "name": "small",
        "model": "t4",
        "count": 2,
        "memory": 1024,
        "image": {"main": "reg/small"},
        "env": {"main": {"CARDS": "2"}},
    }
    one = job("ways", 2, "", "ways")
    del one["spec"]["tasks"][0]["template"]["metadata"]["annotations"][names.USE_MODELS]
    one["metadata"]["annotations"] = {names.ALTERNATIVES: json.dumps([large, small])}
    models.apply(one)
    before = pods_of(models, "ways", 2)
    for pod in before.values():
        (main,) = pod["spec"]["containers"]
        assert main["image"] == "reg/small"
        assert main["env"] == [{"name": "CARDS", "value": "2"}]
        assert main["resources"]["requests"][names.shared_resource("t4")] == "2"
    assert models.choice("ways") == "small"
    assert models.tries("ways") == 0
    patch = json.dumps({"spec": {"capability": {names.shared_resource("h20"): "8"}}})
    models.stack.kit.kubectl("patch", "queue", "ways", "--type=merge", "-p", patch)
    models.apply(job("probe", 1, "h20", "ways", memory_percent=5))
    models.runs("probe", 1)  # the raised cap has been seen
    after = pods_of(models, "ways", 2)
    assert uids(before) == uids(after)
    models.check()
    for name in ("ways", "probe"):
        models.stack.kit.kubectl("delete", "vcjob", name, "-n", NAMESPACE, "--wait=true")


def pods_of(models: Models, name: str, members: int) -> dict[str, Json]:
    """Wait until so many pods of this name run; by name."""

    def there(pods: dict[str, Json]) -> dict[str, Json] | None:
        found = {key: pod for key, pod in pods.items() if key.startswith(f"{name}-") and is_running(pod)}
        return found if len(found) == members else None

    return models.stack.kit.until(f"{name} runs", PODS, there, namespace=NAMESPACE, timeout_s=TIMEOUT_S)


def uids(pods: dict[str, Json]) -> set[str]:
    return {str(pod["metadata"]["uid"]) for pod in pods.values()}
