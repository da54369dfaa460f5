"""`kubectl egpu tenant` against an API server that knows server-side apply."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.kube.tiny_api import status
from unit.tenants.applying_api import ApplyingApi, applying_api
from vc_egpu.cli import kubectl
from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_OK
from vc_egpu.kube import resources
from vc_egpu.tenants import removal
from vc_egpu.volcano.words import names

Json = dict[str, Any]
DOCUMENT = """
apiVersion: egpu.volcano.sh/v1
kind: Tenant
metadata: {name: research}
spec:
  models: {h20: {shares: 8}}
  quota: {cpu: "64", memory: 1Ti}
  network: {profile: internet}
"""
QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/research"
NAMESPACE = "/api/v1/namespaces/research"
QUOTA = f"{NAMESPACE}/resourcequotas/tenant"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def api() -> Iterator[ApplyingApi]:
    with applying_api() as found:
        yield found


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "research.yaml"
    path.write_text(DOCUMENT)
    return path


class Shell:
    """The command on one cluster, with what it printed last."""

    def __init__(self, api: ApplyingApi, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._kubeconfig = str(api.server.kubeconfig(folder))
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def __call__(self, *arguments: str) -> int:
        status = kubectl.main(["tenant", *arguments, "--kubeconfig", self._kubeconfig])
        self.out, self.err = self._capsys.readouterr()
        return status

    def json(self, *arguments: str) -> Any:
        self(*arguments, "-o", "json")
        return json.loads(self.out)


@pytest.fixture
def tenant(api: ApplyingApi, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(api, tmp_path, capsys)


@pytest.fixture
def applied(api: ApplyingApi, tenant: Shell, document: Path) -> ApplyingApi:
    assert tenant("apply", "-f", str(document)) == EXIT_OK, tenant.err
    return api


def pod(name: str, phase: str = "Running") -> Json:
    return {"metadata": {"name": name, "namespace": "research"}, "status": {"phase": phase}}


def changes(tenant: Shell, *which: str) -> set[str]:
    found = tenant.json("diff", *(which or ("research",)))
    return {
        f"{one['kind']} {one['name']} {one['path']}".strip() for each in found for one in each["differences"]
    }


def test_a_tenant_is_there_after_one_command(api: ApplyingApi, tenant: Shell, tmp_path: Path) -> None:
    saved = tmp_path / "tenants" / "vision.yaml"
    assert tenant("add", "vision", "--model", "h20=4", "--save", str(saved)) == EXIT_OK, tenant.err
    queue = api.objects["/apis/scheduling.volcano.sh/v1beta1/queues/vision"]
    assert queue["spec"]["capability"]["volcano.sh/vgpu-h20-memory"] == 4 * 97871
    assert queue["spec"]["capability"]["volcano.sh/vgpu-t4"] == 0
    assert yaml.safe_load(saved.read_text())["metadata"] == {"name": "vision"}
    assert tenant("diff", "-f", str(saved)) == EXIT_OK
    assert tenant("add", "vision", "--model", "h20=4") == EXIT_FOUND
    assert "Namespace vision is already there" in tenant.err


def test_quotas_that_nobody_counts_are_told(api: ApplyingApi, tenant: Shell, document: Path) -> None:
    """Until they are counted Kubernetes refuses the tenant's first Job."""
    api.counts = False
    assert tenant("apply", "-f", str(document), "--wait-s", "0") == EXIT_FOUND
    assert "its quotas are not counted within 0 s" in tenant.err
    api.edit(
        QUOTA, lambda one: one.update(status={"used": {"pods": "0", "count/jobs.batch.volcano.sh": "0"}})
    )
    high = f"{NAMESPACE}/resourcequotas/tenant-high"
    api.edit(high, lambda one: one.update(status={"used": {"pods": "0"}}))
    assert tenant("apply", "-f", str(document), "--wait-s", "0") == EXIT_OK


def test_a_dry_run_prints_the_document_and_writes_nothing(api: ApplyingApi, tenant: Shell) -> None:
    assert tenant("add", "vision", "--model", "h20=4,cores=50", "--high-pods", "2", "--dry-run") == EXIT_OK
    assert yaml.safe_load(tenant.out)["spec"] == {
        "models": {"h20": {"shares": 4, "cores": 50}},
        "highPods": 2,
    }
    assert api.writes == []


def test_a_fault_anywhere_writes_nothing(api: ApplyingApi, tenant: Shell, document: Path) -> None:
    document.write_text(DOCUMENT + "---" + DOCUMENT.replace("research", "b").replace("h20", "h30"))
    assert tenant("apply", "-f", str(document)) == EXIT_FOUND
    assert "tenant b: spec.models.h30: this model is not known; did you mean h20?" in tenant.err
    assert api.writes == []


def test_applied_twice_changes_nothing(applied: ApplyingApi, tenant: Shell, document: Path) -> None:
    before = json.dumps(applied.objects, sort_keys=True)
    (done,) = tenant.json("apply", "-f", str(document))
    assert {one["outcome"] for one in done["objects"]} == {"unchanged"}
    assert json.dumps(applied.objects, sort_keys=True) == before


def test_without_the_shared_roles_nothing_is_written(api: ApplyingApi, tenant: Shell, document: Path) -> None:
    del api.objects[f"{RBAC}/clusterroles/vc-egpu-ml-team"]
    assert tenant("apply", "-f", str(document)) == EXIT_FOUND
    assert "(vc-egpu-ml-team); apply them first: kubectl apply --server-side -k queues/base" in tenant.err
    assert api.writes == []


def test_ten_changes_by_hand_are_named_and_no_other(applied: ApplyingApi, tenant: Shell) -> None:
    assert tenant("diff", "research") == EXIT_OK, tenant.out

    def on(path: str, *keys: str, value: Any) -> None:
        def change(one: Json) -> None:
            place = one
            for key in keys[:-1]:
                place = place[key]
            if value is None:
                del place[keys[-1]]
            else:
                place[keys[-1]] = value

        applied.edit(path, change)

    on(QUEUE, "spec", "capability", "volcano.sh/vgpu-h20", value=99)
    on(QUEUE, "spec", "capability", "volcano.sh/vgpu-t4", value=None)
    on(QUEUE, "spec", "capability", "volcano.sh/vgpu-l4", value=5)
    on(NAMESPACE, "metadata", "labels", "pod-security.kubernetes.io/enforce", value="privileged")
    on(QUOTA, "spec", "hard", "requests.nvidia.com/gpu", value="8")
    on(QUOTA, "spec", "hard", "requests.memory", value="1024Gi")  # the same amount: no difference
    team = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "other"}
    binding = f"{RBAC}/clusterrolebindings/queue-research-use"
    on(binding, "subjects", value=[team, *applied.objects[binding]["subjects"]])
    policies = f"/apis/networking.k8s.io/v1{NAMESPACE.removeprefix('/api/v1')}/networkpolicies"
    del applied.objects[f"{policies}/tenant-deny"]
    on(f"{policies}/tenant-internet", "spec", "egress", value=[{}])
    applied.put(resources.LIMIT_RANGES, {"metadata": {"name": "cards", "namespace": "research"}, "spec": {}})
    on(f"{RBAC}/clusterroles/queue-research-admin", "rules", value=[])
    assert tenant("diff", "research") == EXIT_FOUND
    assert "10 differences" in tenant.out
    assert changes(tenant) == {
        'Queue research spec.capability["volcano.sh/vgpu-h20"]',
        'Queue research spec.capability["volcano.sh/vgpu-t4"]',
        'Queue research spec.capability["volcano.sh/vgpu-l4"]',
        'Namespace research metadata.labels["pod-security.kubernetes.io/enforce"]',
        'ResourceQuota tenant spec.hard["requests.nvidia.com/gpu"]',
        "ClusterRoleBinding queue-research-use subjects[0]",
        "NetworkPolicy tenant-deny",
        "NetworkPolicy tenant-internet spec.egress[0].to",
        "LimitRange cards",
        "ClusterRole queue-research-admin rules[0]",
    }


def test_a_change_by_hand_stops_apply_until_it_is_forced(
    applied: ApplyingApi, tenant: Shell, document: Path
) -> None:
    applied.edit(QUEUE, lambda one: one["spec"]["capability"].update({"volcano.sh/vgpu-h20": 2}))
    before = len(applied.writes)
    assert tenant("apply", "-f", str(document)) == EXIT_FOUND
    assert "nothing was written" in tenant.err
    assert "spec.capability.volcano.sh/vgpu-h20" in tenant.err
    assert "--force-conflicts" in tenant.err
    assert len(applied.writes) == before
    assert tenant("apply", "-f", str(document), "--force-conflicts") == EXIT_OK
    assert applied.objects[QUEUE]["spec"]["capability"]["volcano.sh/vgpu-h20"] == 8


def test_what_a_document_names_no_more_goes(applied: ApplyingApi, tenant: Shell, document: Path) -> None:
    high = f"{RBAC}/clusterrolebindings/vc-egpu-priority-high-research"
    document.write_text(DOCUMENT + "  highPods: 3\n")
    assert tenant("apply", "-f", str(document)) == EXIT_OK, tenant.err
    assert high in applied.objects
    document.write_text(DOCUMENT.replace("profile: internet", "profile: open").replace('cpu: "64", ', ""))
    assert tenant("apply", "-f", str(document)) == EXIT_OK, tenant.err
    assert high not in applied.objects
    assert not [path for path in applied.objects if "networkpolicies" in path]
    assert "requests.cpu" not in applied.objects[QUOTA]["spec"]["hard"]
    assert tenant("diff", "-f", str(document)) == EXIT_OK, tenant.out


def test_what_others_made_in_the_namespace_stays(applied: ApplyingApi, tenant: Shell, document: Path) -> None:
    metadata = {"name": "mine", "namespace": "research", "labels": {names.TENANT_LABEL: "research"}}
    path = applied.put(resources.NETWORK_POLICIES, {"metadata": metadata, "spec": {}})
    assert tenant("apply", "-f", str(document)) == EXIT_OK
    assert path in applied.objects
    assert changes(tenant) == {"NetworkPolicy mine"}


def test_a_namespace_of_another_tenant_is_not_taken(
    applied: ApplyingApi, tenant: Shell, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    text = DOCUMENT.replace("{name: research}", "{name: b}")
    other.write_text(text.replace("spec:", "spec:\n  namespace: research"))
    before = len(applied.writes)
    assert tenant("apply", "-f", str(other)) == EXIT_FOUND
    assert "Namespace research belongs to tenant 'research'" in tenant.err
    assert len(applied.writes) == before


def test_a_parent_that_is_not_there_is_refused(api: ApplyingApi, tenant: Shell, tmp_path: Path) -> None:
    assert tenant("add", "vision", "--parent", "all") == EXIT_FOUND
    assert "spec.parent: queue 'all' does not exist" in tenant.err
    assert api.writes == []


def test_parents_are_made_before_what_hangs_below(api: ApplyingApi, tenant: Shell, document: Path) -> None:
    below = DOCUMENT.replace("{name: research}", "{name: a}").replace("spec:", "spec:\n  parent: research")
    document.write_text(below + "---" + DOCUMENT)
    assert tenant("apply", "-f", str(document)) == EXIT_OK, tenant.err


def test_an_outage_in_the_middle_says_how_far_it_came(
    api: ApplyingApi, tenant: Shell, document: Path
) -> None:
    def refuse(method: str, address: str, _: Any) -> tuple[int, Json] | None:
        late = "clusterroles" in address and "dryRun" not in address
        return (500, status(500, "InternalError", "no webhook")) if late else None

    api.refuse = refuse
    assert tenant("apply", "-f", str(document)) != EXIT_OK
    assert "ClusterRole queue-research-use" in tenant.err
    assert "written before it: Namespace research" in tenant.err
    api.refuse = lambda *_: None
    assert tenant("apply", "-f", str(document)) == EXIT_OK, tenant.err
    assert tenant("diff", "-f", str(document)) == EXIT_OK


def test_show_tells_the_document_and_what_is_used(applied: ApplyingApi, tenant: Shell) -> None:
    applied.edit(QUOTA, lambda one: one.update(status={"hard": {"pods": "500"}, "used": {"pods": "7"}}))
    applied.put(resources.PODS, pod("train-0"))
    assert tenant("show", "research") == EXIT_OK
    assert "profile: internet" in tenant.out
    assert "1 pods have not finished: train-0" in tenant.out
    (row,) = tenant.json("show")
    assert row["quota"]["pods"] == {"hard": "500", "used": "7"}
    assert row["differences"] == 0
    assert tenant("show", "resaerch") == EXIT_FOUND
    assert "there are research" in tenant.err


def test_a_document_is_compared_by_name_or_by_file_and_not_by_both(
    applied: ApplyingApi, tenant: Shell
) -> None:
    assert tenant("diff") == EXIT_FOUND
    assert "name a tenant, or a file with -f" in tenant.err


# --- removal -----------------------------------------------------------------------------------------


def test_an_empty_tenant_leaves_nothing(applied: ApplyingApi, tenant: Shell) -> None:
    applied.put(resources.PODS, pod("done", "Succeeded"))
    assert tenant("remove", "research") == EXIT_OK, tenant.err
    assert not [path for path in applied.objects if "research" in path]
    assert f"{RBAC}/clusterroles/vc-egpu-ml-team" in applied.objects


def test_nothing_that_runs_is_taken(applied: ApplyingApi, tenant: Shell) -> None:
    applied.put(resources.PODS, pod("train-0"))
    before = json.dumps(applied.objects, sort_keys=True)
    assert tenant("remove", "research") == EXIT_FOUND
    assert "nothing was taken away (--evict ends what runs)" in tenant.err
    assert "1 pods have not finished: train-0" in tenant.err
    assert json.dumps(applied.objects, sort_keys=True) == before
    assert tenant("remove", "research", "--evict") == EXIT_OK, tenant.err
    assert not [path for path in applied.objects if "research" in path]


def test_data_is_kept_unless_it_is_named(applied: ApplyingApi, tenant: Shell) -> None:
    metadata = {"name": "data", "namespace": "research"}
    applied.put(resources.PERSISTENT_VOLUME_CLAIMS, {"metadata": metadata})
    assert tenant("remove", "research", "--evict") == EXIT_FOUND
    assert "1 PersistentVolumeClaims hold data: data" in tenant.err
    assert tenant("remove", "research", "--delete-volumes") == EXIT_OK


def test_a_job_that_comes_while_the_door_closes_keeps_the_tenant(applied: ApplyingApi, tenant: Shell) -> None:
    """It came between the look and the deletion; the binding is there again, so its pods go on."""

    def late(method: str, address: str, _: Any) -> None:
        if method == "DELETE" and "clusterrolebindings" in address:
            applied.put(resources.PODS, pod("late"))

    applied.refuse = late
    assert tenant("remove", "research") == EXIT_FOUND
    assert "late" in tenant.err
    assert tenant("diff", "research") == EXIT_OK, tenant.out


@pytest.mark.parametrize("which", ["queue", "gang"])
def test_what_hangs_on_its_queue_keeps_it_even_from_evict(
    which: str, applied: ApplyingApi, tenant: Shell
) -> None:
    if which == "queue":
        applied.put(resources.QUEUES, {"metadata": {"name": "child"}, "spec": {"parent": "research"}})
    else:
        metadata = {"name": "g", "namespace": "elsewhere"}
        applied.put(resources.POD_GROUPS, {"metadata": metadata, "spec": {"queue": "research"}})
    assert tenant("remove", "research", "--evict") == EXIT_FOUND
    assert "empty its queue first" in tenant.err
    assert QUEUE in applied.objects


def test_a_namespace_that_does_not_go_is_told_with_what_holds_it(
    applied: ApplyingApi, tenant: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "POLL_S", 0.01)
    stuck = pod("stuck")
    stuck["metadata"]["finalizers"] = ["example.org/keep"]
    applied.put(resources.PODS, stuck)

    def refuse(method: str, address: str, _: Any) -> tuple[int, Json] | None:
        return (200, {}) if method == "DELETE" and address.startswith(NAMESPACE) else None

    applied.refuse = refuse
    assert tenant("remove", "research", "--evict", "--wait-s", "0.05") == EXIT_FOUND
    assert "left: pod stuck is still there (finalizers example.org/keep)" in tenant.out
    assert "left: namespace research is still going" in tenant.out
    assert QUEUE in applied.objects
