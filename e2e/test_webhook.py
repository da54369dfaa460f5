"""The webhook on a real API server: Jobs applied twice, who may what, and its certificates.

What holds although it is down: ``test_policies.py``.
"""

import base64
import copy
import socket
import ssl
import time
from collections.abc import Callable

import pytest
import yaml
from localcluster.api import wait_until
from outcomes import operators
from rigs.gangs import owner_reference
from rigs.team import NAMESPACE, Json, pod
from rigs.webhook import Rig
from stack import webhook
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    BATCH_JOBS,
    COMMANDS,
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    POD_GROUPS,
    PODS,
    QUEUES,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.errors import Forbidden, KubeError

pytestmark = pytest.mark.cluster
REPLACED_TIMEOUT_S = 120.0

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


def version(rig: Rig, name: str) -> object:
    """Of a Job. An API server of 1.30 dates the managed fields of custom resources anew where a webhook took
    back what a client wrote, and changes nothing else: there all else that the Job holds stands for it."""
    found = rig.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
    if rig.cluster.spec.kubernetes != "1.30":
        return found["metadata"]["resourceVersion"]
    dated = {"resourceVersion", "managedFields"}
    return {**found, "metadata": {key: found["metadata"][key] for key in found["metadata"].keys() - dated}}


# --- applied twice -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_applying_the_same_job_twice_leaves_the_same_version(webhook_rig: Rig, how: tuple[str, ...]) -> None:
    name = "twice" + "".join(how).strip("-").replace("-", "")
    manifest = JOB.format(name=name)
    webhook_rig.cluster.kubectl("apply", *how, "-f", "-", text_in=manifest)
    stored = webhook_rig.kit.api.get(VOLCANO_JOBS, name, NAMESPACE)
    resources = stored["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    assert resources["requests"]["volcano.sh/vgpu-h20-memory"] == "4000"
    assert "managedFields" in stored["metadata"], "it is applied again"
    before = version(webhook_rig, name)
    for _ in range(2):
        webhook_rig.cluster.kubectl("apply", *how, "-f", "-", text_in=manifest)
        assert version(webhook_rig, name) == before


def test_a_job_that_is_only_created_carries_no_record_of_who_wrote_what(
    webhook_rig: Rig, alice: ApiConnection
) -> None:
    created = alice.create(VOLCANO_JOBS, yaml.safe_load(JOB.format(name="created")))
    assert "managedFields" not in created["metadata"]
    status = webhook_rig.kit.api.patch_status(VOLCANO_JOBS, "created", {"status": {"running": 1}}, NAMESPACE)
    assert "managedFields" not in status["metadata"], "its controller's writes begin none"
    applied = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    webhook_rig.cluster.kubectl(*applied, text_in=JOB.format(name="created"))
    assert "managedFields" in webhook_rig.kit.api.get(VOLCANO_JOBS, "created", NAMESPACE)["metadata"]


def test_a_bare_pod_can_be_applied_twice(webhook_rig: Rig) -> None:
    manifest = yaml.safe_dump(pod("applied", vgpu_h20=1, vgpu_memory=1000))
    webhook_rig.kit.apply(manifest)
    first = webhook_rig.kit.api.get(PODS, "applied", NAMESPACE)
    webhook_rig.kit.apply(manifest)
    assert webhook_rig.kit.api.get(PODS, "applied", NAMESPACE)["spec"] == first["spec"]
    beside = pod("applied-beside")
    sidecar = {**pod("s", vgpu_h20=1, vgpu_memory=1000)["spec"]["containers"][0], "name": "sidecar"}
    beside["spec"]["initContainers"] = [{**sidecar, "restartPolicy": "Always"}]
    for _ in range(2):
        webhook_rig.kit.apply(yaml.safe_dump(beside))


def test_a_job_older_than_the_webhook_still_scales(webhook_rig: Rig, alice: ApiConnection) -> None:
    api = webhook_rig.kit.api
    hooks = copy.deepcopy(api.get(MUTATING_WEBHOOKS, "vc-egpu"))
    without_webhooks(webhook_rig, lambda: webhook_rig.kit.apply(JOB.format(name="older")))
    old = api.get(VOLCANO_JOBS, "older", NAMESPACE)
    assert "requests" not in old["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    operations = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 3}]
    scaled = alice.patch(VOLCANO_JOBS, "older", operations, NAMESPACE, kind="json")
    old["spec"]["tasks"][0]["replicas"] = 3
    assert scaled["spec"] == old["spec"]
    assert len(api.get(MUTATING_WEBHOOKS, "vc-egpu")["webhooks"]) == len(hooks["webhooks"])


def without_webhooks(webhook_rig: Rig, action: Callable[[], object]) -> None:
    """Do something on a cluster that has no webhook yet, then install it."""
    with webhook.uninstalled(webhook_rig.cluster.kubectl):
        wait_until("the API server forgot the webhooks", lambda: not webhook.answers(webhook_rig.kit.api), 20)
        action()
    webhook_rig.wait_ready()


# --- who may -----------------------------------------------------------------------------------------


def test_alice_uses_her_queue_and_is_told_which_one_it_is(alice: ApiConnection) -> None:
    created = alice.create(PODS, pod("mine", vgpu_h20=1, vgpu_memory_percentage=50))
    assert created["spec"]["schedulerName"] == "vc-egpu"
    assert created["spec"]["priorityClassName"] == "egpu-standard"
    assert created["spec"]["preemptionPolicy"] == "Never"
    other = pod("other", vgpu_h20=1)
    other["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = "b"
    with pytest.raises(Forbidden, match=r"may not use queue 'b'.*you may use: a"):
        alice.create(PODS, other)


def test_leave_that_was_just_given_counts_within_seconds(webhook_rig: Rig, alice: ApiConnection) -> None:
    high = pod("high", vgpu_h20=1)
    high["metadata"]["annotations"]["egpu.volcano.sh/priority"] = "high"
    with pytest.raises(Forbidden, match="egpu-high"):
        alice.create(PODS, high)
    webhook_rig.kit.apply(
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


def test_a_tenant_lowers_its_cap_and_does_not_raise_it(webhook_rig: Rig, alice: ApiConnection) -> None:
    lower = {"spec": {"capability": {"volcano.sh/vgpu-h20": 3}}}
    assert alice.patch(QUEUES, "a", lower)["spec"]["capability"]["volcano.sh/vgpu-h20"] == 3
    with pytest.raises(Forbidden, match=r"3 to 4: service account team-a/alice may not raise.*set-cap"):
        alice.patch(QUEUES, "a", {"spec": {"capability": {"volcano.sh/vgpu-h20": 4}}})
    webhook_rig.kit.api.patch(QUEUES, "a", {"spec": {"capability": {"volcano.sh/vgpu-h20": 4}}})


def test_a_queue_goes_after_those_under_it(webhook_rig: Rig) -> None:
    kit = webhook_rig.kit
    for name, spec in (("upper", {}), ("lower", {"parent": "upper"})):
        queue = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": name}, "spec": spec}
        kit.api.create(QUEUES, queue)

    def known() -> bool:
        tried = kit.kubectl("delete", "queue", "upper", "--dry-run=server", check=False)
        return "queues under it (lower)" in str(tried.stderr)

    wait_until("the webhook knows of the lower one", known, 10)
    with pytest.raises(Forbidden, match=r"queue 'upper' has queues under it \(lower\)"):
        kit.api.delete(QUEUES, "upper")
    kit.kubectl("delete", "queue", "lower", "upper")  # at once, and the webhook's copy is behind


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


def launcher(webhook_rig: Rig, name: str) -> Json:
    """A pod without an ask, of a batch Job that the owner of its PodGroup made; the group asks for cards."""
    api = webhook_rig.kit.api
    owner = operators.owner(name)
    owner["metadata"]["namespace"] = NAMESPACE
    mpi = api.create(CONFIG_MAPS, owner)
    group = operators.group(name, mpi, 2, {"volcano.sh/vgpu-h20": 1}, queue="a")
    group["metadata"]["namespace"] = NAMESPACE
    api.create(POD_GROUPS, group)
    job = operators.batch_job(name, mpi, name)
    job["metadata"]["namespace"] = NAMESPACE
    job["spec"]["suspend"] = True
    found = pod(f"{name}-launcher")
    found["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": name}
    found["metadata"]["ownerReferences"] = [owner_reference(api.create(BATCH_JOBS, job))]
    return found


def test_a_member_without_an_ask_passes_through_the_webhook_while_it_is_there(
    webhook_rig: Rig, alice: ApiConnection
) -> None:
    created = alice.create(PODS, launcher(webhook_rig, "mpi"))
    assert created["spec"]["schedulingGates"] == [{"name": "egpu.volcano.sh/admission"}]
    assert created["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] == "a"
    with webhook_rig.webhook_down():
        assert "schedulingGates" not in alice.create(PODS, launcher(webhook_rig, "mpi-down"))["spec"]


def test_what_is_not_ours_does_not_pass_through_the_webhook(webhook_rig: Rig, alice: ApiConnection) -> None:
    with webhook_rig.webhook_down():
        plain = pod("plain")
        plain["spec"]["containers"][0]["resources"] = {}
        alice.create(PODS, plain)
        alice.create(PODS, pod("volcanos", vgpu_number=1, vgpu_memory=100))
        with pytest.raises(KubeError, match="egpu"):
            alice.create(PODS, pod("managed", vgpu_h20=1))
        # As written with `limits:` and nothing behind it: our own CRD keeps the null.
        empty = {"name": "main", "image": "none.example/none:1", "resources": {"limits": None}}
        job = yaml.safe_load(JOB.format(name="plain"))
        for task in job["spec"]["tasks"]:
            task["template"]["spec"] = {"containers": [empty], "initContainers": None}
        alice.create(VOLCANO_JOBS, job)


# --- certificates -------------------------------------------------------------------------------------


@pytest.mark.long
def test_certificates_are_replaced_without_a_restart_and_without_a_failed_review(webhook_rig: Rig) -> None:
    """Lifetimes of seconds: the CA is replaced several times while reviews go on."""
    webhook_rig.process.stop()
    webhook_rig.process.argv = [
        *webhook_rig.process.argv,
        "--authority-lifetime-s",
        "24",
        "--serving-lifetime-s",
        "12",
    ]
    webhook_rig.process.argv[webhook_rig.process.argv.index("--tls-interval-s") + 1] = "0.2"
    webhook_rig.cluster.kubectl("delete", "secret", "vc-egpu-webhook-tls", "-n", "vc-egpu-system")
    webhook_rig.process.start()
    webhook_rig.wait_ready()
    served: set[bytes] = set()
    bundles: set[bytes] = set()
    most = 0
    deadline = time.monotonic() + REPLACED_TIMEOUT_S
    while len(served) < 3 or len(bundles) < 4:  # no pause: a gap between two certificates would be short
        assert time.monotonic() < deadline, f"{len(served)} serving certificates, {len(bundles)} bundles"
        webhook_rig.kit.api.create(PODS, pod("during", vgpu_h20=1), dry_run=True)
        served.add(_served(webhook_rig.port))
        hooks = webhook_rig.kit.api.get(MUTATING_WEBHOOKS, "vc-egpu")["webhooks"]
        bundle = base64.b64decode(hooks[0]["clientConfig"]["caBundle"])
        bundles.add(bundle)
        most = max(most, bundle.count(b"BEGIN CERTIFICATE"))
    assert most >= 2, "the old authority did not stay in the bundle"


def _served(port: int) -> bytes:
    """The serving certificate as a client sees it, unverified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=5) as raw, context.wrap_socket(raw) as tls:
        return tls.getpeercert(binary_form=True) or b""
