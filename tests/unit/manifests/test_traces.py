"""The component of traces: it reads three kinds of objects, and may send to a collector."""

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, pod_specs
from vc_egpu.traces.main import ENDPOINTS, PORT, endpoint_in, parser

NAME = "vc-egpu-traces"


@pytest.fixture(scope="module")
def objects() -> tuple[Json, ...]:
    return composed("traces")


def test_it_adds_itself_and_changes_nothing(objects: tuple[Json, ...]) -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert {key for key in plain if new.get(key) != plain[key]} == set()
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Deployment", "NetworkPolicy")
    assert set(new) - set(plain) == {(kind, NAME) for kind in kinds}


def test_it_may_read_and_nothing_else(objects: tuple[Json, ...]) -> None:
    (role,) = (one for one in of_kind(objects, "ClusterRole") if one["metadata"]["name"] == NAME)
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    found = sorted(kind for rule in role["rules"] for kind in rule["resources"])
    assert found == ["jobs", "podgroups", "pods"]


def test_it_is_hardened_and_its_flags_are_read(objects: tuple[Json, ...]) -> None:
    spec = pod_specs(objects)[NAME]
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["image"].startswith("egpu.volcano.sh/vc-egpu:")
    process, *flags = container["args"]
    assert process == "traces"
    assert parser().parse_args(flags).port == PORT == container["ports"][0]["containerPort"]


def test_the_network_lets_it_reach_the_collector_that_it_names(objects: tuple[Json, ...]) -> None:
    (container,) = pod_specs(objects)[NAME]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    assert set(environment) <= set(ENDPOINTS)
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "NetworkPolicy")}
    ((rule,),) = (policies[NAME]["egress"],)
    assert endpoint_in(environment).endswith(f":{rule['ports'][0]['port']}")
