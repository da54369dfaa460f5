"""A node carries out orders to suspend: the program's memory leaves the card, and the program goes on later.

Orders are written here by hand, as the admission controller's identity: what decides on them is elsewhere.
"""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from isolation.image import IMAGE, archive
from isolation.world import c_program
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from stack.install import ISOLATED, NAMESPACE, Stack
from stack.kit import running
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.errors import Refused
from vc_egpu.kube.resources import DEPLOYMENTS, EVENTS, NODES, POD_TEMPLATES, PODS, STATEFUL_SETS
from vc_egpu.volcano import names
from vc_egpu.volcano.suspension import NodeSuspension, PodSuspension, SuspendOrder

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
pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]


class Here:
    """The stack, without the controller that would take our orders back."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.kit = stack.kit
        self.node = stack.cluster.nodes[0].name
        self.orders = 0

    def train(self, name: str) -> str:
        """A low pod that trains and can be suspended; its UID."""
        options = {"ns": 200_000, "kernels": 10, "every": 1, "memory-mib": 4_000}
        self.run(pod(name, c_program("train", **options)))
        self.steps_after(name, 0)
        uid = str(self.kit.api.get(PODS, name, TEAM)["metadata"]["uid"])
        self.suspendable(uid)
        return uid

    def suspendable(self, uid: str) -> None:
        """Wait until the node says that it could be suspended."""

        def there(nodes: dict[str, Json]) -> bool | None:
            found = _answer(nodes[self.node], uid)
            return (found is not None and found.suspendable) or None

        self.kit.until("it can be suspended", NODES, there)

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
        name = "egpu_node_container_memory_used_mib{"
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


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    with LocalCluster.up(ClusterSpec(name="suspend-node", real_nodes=1), print) as cluster:
        cluster.import_image(archive(print))
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


def test_memory_leaves_the_card_and_the_steps_go_on_where_they_were(here: Here) -> None:
    uid = here.train("away")
    before = here.used_mib()
    assert before > 4_000
    began = time.monotonic()
    order = here.order("away", uid)
    said = here.until(uid, "suspended")
    took = time.monotonic() - began
    assert (said.plan_id, said.host_mib) == (order, before)
    wait_until("the driver sees nothing of it", lambda: here.used_mib() == 0, 30)
    stood = here.steps("away")
    wait_until("no helper is left", lambda: here.helpers() == [], 60)
    assert here.metrics()[f'egpu_node_pod_suspended_mib{{namespace="{TEAM}",pod="away"}}'] == before
    began = time.monotonic()
    here.take_back("away")
    here.until(uid, "running")
    back = time.monotonic() - began
    print(json.dumps({"suspend_s": round(took, 2), "resume_s": round(back, 2)}))
    went_on = here.steps_after("away", stood[-1])
    assert went_on == sorted(set(went_on)), "the counter lies in device memory: it came back whole"
    assert went_on[: len(stood)] == stood
    status = here.kit.api.get(PODS, "away", TEAM)["status"]
    assert [one["restartCount"] for one in status["containerStatuses"]] == [0]
    wait_until("no helper is left", lambda: here.helpers() == [], 60)
    here.gone("away")


def test_an_agent_that_ends_in_the_middle_is_followed_by_one_that_finishes(here: Here) -> None:
    uid = here.train("followed")
    here.order("followed", uid)
    here.until(uid, "suspending")
    here.kit.api.delete(PODS, here.agent(), NAMESPACE, grace_period_s=0)
    here.until(uid, "suspended", timeout_s=180)
    stood = here.steps("followed")[-1]
    here.kit.api.delete(PODS, here.agent(), NAMESPACE, grace_period_s=0)
    here.take_back("followed")
    here.until(uid, "running", timeout_s=180)
    here.steps_after("followed", stood)
    wait_until("no helper is left", lambda: here.helpers() == [], 60)
    here.gone("followed")


def test_a_pod_deleted_while_suspended_leaves_nothing_behind(here: Here) -> None:
    uid = here.train("deleted")
    here.order("deleted", uid)
    here.until(uid, "suspended")
    here.gone("deleted")
    wait_until("the node has forgotten it", lambda: here.said(uid) is None, 60)
    real = here.stack.cluster.nodes[0]
    assert real.run(["find", "/var/lib/vc-egpu/suspensions", "-type", "f"]).stdout == ""
    wait_until("nothing is used", lambda: here.used_mib() == 0, 30)


def test_what_cannot_be_suspended_says_why(here: Here) -> None:
    name = "managed"
    code = (
        "import sys; sys.path.insert(0, '/opt/egpu'); import ctypes, time, probe; c = probe.Cuda();"
        "at = ctypes.c_uint64(); size = ctypes.c_size_t(4 << 20);"
        "print(c.call('cuMemAllocManaged', ctypes.byref(at), size, 1), flush=True);"
        "time.sleep(3600)"
    )
    here.run(pod(name, ("/usr/bin/python3", "-c", code)))
    uid = str(here.kit.api.get(PODS, name, TEAM)["metadata"]["uid"])
    wait_until("the verdict", lambda: (s := here.said(uid)) is not None and "managed" in s.reason, 60)
    order = here.order(name, uid)
    wait_until("the order is refused", lambda: (s := here.said(uid)) is not None and s.plan_id == order, 60)
    said = here.said(uid)
    assert said is not None
    assert (said.state, said.suspendable) == ("running", False)
    assert "4 MiB of managed memory" in said.reason

    def told(events: dict[str, Json]) -> bool | None:
        return any(one.get("reason") == "NotSuspended" for one in events.values()) or None

    here.kit.until("the pod's event", EVENTS, told, namespace=TEAM)
    here.gone(name)


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


TRAIN = {"ns": 200_000, "kernels": 10, "every": 1, "memory-mib": 4_000}


def away_for_inference(here: Here) -> str:
    """Training that was suspended for inference, which runs now; its UID. With the controller."""
    here.controllers(1)
    here.kit.apply(owned(pod("train", c_program("train", **TRAIN), cards=2, mib=57_344)))
    here.kit.pods_until("training runs", TEAM, lambda pods: "train-0" in running(pods) or None)
    here.steps_after("train-0", 0)
    uid = str(here.kit.api.get(PODS, "train-0", TEAM)["metadata"]["uid"])
    here.suspendable(uid)
    began = time.monotonic()
    here.kit.apply(pod("infer", c_program("train", **TRAIN), priority="high", mib=49_152))
    here.kit.pods_until("inference runs", TEAM, lambda pods: "infer" in running(pods) or None)
    print(json.dumps({"room_s": round(time.monotonic() - began, 2)}))
    said = here.said(uid)
    assert said is not None
    assert said.state == "suspended"
    here.steps_after("infer", 0)
    here.stack.check_invariants()
    return uid


def all_gone(here: Here) -> None:
    here.kit.api.delete(STATEFUL_SETS, "train", TEAM)
    here.kit.pods_until("all is gone", TEAM, lambda pods: not pods or None)


def test_inference_takes_the_cards_and_training_comes_back(here: Here) -> None:
    """The whole of it, with the controller: who does not fit beside training has it suspended."""
    uid = away_for_inference(here)
    stood = here.steps("train-0")
    here.kit.api.delete(PODS, "infer", TEAM, grace_period_s=0)
    began = time.monotonic()
    here.until(uid, "running")
    print(json.dumps({"back_s": round(time.monotonic() - began, 2)}))
    assert here.steps_after("train-0", stood[-1])[: len(stood)] == stood
    status = here.kit.api.get(PODS, "train-0", TEAM)["status"]
    assert [one["restartCount"] for one in status["containerStatuses"]] == [0]
    all_gone(here)


def test_training_that_cannot_come_back_is_ended_and_begins_anew(here: Here) -> None:
    uid = away_for_inference(here)
    fault = {"name": "FAKE_CUDA_FAULTS", "value": "cuCheckpointProcessRestore:1:1:2"}
    path = "/template/spec/containers/0/env/-"
    api = here.kit.api
    patch: Any = [{"op": "add", "path": path, "value": fault}]
    before = api.get(POD_TEMPLATES, "vc-egpu-checkpoint", NAMESPACE)["template"]["spec"]
    api.patch(POD_TEMPLATES, "vc-egpu-checkpoint", patch, NAMESPACE, kind="json")
    api.delete(PODS, "infer", TEAM, grace_period_s=0)

    def anew(pods: dict[str, Json]) -> bool | None:
        there = "train-0" in running(pods)
        return (there and pods["train-0"]["metadata"]["uid"] != uid) or None

    here.kit.pods_until("another pod in its place", TEAM, anew, timeout_s=120)
    patch = [{"op": "replace", "path": "/template/spec/containers", "value": before["containers"]}]
    api.patch(POD_TEMPLATES, "vc-egpu-checkpoint", patch, NAMESPACE, kind="json")
    assert here.steps_after("train-0", 0)[0] == 1
    wait_until("the node has forgotten the first", lambda: here.said(uid) is None, 60)
    here.stack.check_invariants()
    all_gone(here)


def _set(**fields: Any) -> Any:
    return lambda body: body["spec"].update(fields)


def _container(**fields: Any) -> Any:
    return lambda body: body["spec"]["containers"][0].update(fields)


def _words(text: str) -> Any:
    return lambda body: body["metadata"].update(annotations={names.CHECKPOINT: text})


FORBIDDEN: dict[str, tuple[Any, str]] = {
    "another node": (_set(nodeName="other"), "spec.nodeName"),
    "no node": (lambda body: body["spec"].pop("nodeName"), "spec.nodeName"),
    "another image": (_container(image="evil"), "spec.containers"),
    "another command": (_container(command=["sh"]), "spec.containers"),
    "arguments": (_container(args=["-c"]), "spec.containers"),
    "more environment": (
        lambda body: body["spec"]["containers"][0]["env"].append({"name": "LD_PRELOAD", "value": "/x"}),
        "spec.containers",
    ),
    "a second container": (
        lambda body: body["spec"]["containers"].append({"name": "x", "image": "y"}),
        "spec.containers",
    ),
    "an init container": (
        _set(initContainers=[{"name": "x", "image": "y"}]),
        "containers of the PodTemplate",
    ),
    "another volume": (
        lambda body: body["spec"]["volumes"].append({"name": "r", "hostPath": {"path": "/"}}),
        "spec.volumes",
    ),
    "the host's network": (_set(hostNetwork=True), "namespaces"),
    "another account": (_set(serviceAccountName="vc-egpu-admission"), "spec.serviceAccountName"),
    "for ever": (lambda body: body["spec"].pop("activeDeadlineSeconds"), "as in PodTemplate"),
    "another user": (_set(securityContext={"runAsUser": 1}), "as in PodTemplate"),
    "other labels": (lambda body: body["metadata"].update(labels={"app": "x"}), "namespace and labels"),
    "no words": (lambda body: body["metadata"].pop("annotations"), "metadata.annotations"),
    "flags": (_words("suspend --library /x --lock-ms 1 1:1"), "metadata.annotations"),
    "no such verb": (_words("kill --lock-ms 1 1:1"), "metadata.annotations"),
    "no start time": (_words("suspend --lock-ms 1 1"), "metadata.annotations"),
    "more annotations": (
        lambda body: body["metadata"]["annotations"].update(other="x"),
        "metadata.annotations",
    ),
}


def test_an_agent_makes_its_helper_and_nothing_else(here: Here, tmp_path: Path) -> None:
    agent, good = as_agent(here, tmp_path), helper(here)
    assert agent.create(PODS, good, dry_run=True)["spec"]["nodeName"] == here.node
    for what, (change, about) in FORBIDDEN.items():
        body = json.loads(json.dumps(good))
        change(body)
        with pytest.raises(Refused) as error:
            agent.create(PODS, body, dry_run=True)
        assert about in str(error.value), what
    elsewhere = json.loads(json.dumps(good))
    elsewhere["metadata"]["namespace"] = TEAM
    with pytest.raises(Refused):
        agent.create(PODS, elsewhere, dry_run=True)
    with pytest.raises(Refused, match="helper's pods"):
        agent.delete(PODS, here.agent(), NAMESPACE)
    assert "vc-egpu-system-pods" in here.kit.refused(good), "nobody else makes such a pod"


def helper(here: Here) -> Json:
    """A helper's pod as the agent makes it."""
    template = here.kit.api.get(POD_TEMPLATES, "vc-egpu-checkpoint", NAMESPACE)["template"]
    metadata = {
        "name": "helper",
        "namespace": NAMESPACE,
        "labels": template["metadata"]["labels"],
        "annotations": {names.CHECKPOINT: "state --lock-ms 1000 1:1"},
    }
    spec = {**template["spec"], "nodeName": here.node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def as_agent(here: Here, folder: Path) -> ApiConnection:
    """With a token bound to the agent's own pod, as the kubelet gives it one."""
    token = here.kit.kubectl(
        "create", "token", "vc-egpu-node-agent", "-n", NAMESPACE,
        "--bound-object-kind=Pod", f"--bound-object-name={here.agent()}",
    ).stdout.strip()  # fmt: skip
    document = yaml.safe_load(here.stack.cluster.kubeconfig.read_text())
    document["users"] = [{"name": one["name"], "user": {"token": token}} for one in document["users"]]
    path = folder / "agent.kubeconfig"
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return ApiConnection.connect(path)
