"""The queue manifests: complete caps, a tenant that may use its own queue and no other, the generator."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from unit.manifests.kustomize import MANIFESTS, REPOSITORY, Json, of_kind, rendered
from vc_egpu.kube.resources import BATCH_JOBS, POD_GROUPS, PODS, REPLICA_SETS, STATEFUL_SETS, VOLCANO_JOBS
from vc_egpu.volcano.api.queue import Queue
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import (
    cores_total_resource,
    memory_total_resource,
    native_resource,
    shared_resource,
)
from vc_egpu.volcano.words.resource_names import classify

TENANTS = ("research", "serving")


def queues() -> dict[str, Json]:
    return {queue["metadata"]["name"]: queue for queue in of_kind(rendered("queues"), "Queue")}


def cluster_rules(group: str) -> list[Json]:
    """Rules that a group has in the whole cluster."""
    objects = rendered("queues")
    roles = {role["metadata"]["name"]: role for role in of_kind(objects, "ClusterRole")}
    return [
        rule
        for binding in of_kind(objects, "ClusterRoleBinding")
        if any(subject["name"] == group for subject in binding["subjects"])
        for rule in roles[binding["roleRef"]["name"]]["rules"]
    ]


def test_queues_are_valid() -> None:
    assert set(queues()) == {"default", *TENANTS}
    for queue in queues().values():
        Queue.parse(queue)


@pytest.mark.parametrize("tenant", TENANTS)
def test_caps_list_every_key_of_every_model_they_name(tenant: str) -> None:
    capability = queues()[tenant]["spec"]["capability"]
    table = ModelTable.from_yaml((MANIFESTS / "base/config/models.yaml").read_text())
    models = {classify(key).model for key in capability}
    assert models <= {model.name for model in table.models}
    spellings = (shared_resource, memory_total_resource, cores_total_resource, native_resource)
    assert set(capability) == {spelling(model) for model in models for spelling in spellings}


def test_default_lets_nobody_onto_a_card() -> None:
    assert "capability" not in queues()["default"]["spec"]
    for role in of_kind(rendered("queues"), "ClusterRole", "Role"):
        for rule in role["rules"]:
            if "queues" in rule["resources"] and "use" in rule["verbs"]:
                assert rule["resourceNames"]
                assert "default" not in rule["resourceNames"]


@pytest.mark.parametrize("tenant", TENANTS)
def test_a_tenant_uses_its_own_queue_and_only_its_admin_edits_it(tenant: str) -> None:
    for group in (f"{tenant}:ml-team", f"{tenant}:admin", f"system:serviceaccounts:{tenant}"):
        used = [r for r in cluster_rules(group) if "queues" in r["resources"] and "use" in r["verbs"]]
        assert [rule["resourceNames"] for rule in used] == [[tenant]]
    edits = {"update", "patch", "set-cap", "delete", "create"}
    for group in (f"{tenant}:ml-team", f"system:serviceaccounts:{tenant}"):
        assert not [r for r in cluster_rules(group) if "queues" in r["resources"] and edits & set(r["verbs"])]
    admin = [
        r for r in cluster_rules(f"{tenant}:admin") if "queues" in r["resources"] and edits & set(r["verbs"])
    ]
    assert [(rule["resourceNames"], set(rule["verbs"]) & edits) for rule in admin] == [
        ([tenant], {"update", "patch"})
    ]


@pytest.mark.parametrize("role", ["vc-egpu-ml-team", "vc-egpu-tenant-admin"])
def test_both_see_all_that_why_looks_at_in_their_namespace(role: str) -> None:
    """A user who cannot see the makers of pods would read of gangs that wait for nothing."""
    roles = {one["metadata"]["name"]: one for one in of_kind(rendered("queues"), "ClusterRole")}
    listed = {
        (group, resource)
        for rule in roles[role]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if {"get", "list"} <= set(rule["verbs"])
    }
    looked_at = (PODS, POD_GROUPS, VOLCANO_JOBS, REPLICA_SETS, STATEFUL_SETS, BATCH_JOBS)
    assert {(one.group, one.plural) for one in looked_at} | {("", "events")} <= listed


def test_high_priority_is_given_to_serving_only() -> None:
    def may(group: str) -> bool:
        return any("priorityclasses" in rule["resources"] for rule in cluster_rules(group))

    assert may("serving:ml-team")
    assert may("system:serviceaccounts:serving")
    assert not may("research:ml-team")
    assert not may("research:admin")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REPOSITORY / "queues", tmp_path / "queues"))


def new_tenant(copy: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([copy / "new-tenant", name], capture_output=True, text=True, check=False)


def test_a_new_tenant_is_complete_and_entered(copy: Path) -> None:
    done = new_tenant(copy, "vision-2")
    assert done.returncode == 0, done.stderr
    assert "tenants/vision-2" in yaml.safe_load((copy / "kustomization.yaml").read_text())["resources"]
    for file in (copy / "tenants" / "vision-2").iterdir():
        assert "TENANT" not in file.read_text()
    queue = yaml.safe_load((copy / "tenants/vision-2/queue.yaml").read_text())
    assert queue["metadata"]["name"] == "vision-2"
    again = new_tenant(copy, "vision-2")
    assert again.returncode == 1
    assert "already there" in again.stderr


@pytest.mark.parametrize(
    "name",
    [
        *("", "Vision", "a/b", "-a", "a-", "9a", "a b", "a&b", "default", "root", "a" * 41),
        # Its namespace would get a tenant's Pod Security level: system pods would not come up any more.
        *("kube-system", "kube-public", "openshift-x", "vc-egpu-system", "volcano-system"),
    ],
)
def test_a_bad_name_changes_nothing(copy: Path, name: str) -> None:
    before = (copy / "kustomization.yaml").read_text()
    assert new_tenant(copy, name).returncode == 2
    assert (copy / "kustomization.yaml").read_text() == before
    assert {path.name for path in (copy / "tenants").iterdir()} == set(TENANTS)
