"""The component of the page: no rights, no token, hardened like the rest."""

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, pod_specs
from vc_egpu.page.settings import SERVICE_CA, settings_of

NAME = "vc-egpu-ui"


@pytest.fixture(scope="module")
def objects() -> tuple[Json, ...]:
    return composed("ui")


def test_it_adds_itself_and_changes_nothing(objects: tuple[Json, ...]) -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert {key for key in plain if new.get(key) != plain[key]} == set()
    kinds = ("ServiceAccount", "Service", "Deployment", "NetworkPolicy")
    assert set(new) - set(plain) == {(kind, NAME) for kind in kinds} | {("NetworkPolicy", f"{NAME}-asks")}


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
    assert process == "ui"
    assert settings.leader == "http://vc-egpu-leader.vc-egpu-system.svc:9446"
    assert settings.public_url == f"http://localhost:{settings.port}"
    assert container["ports"][0]["containerPort"] == settings.port
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(SERVICE_CA.parent) in mounts
