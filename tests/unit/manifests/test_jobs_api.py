"""The component of Jobs over HTTP: no rights, no token, hardened like the rest."""

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, pod_specs
from vc_egpu.jobsapi.catalogue import Catalogue, shipped
from vc_egpu.jobsapi.settings import CATALOGUE, METRICS_PORT, SERVICE_CA, settings_of

NAME = "vc-egpu-jobs-api"
LEADER = "vc-egpu-leader"


@pytest.fixture(scope="module")
def objects() -> tuple[Json, ...]:
    return composed("jobs-api")


def test_it_adds_itself_and_changes_nothing(objects: tuple[Json, ...]) -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert {key for key in plain if new.get(key) != plain[key]} == set()
    kinds = ("ServiceAccount", "Service", "Deployment", "NetworkPolicy")
    more = {("ConfigMap", "vc-egpu-catalogue"), ("NetworkPolicy", f"{NAME}-asks")}
    assert set(new) - set(plain) == {(kind, NAME) for kind in kinds} | more


@pytest.mark.parametrize("name", [NAME, "vc-egpu-ui"])
def test_the_network_lets_those_ask_the_leader_that_are_told_of_it(name: str) -> None:
    objects = composed(name.removeprefix("vc-egpu-"))
    policies = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "NetworkPolicy")}
    (found,) = (one for one in of_kind(objects, "Deployment") if one["metadata"]["name"] == name)
    labels = found["spec"]["template"]["metadata"]["labels"]
    ((sender,),) = (rule["from"] for rule in policies[LEADER]["ingress"])
    assert sender["podSelector"]["matchLabels"].items() <= labels.items()
    assert policies[f"{name}-asks"]["podSelector"]["matchLabels"].items() <= labels.items()
    ((receiver,),) = (rule["to"] for rule in policies[f"{name}-asks"]["egress"])
    assert receiver["podSelector"] == policies[LEADER]["podSelector"]


def test_it_has_no_rights_and_no_token(objects: tuple[Json, ...]) -> None:
    for binding in of_kind(objects, "RoleBinding", "ClusterRoleBinding"):
        assert NAME not in {subject["name"] for subject in binding["subjects"]}
    (account,) = (one for one in of_kind(objects, "ServiceAccount") if one["metadata"]["name"] == NAME)
    assert account["automountServiceAccountToken"] is False
    assert pod_specs(objects)[NAME]["automountServiceAccountToken"] is False


def test_it_is_hardened(objects: tuple[Json, ...]) -> None:
    spec = pod_specs(objects)[NAME]
    (container,) = spec["containers"]
    security = container["securityContext"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert "memory" in container["resources"]["limits"]
    assert container["image"].startswith("egpu.volcano.sh/vc-egpu:")


def test_its_flags_are_read_and_its_files_are_where_it_looks(objects: tuple[Json, ...]) -> None:
    (container,) = pod_specs(objects)[NAME]["containers"]
    process, *flags = container["args"]
    settings = settings_of(flags)
    assert process == "jobs-api"
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"jobs": settings.port, "metrics": METRICS_PORT}
    admission = pod_specs(objects)["vc-egpu-admission"]["containers"][0]
    (leader,) = (one for one in of_kind(objects, "Service") if one["metadata"]["name"] == LEADER)
    (port,) = {one["containerPort"] for one in admission["ports"]} & {leader["spec"]["ports"][0]["port"]}
    assert settings.leader == f"http://{LEADER}.vc-egpu-system.svc:{port}"
    assert leader["spec"]["clusterIP"] == "None"
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(SERVICE_CA.parent), str(CATALOGUE.parent)} <= mounts


def test_its_catalogue_is_the_one_that_is_shipped(objects: tuple[Json, ...]) -> None:
    (found,) = (
        one for one in of_kind(objects, "ConfigMap") if one["metadata"]["name"] == "vc-egpu-catalogue"
    )
    assert Catalogue.from_yaml(found["data"][CATALOGUE.name]) == shipped()
