"""The queue manifests: complete caps, a tenant that may use its own queue and no other, rendered files."""

from pathlib import Path

import pytest
import yaml
from unit.manifests.kustomize import MANIFESTS, REPOSITORY, Json, of_kind, rendered
from vc_egpu.cli import kubectl
from vc_egpu.kube.resources import BATCH_JOBS, POD_GROUPS, PODS, REPLICA_SETS, STATEFUL_SETS, VOLCANO_JOBS
from vc_egpu.tenants import document, render
from vc_egpu.volcano.api.queue import Queue
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import (
    cores_total_resource,
    memory_total_resource,
    native_resource,
    shared_resource,
)

TENANTS = ("research", "serving")
DOCUMENTS = REPOSITORY / "queues" / "tenants"
MODELS = MANIFESTS / "base/config/models.yaml"
SPELLINGS = (shared_resource, memory_total_resource, cores_total_resource, native_resource)


def table() -> ModelTable:
    return ModelTable.from_yaml(MODELS.read_text())


def tenant(name: str) -> document.Tenant:
    (found,) = document.read((DOCUMENTS / f"{name}.yaml").read_text(), name)
    return found


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


@pytest.mark.parametrize("name", TENANTS)
def test_caps_list_every_key_of_granted_models_and_shut_all_others(name: str) -> None:
    capability = queues()[name]["spec"]["capability"]
    granted = tenant(name).spec.models
    for model in table().models:
        if model.name in granted:
            assert {spelling(model.name) for spelling in SPELLINGS} <= set(capability)
        else:
            assert capability[shared_resource(model.name)] == capability[native_resource(model.name)] == 0


def test_default_lets_nobody_onto_a_card() -> None:
    assert "capability" not in queues()["default"]["spec"]
    for role in of_kind(rendered("queues"), "ClusterRole", "Role"):
        for rule in role["rules"]:
            if "queues" in rule["resources"] and "use" in rule["verbs"]:
                assert rule["resourceNames"]
                assert "default" not in rule["resourceNames"]


@pytest.mark.parametrize("name", TENANTS)
def test_a_tenant_uses_its_own_queue_and_only_its_admin_edits_it(name: str) -> None:
    for group in (f"{name}:ml-team", f"{name}:admin", f"system:serviceaccounts:{name}"):
        used = [r for r in cluster_rules(group) if "queues" in r["resources"] and "use" in r["verbs"]]
        assert [rule["resourceNames"] for rule in used] == [[name]]
    edits = {"update", "patch", "set-cap", "delete", "create"}
    for group in (f"{name}:ml-team", f"system:serviceaccounts:{name}"):
        assert not [r for r in cluster_rules(group) if "queues" in r["resources"] and edits & set(r["verbs"])]
    admin = [
        r for r in cluster_rules(f"{name}:admin") if "queues" in r["resources"] and edits & set(r["verbs"])
    ]
    assert [(rule["resourceNames"], set(rule["verbs"]) & edits) for rule in admin] == [
        ([name], {"update", "patch"})
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


def test_what_is_rendered_is_what_the_documents_say() -> None:
    """Somebody edited a document and did not render it, or edited what is rendered."""
    wanted = [one for name in TENANTS for one in render.objects(tenant(name), table())]
    found = [one for one in rendered("queues") if "egpu.volcano.sh/tenant" in _labels(one)]

    def key(one: Json) -> tuple[str, str, str]:
        return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]

    assert sorted(map(key, found)) == sorted(map(key, wanted))
    by_key = {key(one): one for one in found}
    for one in wanted:
        assert by_key[key(one)] == one, key(one)


def _labels(one: Json) -> Json:
    labels: Json = one["metadata"].get("labels") or {}
    return labels


def test_every_role_that_tenants_bind_is_there() -> None:
    present = {one["metadata"]["name"] for one in of_kind(rendered("queues"), "ClusterRole")}
    bound = {
        one["roleRef"]["name"] for one in of_kind(rendered("queues"), "ClusterRoleBinding", "RoleBinding")
    }
    assert bound <= present


def test_a_gitops_repository_renders_documents_into_a_component(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page says it, with a document more than ours."""
    folder = tmp_path / "tenants"
    folder.mkdir()
    text = (DOCUMENTS / "research.yaml").read_text()
    (folder / "vision.yaml").write_text(text.replace("name: research", "name: vision"))
    into = tmp_path / "rendered"
    command = ["tenant", "render", "-f", str(folder), "--models", str(MODELS), "--into", str(into)]
    assert kubectl.main(command) == 0
    assert "1 tenants" in capsys.readouterr().out
    component = yaml.safe_load((into / "kustomization.yaml").read_text())
    assert component["kind"] == "Component"
    assert component["resources"] == ["vision.yaml"]
    made = list(yaml.safe_load_all((into / "vision.yaml").read_text()))
    assert made == render.objects(document.read((folder / "vision.yaml").read_text())[0], table())
