"""A tenant's objects: caps, rights, quotas without traps, network policies."""

from collections.abc import Iterable
from typing import Any

import pytest
from vc_egpu.tenants.document import API_VERSION, DocumentError, Tenant, parse_document
from vc_egpu.tenants.render import KINDS, as_yaml, objects
from vc_egpu.volcano.api.queue import Queue
from vc_egpu.volcano.codec.queue_limits import QueueLimits
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.resource_names import classify

Json = dict[str, Any]
TABLE = ModelTable.model_validate(
    {"models": [{"name": "h20", "memoryMiB": 97871}, {"name": "t4", "memoryMiB": 15360}]}
)


def tenant(**spec: Any) -> Tenant:
    raw = {"apiVersion": API_VERSION, "kind": "Tenant", "metadata": {"name": "research"}, "spec": spec}
    return parse_document(raw)


def made(table: ModelTable | None = TABLE, **spec: Any) -> list[Json]:
    return objects(tenant(**spec), table)


def named(found: Iterable[Json], kind: str, name: str) -> Json:
    (one,) = [one for one in found if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return one


def test_each_object_has_a_kind_that_we_write_and_the_tenants_label() -> None:
    found = made(models={"h20": {"shares": 1}}, highPods=1, groups={"capSetters": ["ops"]})
    for one in found:
        assert one["metadata"]["labels"][names.TENANT_LABEL] == "research"
        resource = KINDS[one["kind"]]
        assert one["apiVersion"] == resource.api_version
        assert ("namespace" in one["metadata"]) == resource.namespaced
    keys = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(keys) == len(set(keys))


def test_walls_stand_before_rights() -> None:
    kinds = [one["kind"] for one in made(models={"h20": {"shares": 1}})]
    first_right = kinds.index("ClusterRole")
    assert {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy", "Queue"} == set(kinds[:first_right])
    assert set(kinds[first_right:]) == {"ClusterRole", "ClusterRoleBinding", "RoleBinding"}


def test_a_grant_of_shares_alone_is_whole_cards() -> None:
    queue = named(made(models={"h20": {"shares": 3}}), "Queue", "research")
    Queue.parse(queue)
    capability = queue["spec"]["capability"]
    assert {key: capability[key] for key in capability if classify(key).model == "h20"} == {
        "volcano.sh/vgpu-h20": 3,
        "volcano.sh/vgpu-h20-memory": 3 * 97871,
        "volcano.sh/vgpu-h20-cores": 300,
        "volcano.sh/gpu-h20": 0,
    }


def test_models_that_are_not_granted_are_shut() -> None:
    capability = named(made(), "Queue", "research")["spec"]["capability"]
    assert capability == {
        f"volcano.sh/{which}-{model}": 0 for model in ("h20", "t4") for which in ("vgpu", "gpu")
    }


def test_deserved_and_guarantee_name_only_what_is_named() -> None:
    grant = {"shares": 4, "deserved": {"shares": 2, "cores": 150}, "guarantee": {"cards": 1}, "cards": 1}
    spec = named(made(models={"h20": grant}), "Queue", "research")["spec"]
    assert spec["deserved"] == {"volcano.sh/vgpu-h20": 2, "volcano.sh/vgpu-h20-cores": 150}
    assert spec["guarantee"] == {"resource": {"volcano.sh/gpu-h20": 1}}


def test_an_unknown_model_is_refused_with_a_guess() -> None:
    with pytest.raises(DocumentError, match=r"spec\.models\.h2: this model is not known; did you mean h20\?"):
        made(models={"h2": {"shares": 1}})


def test_without_the_table_memory_must_be_named() -> None:
    with pytest.raises(DocumentError, match=r"spec\.models\.h20\.memoryMiB: is missing"):
        made(None, models={"h20": {"shares": 1}})
    queue = named(made(None, models={"h20": {"shares": 1, "memoryMiB": 5}}), "Queue", "research")
    assert queue["spec"]["capability"]["volcano.sh/vgpu-h20-memory"] == 5


def test_the_quota_counts_cards_of_others_under_the_only_name_that_counts() -> None:
    hard = named(made(otherCards={"nvidia.com/gpu": 2}), "ResourceQuota", "tenant")["spec"]["hard"]
    assert hard["requests.nvidia.com/gpu"] == "2"
    others = {key: hard[key] for key in hard if "nvidia.com" in key or "vgpu" in key or "huawei" in key}
    assert {value for key, value in others.items() if key != "requests.nvidia.com/gpu"} == {"0"}
    assert all(key.startswith("requests.") for key in others)
    assert hard["requests.volcano.sh/vgpu-number"] == "0"
    assert hard["count/resourceclaims.resource.k8s.io"] == "0"


def test_no_card_of_ours_stands_in_a_quota() -> None:
    """A quota counts pods that wait: they would starve."""
    hard = named(made(models={"h20": {"shares": 1}}), "ResourceQuota", "tenant")["spec"]["hard"]
    assert not [key for key in hard if classify(key.removeprefix("requests.")).is_managed]


def test_no_card_stands_in_the_limit_range() -> None:
    containers = {"cpu": {"request": "1", "max": "8"}, "memory": {"request": "1Gi", "limit": "4Gi"}}
    (limit,) = named(made(containers=containers), "LimitRange", "tenant")["spec"]["limits"]
    assert limit == {
        "type": "Container",
        "defaultRequest": {"cpu": "1", "memory": "1Gi"},
        "default": {"cpu": "8", "memory": "4Gi"},
        "max": {"cpu": "8"},
    }


@pytest.mark.parametrize(("pods", "bound"), [(0, False), (3, True)])
def test_high_is_counted_and_bound_only_where_it_is_granted(pods: int, *, bound: bool) -> None:
    found = made(highPods=pods)
    assert named(found, "ResourceQuota", "tenant-high")["spec"]["hard"] == {"pods": str(pods)}
    assert any(one["metadata"]["name"] == "vc-egpu-priority-high-research" for one in found) == bound


@pytest.mark.parametrize(
    ("network", "policies"),
    [
        ({}, {"tenant-deny", "tenant-within", "tenant-dns"}),
        ({"profile": "internet"}, {"tenant-deny", "tenant-within", "tenant-dns", "tenant-internet"}),
        ({"profile": "open"}, set()),
        (
            {"to": ["10.9.0.0/16"], "fromNamespaces": ["ingress"]},
            {"tenant-deny", "tenant-within", "tenant-dns", "tenant-to", "tenant-from"},
        ),
    ],
)
def test_each_profile_has_its_policies(network: Json, policies: set[str]) -> None:
    found = {one["metadata"]["name"] for one in made(network=network) if one["kind"] == "NetworkPolicy"}
    assert found == policies


def test_the_internet_is_without_nodes_services_and_metadata() -> None:
    found = made(network={"profile": "internet", "closed": ["203.0.113.0/24", "2001:db8::/32"]})
    (rule,) = named(found, "NetworkPolicy", "tenant-internet")["spec"]["egress"]
    left_out = {block["ipBlock"]["cidr"]: block["ipBlock"]["except"] for block in rule["to"]}
    assert {"169.254.0.0/16", "10.0.0.0/8", "203.0.113.0/24"} <= set(left_out["0.0.0.0/0"])
    assert "2001:db8::/32" in left_out["::/0"]
    assert not [cidr for cidr in left_out["0.0.0.0/0"] if ":" in cidr]


def test_cap_setters_raise_and_nobody_else_does() -> None:
    found = made(groups={"capSetters": ["ops"]})
    raising = [one for one in found if any("set-cap" in rule["verbs"] for rule in one.get("rules", ()))]
    assert [one["metadata"]["name"] for one in raising] == ["queue-research-set-cap"]
    binding = named(found, "ClusterRoleBinding", "queue-research-set-cap")
    assert [subject["name"] for subject in binding["subjects"]] == ["ops"]
    assert not [one for one in made() if any("set-cap" in rule["verbs"] for rule in one.get("rules", ()))]


def test_the_queue_bears_the_limits() -> None:
    queue = named(made(limits={"maxCardsPerPod": 2}), "Queue", "research")
    limits = QueueLimits.decode(queue["metadata"]["annotations"][names.QUEUE_LIMITS])
    assert limits == QueueLimits(max_cards_per_pod=2)
    assert "annotations" not in named(made(), "Queue", "research")["metadata"]


def test_other_names_than_the_tenants_go_through() -> None:
    found = made(namespace="ml-a", queue="shared", podSecurity="restricted")
    namespace = named(found, "Namespace", "ml-a")["metadata"]
    assert namespace["annotations"][names.QUEUE_NAME] == "shared"
    assert namespace["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    role = named(found, "ClusterRole", "queue-shared-use")
    assert role["rules"][0]["resourceNames"] == ["shared"]
    subjects = named(found, "ClusterRoleBinding", "queue-shared-use")["subjects"]
    assert "system:serviceaccounts:ml-a" in [subject["name"] for subject in subjects]


def test_the_file_has_no_references() -> None:
    text = as_yaml(made())
    assert "&id" not in text
    assert "*id" not in text
