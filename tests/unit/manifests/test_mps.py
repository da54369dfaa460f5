"""What the component for MPS adds to an installation, and nothing else."""

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, pod_specs

KEEPER = "vc-egpu-mps-keeper"


@pytest.fixture(scope="module")
def objects() -> tuple[Json, ...]:
    return composed("mps")


def test_nothing_else_changes(objects: tuple[Json, ...]) -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    changed = {key for key in plain if new[key] != plain[key]}
    assert changed == {("ValidatingAdmissionPolicy", "vc-egpu-system-pods")}
    assert set(new) - set(plain) == {("ServiceAccount", KEEPER), ("DaemonSet", KEEPER)}


def test_the_keeper_has_no_token_and_only_the_rights_that_it_needs(objects: tuple[Json, ...]) -> None:
    specs = pod_specs(objects)
    spec = specs[KEEPER]
    (keeper,) = spec["containers"]
    assert (spec["automountServiceAccountToken"], spec["serviceAccountName"]) == (False, KEEPER)
    assert "hostNetwork" not in spec
    assert "hostIPC" not in spec
    assert "privileged" not in keeper["securityContext"]
    assert keeper["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert [one["mountPath"] for one in keeper["volumeMounts"]] == ["/run/vc-egpu"]
    bindings = (*of_kind(objects, "RoleBinding"), *of_kind(objects, "ClusterRoleBinding"))
    assert not [one for one in bindings if KEEPER in str(one)]
    images = {one["image"] for pods in specs.values() for one in pods["containers"]}
    assert len(images) == 1


def test_it_runs_on_chosen_nodes_and_is_replaced_only_by_hand(objects: tuple[Json, ...]) -> None:
    (keeper,) = (one for one in of_kind(objects, "DaemonSet") if one["metadata"]["name"] == KEEPER)
    assert keeper["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert keeper["spec"]["template"]["spec"]["nodeSelector"] == {"egpu.volcano.sh/mps": "true"}


def test_the_policy_on_our_own_namespace_lets_it_in_as_a_daemon_set(objects: tuple[Json, ...]) -> None:
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    (policy,) = [one for one in policies if one["metadata"]["name"] == "vc-egpu-system-pods"]
    expression = " ".join(policy["spec"]["variables"][0]["expression"].split())
    assert "daemon-set-controller' && " in expression
    assert "in ['vc-egpu-node-agent', 'vc-egpu-mps-keeper']" in expression
