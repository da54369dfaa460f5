"""The admission policies on a real API server: what tenants forge is refused, the webhook being up or not."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from localcluster.api import wait_until
from rigs.team import NAMESPACE, Json, ensure, pod
from rigs.webhook import Rig
from stack import webhook
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    CONFIG_MAPS,
    POD_GROUPS,
    PODS,
    VOLCANO_JOBS,
    Resource,
)
from vc_egpu.kube.wire.errors import Forbidden, NotFound, Refused
from vc_egpu.volcano.words.annotations import Cards

QUEUES_FOLDER = Path(__file__).resolve().parents[1] / "queues"
VALIDATING_POLICIES = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
pytestmark = pytest.mark.cluster


def test_policies_type_check(webhook_rig: Rig) -> None:
    for policy in webhook_rig.kit.api.list(VALIDATING_POLICIES).items:
        if policy["metadata"]["name"].startswith("vc-egpu"):
            assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy["status"]


def test_without_the_webhook_no_managed_pod_slips_in(webhook_rig: Rig, alice: ApiConnection) -> None:
    with webhook_rig.webhook_down(), webhook.uninstalled(webhook_rig.cluster.kubectl):
        wait_until("the API server forgot the webhooks", lambda: not webhook.refusal(webhook_rig.kit.api), 20)
        for name, obj, words in _slips():
            with pytest.raises(Forbidden, match=words):
                alice.create(PODS, obj)
                pytest.fail(f"{name} was let in")


def _slips() -> Iterator[tuple[str, Json, str]]:
    yield "an ask without a gate", pod("slip", vgpu_h20=1), "schedulerName vc-egpu or the gate"
    labelled = pod("slip")
    labelled["metadata"]["labels"] = {"egpu.volcano.sh/managed": "true"}
    yield "a label without a gate", labelled, "schedulerName vc-egpu or the gate"
    requested = pod("slip")
    requested["metadata"]["annotations"]["egpu.volcano.sh/request"] = "{}"
    yield "a request without a gate", requested, "schedulerName vc-egpu or the gate"
    for key in ("cards", "plan", "suspend"):
        forged = pod("slip")
        forged["metadata"]["annotations"][f"egpu.volcano.sh/{key}"] = "{}"
        forged["metadata"]["annotations"]["egpu.volcano.sh/request"] = "{}"
        forged["metadata"]["labels"] = {"egpu.volcano.sh/managed": "true"}
        forged["spec"]["schedulingGates"] = [{"name": "egpu.volcano.sh/admission"}]
        yield f"forged {key}", forged, "written by the admission layer"

    for key, value in (("pause", "true"), ("resize", "{}")):
        wished = pod("slip")
        wished["metadata"]["annotations"][f"egpu.volcano.sh/{key}"] = value
        wished["metadata"]["annotations"]["egpu.volcano.sh/request"] = "{}"
        wished["metadata"]["labels"] = {"egpu.volcano.sh/managed": "true"}
        wished["spec"]["schedulingGates"] = [{"name": "egpu.volcano.sh/admission"}]
        yield f"a {key} from the start", wished, "no pod begins with them"


ANNOTATION = "/metadata/annotations/egpu.volcano.sh~1"
GATE_LIFTED = "the gate lifted"
FORBIDDEN_EDITS = {
    GATE_LIFTED: {"op": "remove", "path": "/spec/schedulingGates"},
    "cards written": {"op": "add", "path": f"{ANNOTATION}cards", "value": "{}"},
    "a plan written": {"op": "add", "path": f"{ANNOTATION}plan", "value": "{}"},
    "suspended by hand": {"op": "add", "path": f"{ANNOTATION}suspend", "value": "{}"},
    "suspended in one empty word": {"op": "add", "path": f"{ANNOTATION}suspend", "value": ""},
    "cards of nothing": {"op": "add", "path": f"{ANNOTATION}cards", "value": ""},
    "the request changed": {"op": "replace", "path": f"{ANNOTATION}request", "value": "{}"},
    "the class raised": {"op": "add", "path": f"{ANNOTATION}priority", "value": "high"},
    "the label taken off": {"op": "remove", "path": "/metadata/labels/egpu.volcano.sh~1managed"},
    "another group joined": {
        "op": "add",
        "path": "/metadata/annotations/scheduling.k8s.io~1group-name",
        "value": "somebody-elses",
    },
    "another queue on the label": {
        "op": "add",
        "path": "/metadata/labels/volcano.sh~1queue-name",
        "value": "b",
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
    webhook_rig: Rig, alice: ApiConnection, story: str, subresource: str | None
) -> None:
    gated = story == GATE_LIFTED
    body = pod("kept-gated" if gated else "kept", vgpu_h20=1)
    if gated:  # a scheduler has to look at its claim
        body["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    ensure(alice, body)
    name, edit = body["metadata"]["name"], FORBIDDEN_EDITS[story]
    with pytest.raises(Forbidden, match="vc-egpu-pods-update"):
        alice.patch(PODS, name, [edit], NAMESPACE, kind="json", subresource=subresource)
    admission = webhook_rig.tenant("vc-egpu-admission", "vc-egpu-system")
    assert admission.patch(PODS, name, [edit], NAMESPACE, kind="json", dry_run=True)


def test_the_admission_layer_leaves_pods_of_others_alone(webhook_rig: Rig, alice: ApiConnection) -> None:
    plain = pod("theirs")
    plain["spec"]["containers"][0]["resources"] = {}
    ensure(alice, plain)
    ensure(alice, pod("managed", vgpu_h20=1))
    admission = webhook_rig.tenant("vc-egpu-admission", "vc-egpu-system")
    image: Json = {"spec": {"containers": [{"name": "main", "image": "registry.invalid/other"}]}}
    note: Json = {"metadata": {"annotations": {"note": "ours"}}}
    label: Json = {"metadata": {"labels": {"egpu.volcano.sh/managed": "true"}}}
    for edit in (image, note, label):
        with pytest.raises(Forbidden, match="writes to no pod of others"):
            admission.patch(PODS, "theirs", edit, NAMESPACE, kind="strategic")
    with pytest.raises(Forbidden, match="writes to no pod of others"):
        admission.patch_status(PODS, "theirs", note, NAMESPACE)
    with pytest.raises(Forbidden, match="removes none"):
        admission.delete(PODS, "theirs", NAMESPACE)
    assert admission.patch(PODS, "managed", note, NAMESPACE)
    admission.delete(PODS, "managed", NAMESPACE)
    alice.delete(PODS, "theirs", NAMESPACE)


def test_who_may_evict_a_pod_may_pause_it_and_nobody_else(webhook_rig: Rig, alice: ApiConnection) -> None:
    cards = Cards(pod_uid="x", node="n1", plan_id="1-1", share_class="low", containers={}).encode()
    pause: Json = {"metadata": {"annotations": {"egpu.volcano.sh/pause": "true"}}}
    resume: Json = {"metadata": {"annotations": {"egpu.volcano.sh/pause": None}}}
    admission = webhook_rig.tenant("vc-egpu-admission", "vc-egpu-system")
    webhook_rig.cluster.kubectl("create", "serviceaccount", "oncall", "-n", NAMESPACE)
    webhook_rig.kit.apply(QUEUES_FOLDER / "base" / "roles.yaml")
    webhook_rig.cluster.kubectl(
        "create", "rolebinding", "oncall", "-n", NAMESPACE,
        "--clusterrole=vc-egpu-suspend", f"--serviceaccount={NAMESPACE}:oncall",
    )  # fmt: skip
    oncall = webhook_rig.tenant("oncall", NAMESPACE)
    for name in ("idle", "trains"):
        ensure(alice, pod(name, vgpu_h20=1))
    admission.patch(
        PODS, "trains", {"metadata": {"annotations": {"egpu.volcano.sh/cards": cards}}}, NAMESPACE
    )
    wait_until("rights arrived", lambda: _may(lambda: oncall.patch(PODS, "trains", pause, NAMESPACE)), 30)
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


def test_who_may_update_the_owner_may_wish_for_another_size_and_nobody_else(
    webhook_rig: Rig, alice: ApiConnection
) -> None:
    """A share is what its Job asks for: the one right is not given without the other."""
    kubectl, made = webhook_rig.cluster.kubectl, webhook_rig.kit.api.create
    admission = webhook_rig.tenant("vc-egpu-admission", "vc-egpu-system")
    kubectl("create", "serviceaccount", "sizer", "-n", NAMESPACE)
    webhook_rig.kit.apply(QUEUES_FOLDER / "base" / "roles.yaml")
    account = f"--serviceaccount={NAMESPACE}:sizer"
    kubectl("create", "rolebinding", "sizer", "-n", NAMESPACE, "--clusterrole=vc-egpu-resize", account)
    sizer = webhook_rig.tenant("sizer", NAMESPACE)
    note: Json = {"metadata": {"annotations": {"egpu.volcano.sh/resized": "{}"}}}
    wish: Json = {"metadata": {"annotations": {"egpu.volcano.sh/resize": "{}"}}}
    gone: Json = {"metadata": {"annotations": {"egpu.volcano.sh/resize": None}}}
    long: Json = {"metadata": {"annotations": {"egpu.volcano.sh/resize": "x" * 4097}}}
    cards: Json = {"metadata": {"annotations": {"egpu.volcano.sh/cards": "{}"}}}
    metadata = {"name": "mine", "namespace": NAMESPACE}
    task = {"name": "w", "replicas": 1, "template": {"spec": pod("t")["spec"]}}
    spec = {"queue": "default", "minAvailable": 1, "tasks": [task]}
    job: Json = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": spec}
    # Any kind that no controller of the rig looks after stands for the others.
    config: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    for name, owner in (("of-job", made(VOLCANO_JOBS, job)), ("of-other", made(CONFIG_MAPS, config))):
        body = pod(name, vgpu_h20=1)
        kind = job if name == "of-job" else config
        body["metadata"]["ownerReferences"] = [
            {
                "apiVersion": kind["apiVersion"],
                "kind": kind["kind"],
                "name": "mine",
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
        ensure(webhook_rig.kit.api, body)
    ensure(alice, pod("bare", vgpu_h20=1))
    wait_until("its rights came", lambda: _may(lambda: sizer.patch(PODS, "bare", {}, NAMESPACE)), 30)
    for rights in ("jobs.batch.volcano.sh", "configmaps", "pods"):
        named = () if rights == "pods" else ("--resource-name=mine",)
        words = ("--verb=update", f"--resource={rights}", *named)
        kubectl("create", "role", f"sizer-{rights.partition('.')[0]}", "-n", NAMESPACE, *words)
    for role, name in (("jobs", "of-job"), ("configmaps", "of-other"), ("pods", "bare")):
        admission.patch(PODS, name, cards, NAMESPACE)
        with pytest.raises(Forbidden, match='needs the RBAC verb "update" on what made the pod'):
            sizer.patch(PODS, name, wish, NAMESPACE)
        kubectl("create", "rolebinding", f"sizer-{role}", "-n", NAMESPACE, f"--role=sizer-{role}", account)
        wait_until(
            f"its right on {role} arrived",
            lambda pod=name: _may(lambda: sizer.patch(PODS, pod, wish, NAMESPACE)),  # type: ignore[misc]
            30,
        )
        with pytest.raises(Forbidden, match="has more than 4096 bytes"):
            sizer.patch(PODS, name, long, NAMESPACE)
        with pytest.raises(Forbidden, match="only the admission layer"):
            sizer.patch(PODS, name, note, NAMESPACE)
        admission.patch(PODS, name, gone, NAMESPACE)
    ensure(alice, pod("waits", vgpu_h20=1))
    with pytest.raises(Forbidden, match="is for pods that have their cards"):
        sizer.patch(PODS, "waits", wish, NAMESPACE)
    for key in ("resize", "resized"):
        begun = pod("begun", vgpu_h20=1)
        begun["metadata"]["annotations"][f"egpu.volcano.sh/{key}"] = "{}"
        with pytest.raises((Forbidden, Refused)):
            alice.create(PODS, begun)


def test_who_debugs_a_pod_gets_no_card_by_it_nor_anything_of_ours(
    webhook_rig: Rig, alice: ApiConnection
) -> None:
    """The subresources that came after pods/status: what is debugged and resized stays what it was."""
    api = webhook_rig.kit.api
    ensure(alice, pod("shared", vgpu_h20=1))
    ensure(alice, pod("no-ask"))

    def debug(name: str, container: str, **more: Json) -> Json:
        one = {"name": container, "image": "none", "targetContainerName": "main", **more}
        change: Json = {"spec": {"ephemeralContainers": [one]}}
        return api.patch(PODS, name, change, NAMESPACE, kind="strategic", subresource="ephemeralcontainers")

    privileged: Json = {"securityContext": {"privileged": True}}
    with pytest.raises(Forbidden, match="goes past the limits of a share"):
        debug("shared", "deep", **privileged)
    assert debug("shared", "shallow")["spec"]["ephemeralContainers"]
    assert debug("no-ask", "deep", **privileged)["spec"]["ephemeralContainers"]
    before = api.get(PODS, "shared", NAMESPACE)["metadata"]
    for subresource in ("ephemeralcontainers", "resize"):
        forged: Json = {"metadata": {"annotations": {"egpu.volcano.sh/cards": "{}"}, "labels": {"a": "b"}}}
        with suppress(NotFound):  # there is no resize before 1.32
            api.patch(PODS, "shared", forged, NAMESPACE, subresource=subresource)
        after = api.get(PODS, "shared", NAMESPACE)["metadata"]
        assert [after[key] for key in ("annotations", "labels")] == [
            before[key] for key in ("annotations", "labels")
        ]


def _may(action: Callable[[], object]) -> bool:
    try:
        action()
    except Forbidden:
        return False
    return True


def test_a_tenant_cannot_make_a_plain_pod_look_admitted(alice: ApiConnection) -> None:
    plain = pod("look")
    plain["spec"]["containers"][0]["resources"] = {}
    ensure(alice, plain)
    edit = {"metadata": {"annotations": {"egpu.volcano.sh/cards": "{}"}}}
    with pytest.raises(Forbidden, match="vc-egpu-pods-update"):
        alice.patch(PODS, "look", edit, NAMESPACE)
    for empty in (
        {"annotations": {"egpu.volcano.sh/cards": ""}},
        {"labels": {"egpu.volcano.sh/managed": ""}},
    ):
        with pytest.raises(Forbidden, match="vc-egpu-pods-update"):
            alice.patch(PODS, "look", {"metadata": empty}, NAMESPACE)
    assert alice.patch(PODS, "look", {"metadata": {"annotations": {"note": "mine"}}}, NAMESPACE)


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


def test_plans_on_pod_groups_are_ours(webhook_rig: Rig, alice: ApiConnection) -> None:
    with pytest.raises(Forbidden, match="written by the admission layer"):
        alice.create(POD_GROUPS, group("planned", plan="x"))
    alice.create(POD_GROUPS, group("g"))
    plan = {"metadata": {"annotations": {"egpu.volcano.sh/plan": "x"}}}
    with pytest.raises(Forbidden, match="written by the admission layer"):
        alice.patch(POD_GROUPS, "g", plan, NAMESPACE)
    admission = webhook_rig.tenant("vc-egpu-admission", "vc-egpu-system")
    assert admission.patch(POD_GROUPS, "g", plan, NAMESPACE)
    with pytest.raises(Forbidden, match="written by the admission layer"):
        alice.patch(POD_GROUPS, "g", {"metadata": {"annotations": {"egpu.volcano.sh/plan": None}}}, NAMESPACE)
    with pytest.raises(Forbidden, match="needs the RBAC verb"):
        alice.patch(POD_GROUPS, "g", {"spec": {"queue": "b"}}, NAMESPACE)


def test_a_pod_group_cannot_be_slipped_into_another_queue(webhook_rig: Rig, alice: ApiConnection) -> None:
    """Neither by taking off what makes it ours in the same write, nor by coming before its controller."""
    admission = webhook_rig.tenant("vc-egpu-admission", "vc-egpu-system")
    judged = {"status": {"conditions": [{"type": "egpu.volcano.sh/Admitted", "status": "False"}]}}
    alice.create(POD_GROUPS, group("slips"))
    admission.patch(POD_GROUPS, "slips", judged, NAMESPACE)
    bare: Json = {"spec": {"queue": "b", "minResources": None}, "status": {"conditions": None}}
    with pytest.raises(Forbidden, match="vc-egpu-podgroups"):
        alice.patch(POD_GROUPS, "slips", bare, NAMESPACE)
    with pytest.raises(Forbidden, match="taken off by the admission layer only"):
        alice.patch(POD_GROUPS, "slips", {"status": {"conditions": None}}, NAMESPACE)
    alice.patch(POD_GROUPS, "slips", {"spec": {"minResources": None}}, NAMESPACE)
    with pytest.raises(Forbidden, match="needs the RBAC verb"):
        alice.patch(POD_GROUPS, "slips", {"spec": {"queue": "b"}}, NAMESPACE)
    with pytest.raises(Forbidden, match="needs the RBAC verb"):
        alice.create(POD_GROUPS, group("podgroup-0f0f", queue="b"))
    assert alice.create(POD_GROUPS, group("podgroup-0f0f"))


def test_a_binding_brings_nothing_of_ours_onto_its_pod(webhook_rig: Rig) -> None:
    api, cluster = webhook_rig.kit.api, webhook_rig.cluster
    path = f"/api/v1/namespaces/{NAMESPACE}"

    def bind(by: ApiConnection, name: str, where: str, **metadata: Json) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": NAMESPACE, **metadata},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
        }
        by.request("POST", f"{path}/{where}", body)

    for name in ("one", "two", "three"):
        container = {"name": "c", "image": "none"}
        metadata = {"name": name, "namespace": NAMESPACE}
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
    scheduler = webhook_rig.tenant("volcano-scheduler", "volcano-system")
    repeated = {"egpu.volcano.sh/request": "{}", "scheduling.k8s.io/group-name": "theirs"}
    bind(scheduler, "three", "pods/three/binding", annotations=repeated)
    for name in ("one", "two", "three"):
        api.delete(PODS, name, NAMESPACE)
