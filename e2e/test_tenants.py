"""A tenant on a real API server: objects are taken as rendered, drift is named, removal leaves nothing."""

import contextlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from outcomes.tenants import ROLES
from rigs.webhook import BASE, Rig
from vc_egpu.cli import kubectl
from vc_egpu.kube import resources
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.tenants import document, drift, live, render
from vc_egpu.volcano.words.model_table import ModelTable

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
NAME = "vision"
FULL = {
    "models": {
        "h20": {"shares": 8, "deserved": {"shares": 4}, "guarantee": {"shares": 1}, "cards": 2},
        "a100-80g": {"shares": 4, "memoryMiB": 81920, "cores": 100},
    },
    "groups": {"team": ["people"], "admins": ["leads"], "capSetters": ["ops"]},
    "quota": {
        "cpu": "64",
        "memory": "1Ti",
        "memoryLimits": "2Ti",
        "ephemeralStorage": "4Ti",
        "storage": "9Ti",
    },
    "containers": {"cpu": {"request": "10m", "max": "8"}, "memory": {"request": "16Mi", "limit": "1Gi"}},
    "network": {
        "profile": "internet",
        "fromNamespaces": ["kube-system"],
        "to": ["10.20.0.0/16", "fd00:1::/64"],
        "closed": ["203.0.113.0/24", "2001:db8::/32"],
    },
    "otherCards": {"nvidia.com/gpu": 1, "example.org/card": 2},
    "highPods": 4,
    "limits": {"maxCardsPerPod": 2, "maxMemoryMiBPerCard": 49152, "maxMembersPerGang": 8},
    "podSecurity": "restricted",
    "priority": 5,
}
"""Every field that makes or changes an object."""


class Shell:
    """``kubectl egpu tenant`` as the administrator."""

    def __init__(self, rig: Rig) -> None:
        self._kubeconfig = str(rig.cluster.kubeconfig)

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Exit status and all that was printed."""
        said = io.TextIOWrapper(io.BytesIO(), write_through=True)
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = kubectl.main(["tenant", *arguments, "--kubeconfig", self._kubeconfig])
        said.seek(0)
        return status, said.read()

    def json(self, *arguments: str) -> Any:
        """The answer as a document."""
        return json.loads(self(*arguments, "-o", "json")[1])


@pytest.fixture
def tenant(webhook_rig: Rig) -> Iterator[Shell]:
    """The command, on a cluster with the roles of all tenants and a table of models."""
    webhook_rig.kit.apply(*map(yaml.safe_dump, yaml.safe_load_all(ROLES.read_text())))
    metadata = {"name": "vc-egpu-models", "namespace": "vc-egpu-system"}
    data = {"models.yaml": (BASE / "config" / "models.yaml").read_text()}
    webhook_rig.kit.apply(
        yaml.safe_dump({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    )
    shell = Shell(webhook_rig)
    yield shell
    shell("remove", NAME, "--evict", "--delete-volumes")


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """A document with every field."""
    path = tmp_path / "vision.yaml"
    head = {"apiVersion": document.API_VERSION, "kind": document.KIND, "metadata": {"name": NAME}}
    path.write_text(yaml.safe_dump({**head, "spec": FULL}))
    return path


def left(rig: Rig) -> list[str]:
    """What is there of the tenant."""
    tenant = document.read(f"apiVersion: {document.API_VERSION}\nkind: Tenant\nmetadata: {{name: {NAME}}}")[0]
    return [" ".join(key) for key in live.read(rig.kit.api, tenant, ()).objects]


def test_every_object_is_taken_as_it_is_rendered(webhook_rig: Rig, tenant: Shell, full: Path) -> None:
    status, said = tenant("apply", "-f", str(full))
    assert status == 0, said
    (one,) = document.read(full.read_text())
    table = ModelTable.from_yaml((BASE / "config" / "models.yaml").read_text())
    for wanted in render.objects(one, table):
        kind, namespace, name = drift.key_of(wanted)
        webhook_rig.kit.api.get(render.KINDS[kind], name, namespace or None)
    status, said = tenant("diff", NAME)
    assert status == 0, f"what Kubernetes fills in is no difference: {said}"
    (again,) = tenant.json("apply", "-f", str(full))
    assert {one["outcome"] for one in again["objects"]} == {"unchanged"}


def test_a_new_tenant_in_one_command_and_gone_in_another(webhook_rig: Rig, tenant: Shell) -> None:
    began_s = time.monotonic()
    status, said = tenant("add", NAME, "--model", "h20=4")
    assert status == 0, said
    print(f"tenant add: {time.monotonic() - began_s:.1f} s")
    status, said = tenant("remove", NAME)
    assert status == 0, said
    assert left(webhook_rig) == []
    with pytest.raises(NotFound):
        webhook_rig.kit.api.get(resources.NAMESPACES, NAME)


def test_ten_changes_by_hand_are_named_and_no_other(webhook_rig: Rig, tenant: Shell, full: Path) -> None:
    status, said = tenant("apply", "-f", str(full))
    assert status == 0, said
    api = webhook_rig.kit.api

    def change(resource: resources.Resource, name: str, body: Json, *, inside: bool = True) -> None:
        api.patch(resource, name, body, NAME if inside else None, field_manager="kubectl-edit")

    key = "volcano.sh/vgpu"
    caps = {f"{key}-h20": 99, f"{key}-t4": None, f"{key}-l9": 5}
    change(resources.QUEUES, NAME, {"spec": {"capability": caps}}, inside=False)
    change(
        resources.QUEUES, NAME, {"metadata": {"annotations": {"egpu.volcano.sh/limits": None}}}, inside=False
    )
    label = {"pod-security.kubernetes.io/enforce": "privileged"}
    change(resources.NAMESPACES, NAME, {"metadata": {"labels": label}}, inside=False)
    hard = {"requests.nvidia.com/gpu": "8", "requests.memory": "1024Gi"}  # the second is the same amount
    change(resources.RESOURCE_QUOTAS, "tenant", {"spec": {"hard": hard}})
    change(resources.NETWORK_POLICIES, "tenant-internet", {"spec": {"egress": [{}]}})
    api.delete(resources.NETWORK_POLICIES, "tenant-deny", NAME)
    api.delete(resources.CLUSTER_ROLE_BINDINGS, f"queue-{NAME}-admin")
    metadata = {"name": "own", "namespace": NAME}
    limits = {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}
    api.create(
        resources.LIMIT_RANGES,
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": limits},
    )
    (found,) = tenant.json("diff", NAME)
    named = {f"{one['kind']} {one['name']} {one['path']}".strip() for one in found["differences"]}
    assert named == {
        f'Queue {NAME} spec.capability["{key}-h20"]',
        f'Queue {NAME} spec.capability["{key}-t4"]',
        f'Queue {NAME} spec.capability["{key}-l9"]',
        f'Queue {NAME} metadata.annotations["egpu.volcano.sh/limits"]',
        f'Namespace {NAME} metadata.labels["pod-security.kubernetes.io/enforce"]',
        'ResourceQuota tenant spec.hard["requests.nvidia.com/gpu"]',
        "NetworkPolicy tenant-internet spec.egress[0].to",
        "NetworkPolicy tenant-deny",
        f"ClusterRoleBinding queue-{NAME}-admin",
        "LimitRange own",
    }
    status, said = tenant("apply", "-f", str(full))
    assert status == 1
    assert "--force-conflicts" in said
    status, said = tenant("apply", "-f", str(full), "--force-conflicts")
    assert status == 0, said
    (after,) = tenant.json("diff", NAME)
    assert [one["name"] for one in after["differences"]] == [NAME, "own"], (
        "what others added stays, and is told"
    )


def test_nothing_that_runs_is_taken(webhook_rig: Rig, tenant: Shell) -> None:
    status, said = tenant("add", NAME, "--model", "h20=4")
    assert status == 0, said
    containers = [{"name": "c", "image": "none.example/none:1"}]
    metadata = {"name": "runs", "namespace": NAME}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}}
    webhook_rig.kit.until(
        "the default account is there",
        resources.SERVICE_ACCOUNTS,
        lambda accounts: "default" in accounts,
        namespace=NAME,
    )
    webhook_rig.kit.until(
        "the quotas are counted",
        resources.RESOURCE_QUOTAS,
        lambda quotas: all((one.get("status") or {}).get("hard") for one in quotas.values()),
        namespace=NAME,
    )
    webhook_rig.kit.api.create(resources.PODS, pod)
    status, said = tenant("remove", NAME)
    assert status == 1
    assert "1 pods have not finished: runs" in said
    assert tenant("diff", NAME)[0] == 0, "the door is open again"
    status, said = tenant("remove", NAME, "--evict")
    assert status == 0, said
    assert left(webhook_rig) == []
