"""The webhook and the admission policies on a real API server: applied twice, forged, down, certificates new.

No nodes are needed: nothing here runs, everything is decided at the door.
"""

import base64
import copy
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.errors import Forbidden, KubeError
from vc_egpu.kube.resources import (
    COMMANDS,
    MUTATING_WEBHOOKS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    VOLCANO_JOBS,
    Resource,
)
from vc_egpu.volcano.annotations import Cards
from webhook_rig import Rig

Json = dict[str, Any]
NAMESPACE = "team-a"
QUEUES_FOLDER = Path(__file__).resolve().parents[1] / "queues"
VALIDATING_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
pytestmark = pytest.mark.cluster

WORLD = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{name: a}}
spec: {{weight: 1, capability: {{volcano.sh/vgpu-h20: 4}}}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{name: b}}
spec: {{weight: 1, capability: {{volcano.sh/vgpu-h20: 4}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: team-a}}
rules:
- {{apiGroups: [""], resources: [pods, pods/status], verbs: ["*"]}}
- {{apiGroups: [batch.volcano.sh], resources: [jobs], verbs: ["*"]}}
- {{apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: ["*"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: team-a, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: team-a}}
subjects: [{{kind: ServiceAccount, name: alice, namespace: {NAMESPACE}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: queue-a}}
rules:
- {{apiGroups: [scheduling.volcano.sh], resources: [queues], resourceNames: [a], verbs: [use, update, patch]}}
- {{apiGroups: [scheduling.volcano.sh], resources: [queues], verbs: [get, list]}}
- {{apiGroups: [bus.volcano.sh], resources: [commands], verbs: [create]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: queue-a}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: queue-a}}
subjects: [{{kind: ServiceAccount, name: alice, namespace: {NAMESPACE}}}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: alice, namespace: {NAMESPACE}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: default, namespace: {NAMESPACE}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: vc-egpu-system}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: vc-egpu-admission, namespace: vc-egpu-system}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: vc-egpu-node-agent, namespace: vc-egpu-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: ours-for-test}}
rules:
- {{apiGroups: [""], resources: [pods, nodes, nodes/status], verbs: ["*"]}}
- {{apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: ["*"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: ours-for-test}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ours-for-test}}
subjects:
- {{kind: ServiceAccount, name: vc-egpu-admission, namespace: vc-egpu-system}}
- {{kind: ServiceAccount, name: vc-egpu-node-agent, namespace: vc-egpu-system}}
"""

JOB = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: {name}, namespace: team-a}}
spec:
  queue: a
  minAvailable: 2
  tasks:
  - name: worker
    replicas: 2
    template:
      spec:
        containers:
        - name: main
          image: none.example/none:1
          resources:
            limits: {{volcano.sh/vgpu-h20: 1, volcano.sh/vgpu-memory: 4k, volcano.sh/vgpu-cores: 30}}
        - {{name: log, image: "none.example/none:1"}}
  - name: driver
    replicas: 1
    template: {{spec: {{containers: [{{name: main, image: "none.example/none:1"}}]}}}}
"""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A control plane without nodes, the webhook beside it, alice of team-a."""
    spec = ClusterSpec(name="webhook-e2e", real_nodes=0, services=False, dns=False, scheduler=False)
    with LocalCluster.up(spec) as cluster:
        started = Rig.start(cluster, tmp_path_factory.mktemp("webhook"), ["--settle-s", "1"])
        started.kit.apply(WORLD)
        wait_until("alice has her rights", lambda: _may_list(started.tenant("alice", NAMESPACE)), 20)
        yield started


@pytest.fixture
def alice(rig: Rig) -> ApiConnection:
    return rig.tenant("alice", NAMESPACE)


def _may_list(api: ApiConnection) -> bool:
    try:
        api.list(PODS, NAMESPACE)
        api.list(QUEUES)
    except KubeError:
        return False
    return True


def pod(name: str, **limits: Any) -> Json:
    resources = {"limits": {"volcano.sh/" + k.replace("_", "-"): v for k, v in limits.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {"scheduling.volcano.sh/queue-name": "a"},
        },
        "spec": {"containers": [{"name": "main", "image": "none.example/none:1", "resources": resources}]},
    }


def version(api: ApiConnection, name: str) -> str:
    return str(api.get(VOLCANO_JOBS, name, NAMESPACE)["metadata"]["resourceVersion"])


# --- applied twice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_applying_the_same_job_twice_leaves_the_same_version(rig: Rig, how: tuple[str, ...]) -> None:
    name = "twice" + "".join(how).strip("-").replace("-", "")
    manifest = JOB.format(name=name)
    rig.cluster.kubectl("apply", *how, "-f", "-", text_in=manifest)
    stored = rig.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
    resources = stored["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["volcano.sh/vgpu-h20-memory"] == "4000"
    for _ in range(2):
        rig.cluster.kubectl("apply", *how, "-f", "-", text_in=manifest)
        assert version(rig.kit.api, name) == stored["metadata"]["resourceVersion"]


def test_a_bare_pod_can_be_applied_twice(rig: Rig) -> None:
    manifest = yaml.safe_dump(pod("applied", vgpu_h20=1, vgpu_memory=1000))
    rig.kit.apply(manifest)
    first = rig.kit.api.get(PODS, "applied", NAMESPACE)
    rig.kit.apply(manifest)
    assert rig.kit.api.get(PODS, "applied", NAMESPACE)["spec"] == first["spec"]


def test_a_job_older_than_the_webhook_still_scales(rig: Rig, alice: ApiConnection) -> None:
    api = rig.kit.api
    hooks = copy.deepcopy(api.get(MUTATING_WEBHOOKS, "vc-egpu"))
    without_webhooks(rig, lambda: rig.kit.apply(JOB.format(name="older")))
    old = api.get(VOLCANO_JOBS, "older", NAMESPACE)
    assert "requests" not in old["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    operations = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 3}]
    scaled = alice.patch(VOLCANO_JOBS, "older", operations, NAMESPACE, kind="json")
    old["spec"]["tasks"][0]["replicas"] = 3
    assert scaled["spec"] == old["spec"]
    assert len(api.get(MUTATING_WEBHOOKS, "vc-egpu")["webhooks"]) == len(hooks["webhooks"])


def without_webhooks(rig: Rig, action: Callable[[], object]) -> None:
    """Do something on a cluster that has no webhook yet, then install it."""
    names = "mutatingwebhookconfiguration/vc-egpu", "validatingwebhookconfiguration/vc-egpu"
    saved = [rig.cluster.kubectl("get", name, "-o", "yaml").stdout for name in names]
    rig.cluster.kubectl("delete", *names)
    try:
        wait_until("the API server forgot the webhooks", lambda: not rig.webhooks_answer(), 20)
        action()
    finally:
        for text in saved:
            document = yaml.safe_load(text)
            for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
                document["metadata"].pop(field, None)
            rig.kit.apply(document)
        rig.wait_ready()


# --- who may -----------------------------------------------------------------------------------------


def test_alice_uses_her_queue_and_is_told_which_one_it_is(alice: ApiConnection) -> None:
    created = alice.create(PODS, pod("mine", vgpu_h20=1, vgpu_memory_percentage=50))
    assert created["spec"]["schedulingGates"] == [{"name": "egpu.volcano.sh/admission"}]
    assert created["spec"]["priorityClassName"] == "egpu-standard"
    assert created["spec"]["preemptionPolicy"] == "Never"
    other = pod("other", vgpu_h20=1)
    other["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = "b"
    with pytest.raises(Forbidden, match=r"may not use queue 'b'.*you may use: a"):
        alice.create(PODS, other)


def test_leave_that_was_just_given_counts_within_seconds(rig: Rig, alice: ApiConnection) -> None:
    high = pod("high", vgpu_h20=1)
    high["metadata"]["annotations"]["egpu.volcano.sh/priority"] = "high"
    with pytest.raises(Forbidden, match="egpu-high"):
        alice.create(PODS, high)
    rig.kit.apply(
        """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: use-high}
rules:
- {apiGroups: [scheduling.k8s.io], resources: [priorityclasses], resourceNames: [egpu-high], verbs: [use]}
""",
        f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: use-high, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: use-high}}
subjects: [{{kind: ServiceAccount, name: alice, namespace: {NAMESPACE}}}]
""",
    )

    def created() -> bool:
        try:
            return bool(alice.create(PODS, high)["spec"]["priority"] == 1000)
        except Forbidden:
            return False

    wait_until("high is allowed", created, 10)


def test_a_tenant_lowers_its_cap_and_does_not_raise_it(rig: Rig, alice: ApiConnection) -> None:
    lower = {"spec": {"capability": {"volcano.sh/vgpu-h20": 3}}}
    assert alice.patch(QUEUES, "a", lower)["spec"]["capability"]["volcano.sh/vgpu-h20"] == 3
    with pytest.raises(Forbidden, match=r"3 to 4: service account team-a/alice may not raise.*set-cap"):
        alice.patch(QUEUES, "a", {"spec": {"capability": {"volcano.sh/vgpu-h20": 4}}})
    rig.kit.api.patch(QUEUES, "a", {"spec": {"capability": {"volcano.sh/vgpu-h20": 4}}})


def test_commands_need_update_on_their_target(alice: ApiConnection) -> None:
    def command(queue: str) -> Json:
        target = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "name": queue, "uid": "0"}
        metadata = {"generateName": "close-", "namespace": NAMESPACE}
        return {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": metadata,
            "action": "CloseQueue",
            "target": target,
        }

    assert alice.create(COMMANDS, command("a"), dry_run=True)
    with pytest.raises(Forbidden, match="may not CloseQueue Queue 'b'"):
        alice.create(COMMANDS, command("b"))


def test_what_is_not_ours_does_not_pass_through_the_webhook(rig: Rig, alice: ApiConnection) -> None:
    with rig.webhook_down():
        plain = pod("plain")
        plain["spec"]["containers"][0]["resources"] = {}
        alice.create(PODS, plain)
        alice.create(PODS, pod("volcanos", vgpu_number=1, vgpu_memory=100))
        with pytest.raises(KubeError, match="egpu"):
            alice.create(PODS, pod("managed", vgpu_h20=1))


# --- policies: with the webhook down and even uninstalled ---------------------------------------------


def test_policies_type_check(rig: Rig) -> None:
    for policy in rig.kit.api.list(VALIDATING_POLICIES).items:
        if policy["metadata"]["name"].startswith("vc-egpu"):
            assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy["status"]


def test_without_the_webhook_no_managed_pod_slips_in(rig: Rig, alice: ApiConnection) -> None:
    def attempt() -> None:
        for name, obj, words in _slips():
            with pytest.raises(Forbidden, match=words):
                alice.create(PODS, obj)
                pytest.fail(f"{name} was let in")

    with rig.webhook_down():
        without_webhooks_now(rig, attempt)


def without_webhooks_now(rig: Rig, action: Callable[[], object]) -> None:
    """As :func:`without_webhooks`, while the process is down: installed again, not waited for."""
    names = "mutatingwebhookconfiguration/vc-egpu", "validatingwebhookconfiguration/vc-egpu"
    rig.cluster.kubectl("delete", *names)
    try:
        wait_until("the API server forgot the webhooks", lambda: not rig.webhooks_stand(), 20)
        action()
    finally:
        rig.install_webhooks()


def _slips() -> Iterator[tuple[str, Json, str]]:
    yield "an ask without a gate", pod("slip", vgpu_h20=1), "needs the gate"
    labelled = pod("slip")
    labelled["metadata"]["labels"] = {"egpu.volcano.sh/managed": "true"}
    yield "a label without a gate", labelled, "needs the gate"
    requested = pod("slip")
    requested["metadata"]["annotations"]["egpu.volcano.sh/request"] = "{}"
    yield "a request without a gate", requested, "needs the gate"
    for key in ("cards", "plan", "suspend"):
        forged = pod("slip")
        forged["metadata"]["annotations"][f"egpu.volcano.sh/{key}"] = "{}"
        forged["metadata"]["annotations"]["egpu.volcano.sh/request"] = "{}"
        forged["metadata"]["labels"] = {"egpu.volcano.sh/managed": "true"}
        forged["spec"]["schedulingGates"] = [{"name": "egpu.volcano.sh/admission"}]
        yield f"forged {key}", forged, "written by the admission layer"

    paused = pod("slip")
    paused["metadata"]["annotations"]["egpu.volcano.sh/pause"] = "true"
    paused["metadata"]["annotations"]["egpu.volcano.sh/request"] = "{}"
    paused["metadata"]["labels"] = {"egpu.volcano.sh/managed": "true"}
    paused["spec"]["schedulingGates"] = [{"name": "egpu.volcano.sh/admission"}]
    yield "a pause from the start", paused, "no pod begins with it"


ANNOTATION = "/metadata/annotations/egpu.volcano.sh~1"
FORBIDDEN_EDITS = {
    "the gate lifted": {"op": "remove", "path": "/spec/schedulingGates"},
    "cards written": {"op": "add", "path": f"{ANNOTATION}cards", "value": "{}"},
    "a plan written": {"op": "add", "path": f"{ANNOTATION}plan", "value": "{}"},
    "suspended by hand": {"op": "add", "path": f"{ANNOTATION}suspend", "value": "{}"},
    "the request changed": {"op": "replace", "path": f"{ANNOTATION}request", "value": "{}"},
    "the class raised": {"op": "add", "path": f"{ANNOTATION}priority", "value": "high"},
    "the label taken off": {"op": "remove", "path": "/metadata/labels/egpu.volcano.sh~1managed"},
    "another group joined": {
        "op": "add",
        "path": "/metadata/annotations/scheduling.k8s.io~1group-name",
        "value": "somebody-elses",
    },
    "another queue": {
        "op": "replace",
        "path": "/metadata/annotations/scheduling.volcano.sh~1queue-name",
        "value": "b",
    },
}


ROUTES = [
    (story, route)
    for story, edit in FORBIDDEN_EDITS.items()
    # The API server itself ignores changes of spec that come through status.
    for route in ((None,) if edit["path"].startswith("/spec") else (None, "status"))
]


@pytest.mark.parametrize(("story", "subresource"), ROUTES)
def test_a_tenant_cannot_change_what_we_wrote(
    rig: Rig, alice: ApiConnection, story: str, subresource: str | None
) -> None:
    _ensure(alice, pod("kept", vgpu_h20=1))
    edit = FORBIDDEN_EDITS[story]
    with pytest.raises(Forbidden, match="vc-egpu-pods-update"):
        alice.patch(PODS, "kept", [edit], NAMESPACE, kind="json", subresource=subresource)
    admission = rig.tenant("vc-egpu-admission", "vc-egpu-system")
    assert admission.patch(PODS, "kept", [edit], NAMESPACE, kind="json", dry_run=True)


def test_who_may_evict_a_pod_may_pause_it_and_nobody_else(rig: Rig, alice: ApiConnection) -> None:
    cards = Cards(pod_uid="x", node="n1", plan_id="1-1", share_class="low", containers={}).encode()
    pause: Json = {"metadata": {"annotations": {"egpu.volcano.sh/pause": "true"}}}
    resume: Json = {"metadata": {"annotations": {"egpu.volcano.sh/pause": None}}}
    admission = rig.tenant("vc-egpu-admission", "vc-egpu-system")
    rig.cluster.kubectl("create", "serviceaccount", "oncall", "-n", NAMESPACE)
    rig.kit.apply(QUEUES_FOLDER / "base" / "roles.yaml")
    rig.cluster.kubectl(
        "create", "rolebinding", "oncall", "-n", NAMESPACE,
        "--clusterrole=vc-egpu-suspend", f"--serviceaccount={NAMESPACE}:oncall",
    )  # fmt: skip
    oncall = rig.tenant("oncall", NAMESPACE)
    for name in ("idle", "trains"):
        _ensure(alice, pod(name, vgpu_h20=1))
    admission.patch(
        PODS, "trains", {"metadata": {"annotations": {"egpu.volcano.sh/cards": cards}}}, NAMESPACE
    )
    wait_until("rights arrived", lambda: _allowed(lambda: oncall.patch(PODS, "trains", pause, NAMESPACE)), 30)
    oncall.patch(PODS, "trains", resume, NAMESPACE)
    for subresource in (None, "status"):
        with pytest.raises(Forbidden, match="pods/eviction"):
            alice.patch(PODS, "trains", pause, NAMESPACE, subresource=subresource)
    with pytest.raises(Forbidden, match="low priority that have their cards"):
        oncall.patch(PODS, "idle", pause, NAMESPACE)
    with pytest.raises(Forbidden, match='is "true" or absent'):
        odd = {"metadata": {"annotations": {"egpu.volcano.sh/pause": "yes"}}}
        oncall.patch(PODS, "trains", odd, NAMESPACE)
    oncall.patch(PODS, "trains", pause, NAMESPACE)
    with pytest.raises(Forbidden, match="pods/eviction"):
        alice.patch(PODS, "trains", resume, NAMESPACE)
    oncall.patch(PODS, "trains", resume, NAMESPACE)


def _allowed(action: Callable[[], object]) -> bool:
    try:
        action()
    except Forbidden:
        return False
    return True


def test_a_tenant_cannot_make_a_plain_pod_look_admitted(alice: ApiConnection) -> None:
    plain = pod("look")
    plain["spec"]["containers"][0]["resources"] = {}
    _ensure(alice, plain)
    edit = {"metadata": {"annotations": {"egpu.volcano.sh/cards": "{}"}}}
    with pytest.raises(Forbidden, match="vc-egpu-pods-update"):
        alice.patch(PODS, "look", edit, NAMESPACE)
    assert alice.patch(PODS, "look", {"metadata": {"annotations": {"note": "mine"}}}, NAMESPACE)


def _ensure(api: ApiConnection, obj: Json) -> None:
    try:
        api.get(PODS, obj["metadata"]["name"], NAMESPACE)
    except KubeError:
        api.create(PODS, obj)


def group(name: str, queue: str = "a", **annotations: str) -> Json:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {f"egpu.volcano.sh/{key}": value for key, value in annotations.items()},
        },
        "spec": {"minMember": 1, "queue": queue, "minResources": {"volcano.sh/vgpu-h20": 1}},
    }


def test_plans_on_pod_groups_are_ours(rig: Rig, alice: ApiConnection) -> None:
    with pytest.raises(Forbidden, match="written by the admission layer"):
        alice.create(POD_GROUPS, group("planned", plan="x"))
    alice.create(POD_GROUPS, group("g"))
    plan = {"metadata": {"annotations": {"egpu.volcano.sh/plan": "x"}}}
    with pytest.raises(Forbidden, match="written by the admission layer"):
        alice.patch(POD_GROUPS, "g", plan, NAMESPACE)
    admission = rig.tenant("vc-egpu-admission", "vc-egpu-system")
    assert admission.patch(POD_GROUPS, "g", plan, NAMESPACE)
    with pytest.raises(Forbidden, match="written by the admission layer"):
        alice.patch(POD_GROUPS, "g", {"metadata": {"annotations": {"egpu.volcano.sh/plan": None}}}, NAMESPACE)
    with pytest.raises(Forbidden, match="needs the RBAC verb"):
        alice.patch(POD_GROUPS, "g", {"spec": {"queue": "b"}}, NAMESPACE)


def test_each_agent_writes_only_its_own_node(rig: Rig) -> None:
    api, cluster = rig.kit.api, rig.cluster
    for name in ("n1", "n2"):
        api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    agent_pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent", "namespace": "vc-egpu-system"},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": "vc-egpu-node-agent",
            "containers": [{"name": "c", "image": "none"}],
        },
    }
    uid = api.create(PODS, agent_pod)["metadata"]["uid"]
    token = cluster.kubectl(
        "create", "token", "vc-egpu-node-agent", "-n", "vc-egpu-system",
        "--bound-object-kind=Pod", "--bound-object-name=agent", f"--bound-object-uid={uid}",
    ).stdout.strip()  # fmt: skip
    agent = rig.with_token(token, "agent")
    unbound = rig.tenant("vc-egpu-node-agent", "vc-egpu-system")
    inventory = {"metadata": {"annotations": {"egpu.volcano.sh/node-cards": "{}"}}}
    assert agent.patch(NODES, "n1", inventory)
    assert agent.patch(NODES, "n1", {"metadata": {"annotations": {"egpu.volcano.sh/node-suspension": "{}"}}})
    with pytest.raises(Forbidden, match="writes only the Node it runs on"):
        agent.patch(NODES, "n2", inventory)
    with pytest.raises(Forbidden, match="writes only the Node it runs on"):
        unbound.patch(NODES, "n1", inventory)
    with pytest.raises(Forbidden, match="not its spec"):
        agent.patch(NODES, "n1", {"spec": {"unschedulable": True}})
    with pytest.raises(Forbidden, match="writes only the Node"):
        agent.delete(NODES, "n1")
    assert agent.patch_status(NODES, "n1", {"status": {"capacity": {"volcano.sh/vgpu-h20-memory": "5"}}})


def test_only_the_agent_writes_the_inventory(rig: Rig) -> None:
    """Operators who may patch Nodes keep labels and cordoned cards, also by way of the status."""
    api, cluster = rig.kit.api, rig.cluster
    cluster.kubectl("create", "serviceaccount", "operator", "-n", NAMESPACE)
    cluster.kubectl("create", "clusterrole", "nodes", "--verb=*", "--resource=nodes,nodes/status")
    cluster.kubectl(
        "create", "clusterrolebinding", "nodes", "--clusterrole=nodes",
        f"--serviceaccount={NAMESPACE}:operator",
    )  # fmt: skip
    operator = rig.tenant("operator", NAMESPACE)

    def node(name: str, **annotations: str) -> Json:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}

    inventory = {"egpu.volcano.sh/node-cards": "{}"}
    with pytest.raises(Forbidden, match="by the node's agent"):
        operator.create(NODES, node("n3", **inventory))
    operator.create(NODES, node("n3"))
    for subresource in ("", "status"):
        with pytest.raises(Forbidden, match="by the node's agent"):
            operator.patch(NODES, "n3", {"metadata": {"annotations": inventory}}, subresource=subresource)
    api.patch(NODES, "n3", {"metadata": {"annotations": inventory}})
    with pytest.raises(Forbidden, match="by the node's agent"):
        operator.patch(NODES, "n3", {"metadata": {"annotations": {"egpu.volcano.sh/node-cards": None}}})
    with pytest.raises(Forbidden, match="by the node's agent"):
        said = {"egpu.volcano.sh/node-suspension": "{}"}
        operator.patch(NODES, "n3", {"metadata": {"annotations": said}})
    theirs = {"annotations": {"egpu.volcano.sh/cordoned-cards": "GPU-0"}, "labels": {"a": "b"}}
    assert operator.patch(NODES, "n3", {"metadata": theirs})
    assert operator.patch(NODES, "n3", {"status": {"capacity": {"a.example/b": "1"}}}, subresource="status")
    operator.delete(NODES, "n3")


def test_a_binding_brings_nothing_of_ours_onto_its_pod(rig: Rig) -> None:
    api, cluster = rig.kit.api, rig.cluster
    path = f"/api/v1/namespaces/{NAMESPACE}"

    def bind(by: ApiConnection, pod: str, where: str, **metadata: Json) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": NAMESPACE, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
        }
        by.request("POST", f"{path}/{where}", body)

    for pod in ("one", "two", "three"):
        container = {"name": "c", "image": "none"}
        metadata = {"name": pod, "namespace": NAMESPACE}
        api.create(
            PODS,
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}},
        )
    forged: Json = {"egpu.volcano.sh/cards": "{}"}
    for where in ("pods/one/binding", "bindings"):
        with pytest.raises(Forbidden, match="a Binding sets none of"):
            bind(api, "one", where, annotations=forged)
        with pytest.raises(Forbidden, match="a Binding sets none of"):
            bind(api, "one", where, labels={"egpu.volcano.sh/managed": "true"})
        with pytest.raises(Forbidden, match=r"nor scheduling\.k8s\.io/group-name"):
            bind(api, "one", where, annotations={"scheduling.k8s.io/group-name": "another"})
        with pytest.raises(Forbidden, match="a Binding sets none of"):
            bind(api, "one", where, labels={"volcano.sh/queue-name": "another"})
    assert not api.get(PODS, "one", NAMESPACE)["spec"].get("nodeName")
    bind(api, "one", "pods/one/binding", annotations={"other.example/a": "b"})
    bind(api, "two", "bindings")
    bound = api.get(PODS, "one", NAMESPACE)
    assert bound["spec"]["nodeName"] == "nowhere"
    assert bound["metadata"]["annotations"]["other.example/a"] == "b"

    # Volcano's scheduler repeats what the pod has.
    cluster.kubectl("create", "namespace", "volcano-system")
    cluster.kubectl("create", "serviceaccount", "volcano-scheduler", "-n", "volcano-system")
    cluster.kubectl("create", "clusterrole", "binder", "--verb=create", "--resource=bindings,pods/binding")
    cluster.kubectl(
        "create", "clusterrolebinding", "binder", "--clusterrole=binder",
        "--serviceaccount=volcano-system:volcano-scheduler",
    )  # fmt: skip
    scheduler = rig.tenant("volcano-scheduler", "volcano-system")
    repeated = {"egpu.volcano.sh/request": "{}", "scheduling.k8s.io/group-name": "theirs"}
    bind(scheduler, "three", "pods/three/binding", annotations=repeated)
    for pod in ("one", "two", "three"):
        api.delete(PODS, pod, NAMESPACE)


# --- certificates -------------------------------------------------------------------------------------


def test_certificates_are_replaced_without_a_restart_and_without_a_failed_review(rig: Rig) -> None:
    """Lifetimes of seconds: the CA is replaced several times while reviews go on."""
    rig.process.stop()
    rig.process.argv = [*rig.process.argv, "--authority-lifetime-s", "24", "--serving-lifetime-s", "12"]
    rig.process.argv[rig.process.argv.index("--tls-interval-s") + 1] = "0.2"
    rig.cluster.kubectl("delete", "secret", "vc-egpu-webhook-tls", "-n", "vc-egpu-system")
    rig.process.start()
    rig.wait_ready()
    served, bundles, reviews = set(), set(), 0
    until = time.monotonic() + 30
    while time.monotonic() < until:
        rig.kit.api.create(PODS, pod(f"during-{reviews}", vgpu_h20=1), dry_run=True)
        reviews += 1
        served.add(_served(rig.port))
        hooks = rig.kit.api.get(MUTATING_WEBHOOKS, "vc-egpu")["webhooks"]
        bundles.add(hooks[0]["clientConfig"]["caBundle"])
    most = max(base64.b64decode(bundle).count(b"BEGIN CERTIFICATE") for bundle in bundles)
    assert len(served) >= 3, f"{len(served)} serving certificates"
    assert len(bundles) >= 3, f"{len(bundles)} bundles"
    assert most >= 2, "the old authority did not stay in the bundle"
    assert reviews > 100


def _served(port: int) -> bytes:
    """The serving certificate as a client sees it, unverified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw, context.wrap_socket(raw) as tls:
        return tls.getpeercert(binary_form=True) or b""
