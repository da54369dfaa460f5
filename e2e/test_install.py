"""Install, change a setting, remove: by the commands of docs/operator.md, on a cluster of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import urllib3
import yaml
from localcluster import ClusterSpec, LocalCluster
from stack.identity import service_account_kubeconfig
from stack.install import NAMESPACE, OVERLAY, Stack, stack_images
from stack.kit import Json, phase
from stack.removal import CLUSTER_WIDE, OURS, gated, left_on_hosts, listed, of_ours, remove
from vc_egpu.kube.resources import CORE_EVENTS, NODES, POD_GROUPS, PODS, VOLCANO_JOBS, Resource
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.words import names
from volcano.processes import Volcano, VolcanoProcesses

REPOSITORY = Path(__file__).resolve().parents[1]
FLOW_SCHEMAS = Resource("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "FlowSchema", namespaced=False)
pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def installed() -> Iterator[Stack]:
    """A stack that this module may remove; not the shared one."""
    with LocalCluster.up(ClusterSpec(name="install", images=stack_images()), print) as cluster:
        before = json.loads(Stack.of(cluster).egpu("doctor", "-o", "json"))
        assert before["verdict"] != "fail", before["findings"]
        assert any("not installed here" in finding["text"] for finding in before["findings"])
        yield Stack.install(cluster, say=print)


def test_doctor_finds_the_installed_stack_well(installed: Stack) -> None:
    """All is well but for what the overlay ``local`` chose: it holds nothing, and that is said."""
    told = json.loads(installed.egpu("doctor", "-o", "json"))
    found = [one["text"] for one in told["findings"] if one["level"] != "ok"]
    assert found == ["nothing keeps containers to their memory on install-node-0, install-node-1"]
    assert told["verdict"] == "warn"


def test_applying_again_changes_nothing(installed: Stack) -> None:
    def versions() -> dict[str, str]:
        done = installed.kit.kubectl("get", f"{CLUSTER_WIDE},crd", "-o", "json")
        whole = json.loads(done.stdout)["items"]
        return {
            # A generation counts changes of the spec; a status may be written by others meanwhile.
            f"{d['kind']}/{d['metadata']['name']}": str(
                d["metadata"].get("generation") or d["metadata"]["resourceVersion"]
            )
            for d in whole
            if any(word in d["metadata"]["name"] for word in (*OURS, "volcano.sh"))
        }

    before = versions()
    assert len(before) > 10
    installed.kit.kubectl("apply", "--server-side", "-k", str(OVERLAY))
    assert versions() == before


def test_the_agent_s_rights_end_at_its_own_node(installed: Stack) -> None:
    """Also from inside: the namespace takes no pod that is not as tight as ours."""
    refused = installed.kit.refused(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "intruder", "namespace": NAMESPACE},
            "spec": {
                "serviceAccountName": "vc-egpu-node-agent",
                "containers": [{"name": "c", "image": "vc-egpu.local/busybox:1"}],
                "volumes": [{"name": "host", "hostPath": {"path": "/"}}],
            },
        }
    )
    assert "vc-egpu-system-pods" in refused


def test_no_container_beside_ours_may_be_root_where_its_pod_says_otherwise(installed: Stack) -> None:
    tight = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "rooted", "namespace": NAMESPACE},
        "spec": {
            "securityContext": {"runAsNonRoot": True},
            "containers": [
                {
                    "name": "c",
                    "image": "vc-egpu.local/busybox:1",
                    "securityContext": {**tight, "runAsNonRoot": False, "runAsUser": 0},
                }
            ],
        },
    }
    assert "run as non-root" in installed.kit.refused(body)


@pytest.mark.parametrize(
    ("account", "path", "schema"),
    [
        (
            "admission",
            f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/vc-egpu-admission",
            "vc-egpu-leases",
        ),
        ("admission", "/api/v1/nodes", "vc-egpu"),
        ("webhook", "/api/v1/namespaces", "vc-egpu"),
        ("node-agent", "/api/v1/nodes", "service-accounts"),
    ],
)
def test_at_a_busy_api_server_controllers_do_not_stand_with_everybody(
    installed: Stack, account: str, path: str, schema: str
) -> None:
    config = yaml.safe_load(
        service_account_kubeconfig(installed.cluster, NAMESPACE, f"vc-egpu-{account}").read_text()
    )
    cluster = config["clusters"][0]["cluster"]
    answer = urllib3.PoolManager(ca_certs=cluster["certificate-authority"]).request(
        "GET",
        cluster["server"] + path,
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
    )
    names_of = {
        found["metadata"]["uid"]: found["metadata"]["name"]
        for found in installed.kit.api.list(FLOW_SCHEMAS).items
    }
    assert names_of[answer.headers["X-Kubernetes-PF-FlowSchema-UID"]] == schema


def test_queues_apply_and_default_lets_nobody_in(installed: Stack) -> None:
    installed.kit.kubectl("apply", "--server-side", "-k", str(REPOSITORY / "queues"))

    def may(user: str, group: str, verb: str, what: str) -> bool:
        done = installed.kit.kubectl(
            "auth", "can-i", verb, what, f"--as={user}", f"--as-group={group}", check=False
        )
        return str(done.stdout).strip() == "yes"

    queue = "queues.scheduling.volcano.sh"
    assert may("ada", "research:ml-team", "use", f"{queue}/research")
    assert not may("ada", "research:ml-team", "use", f"{queue}/serving")
    assert not may("ada", "research:ml-team", "use", f"{queue}/default")
    assert not may("ada", "research:ml-team", "update", f"{queue}/research")
    assert may("bob", "research:admin", "update", f"{queue}/research")
    assert not may("bob", "research:admin", "set-cap", f"{queue}/research")
    assert not may("ada", "research:ml-team", "use", "priorityclasses.scheduling.k8s.io/egpu-high")
    assert may("eve", "serving:ml-team", "use", "priorityclasses.scheduling.k8s.io/egpu-high")


def test_removal_leaves_nothing_and_no_pod_stuck(installed: Stack) -> None:
    """One gang runs and one waits at the gate when the operator removes everything."""
    installed.kit.kubectl("apply", "-f", str(REPOSITORY / "manifests/monitoring/access.yaml"))
    folder = str(REPOSITORY / "manifests/examples/cap-waits")
    for step in (0, 1, 2):
        installed.kit.kubectl("apply", "-k", folder, "-l", f"egpu-example/step={step}")
    installed.kit.pods_until(
        "one gang runs, one waits",
        "ex-cap-waits",
        lambda pods: sorted(map(phase, pods.values())) == ["Pending"] * 4 + ["Running"] * 4,
    )
    bare = _deployment(installed)

    for attempt in (1, 2):  # a second run finds nothing to do
        done = remove(installed, "local")
        assert done.returncode == 0, f"attempt {attempt}: {done.stdout}\n{done.stderr}"

    assert of_ours(listed(installed, CLUSTER_WIDE)) <= {
        # the operator's own tenants, from queues/
        "ClusterRole/vc-egpu-ml-team", "ClusterRole/vc-egpu-tenant-admin", "ClusterRole/vc-egpu-viewer",
        "ClusterRole/vc-egpu-priority-high", "ClusterRole/vc-egpu-suspend",
        "ClusterRole/vc-egpu-resize",
        "ClusterRoleBinding/vc-egpu-viewer-research",
        "ClusterRoleBinding/vc-egpu-viewer-serving", "ClusterRoleBinding/vc-egpu-priority-high-serving",
    }  # fmt: skip
    assert not [name for name in listed(installed, "crd") if "volcano.sh" in name]
    assert f"Namespace/{NAMESPACE}" not in listed(installed, "namespaces")
    for node in installed.kit.api.list(NODES).items:
        assert names.NODE_CARDS not in (node["metadata"].get("annotations") or {})
        assert not [label for label in node["metadata"]["labels"] if "egpu.volcano.sh" in label]
        offered = node["status"]["allocatable"]
        assert {k: v for k, v in offered.items() if "volcano.sh" in k and str(v) != "0"} == {}
    assert left_on_hosts(installed) == []

    assert gated(installed) == []
    assert bare["metadata"]["uid"] == _running_pod(installed)["metadata"]["uid"], "what ran goes on"
    with pytest.raises(NotFound):
        installed.kit.api.get(VOLCANO_JOBS, "train-a", "ex-cap-waits")


@pytest.mark.volcano
@pytest.mark.timeout(600)
def test_removal_leaves_volcano_and_its_jobs(volcano: Volcano) -> None:
    """Volcano's CRDs, Jobs and running pods stay; plans come off the PodGroups, gates off the pods."""
    with LocalCluster.up(ClusterSpec(name="install-v", images=stack_images()), print) as cluster:
        volcano.install_crds(cluster)
        VolcanoProcesses.of(cluster, volcano, "own").start()
        stack = Stack.install(cluster, overlay=REPOSITORY / "e2e/volcano/overlay", say=print)
        folder = str(REPOSITORY / "manifests/examples/cap-waits")
        for step in (0, 1, 2):
            stack.kit.kubectl("apply", "-k", folder, "-l", f"egpu-example/step={step}")
        stack.kit.pods_until(
            "one gang runs, one waits",
            "ex-cap-waits",
            lambda pods: sorted(map(phase, pods.values())) == ["Pending"] * 4 + ["Running"] * 4,
        )
        done = remove(stack, str(REPOSITORY / "e2e/volcano/overlay"))
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        assert gated(stack) == []
        phases = sorted(phase(pod) for pod in stack.kit.api.list(PODS, "ex-cap-waits").items)
        assert phases == ["Pending"] * 4 + ["Running"] * 4
        for group in stack.kit.api.list(POD_GROUPS).items:
            assert names.PLAN not in (group["metadata"].get("annotations") or {})
        assert stack.kit.api.get(VOLCANO_JOBS, "train-a", "ex-cap-waits")
        assert of_ours(listed(stack, CLUSTER_WIDE)) == set()


LIMITED = """
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
  - name: ResourceQuota
    configuration:
      apiVersion: apiserver.config.k8s.io/v1
      kind: ResourceQuotaConfiguration
      limitedResources:
        - resource: pods
          matchScopes:
            - scopeName: PriorityClass
              operator: In
              values: [system-node-critical, system-cluster-critical]
"""


def test_where_critical_classes_are_limited_a_component_gives_leave(tmp_path: Path) -> None:
    """As on GKE: without it the API server refuses every pod of ours."""
    config = tmp_path / "admission.yaml"
    config.write_text(LIMITED)
    flags = {"kube-apiserver": (f"--admission-control-config-file={config}",)}
    spec = ClusterSpec(name="critical", images=stack_images(), extra_args=flags)
    (REPOSITORY / "build").mkdir(exist_ok=True)
    with (
        TemporaryDirectory(prefix="critical-", dir=REPOSITORY / "build") as folder,
        LocalCluster.up(spec, print) as cluster,
    ):
        Path(folder, "kustomization.yaml").write_text(
            "resources: [../../manifests/overlays/local]\n"
            "components: [../../manifests/components/critical-quota]\n"
        )
        cluster.kubectl("apply", "--server-side", "-k", str(OVERLAY))
        Stack.of(cluster).kit.until(
            "no pod of ours comes",
            CORE_EVENTS,
            lambda events: any("insufficient quota" in event["message"] for event in events.values()),
            namespace=NAMESPACE,
        )
        Stack.install(cluster, overlay=Path(folder), say=print)


def _deployment(stack: Stack) -> Json:
    folder = str(REPOSITORY / "manifests/examples/deployment")
    for step in (0, 1):
        stack.kit.kubectl("apply", "-k", folder, "-l", f"egpu-example/step={step}")
    stack.kit.pods_until(
        "the replicas run", "ex-deployment", lambda pods: [phase(p) for p in pods.values()] == ["Running"] * 3
    )
    return _running_pod(stack)


def _running_pod(stack: Stack) -> Json:
    pods = stack.kit.api.list(PODS, "ex-deployment").items
    return min(pods, key=lambda pod: str(pod["metadata"]["name"]))
