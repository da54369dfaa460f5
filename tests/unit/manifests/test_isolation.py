"""What the isolation components add to an installation, and nothing else."""

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, pod_specs


@pytest.fixture(scope="module")
def objects() -> tuple[Json, ...]:
    return composed("isolation", "second-wall-kill")


def test_the_agent_gets_library_pages_and_the_hosts_processes(objects: tuple[Json, ...]) -> None:
    spec = pod_specs(objects)["vc-egpu-node-agent"]
    (agent,) = spec["containers"]
    assert spec["hostPID"] is True
    assert "--library=/usr/local/lib/vc-egpu/libvgpu-egpu.so" in agent["args"]
    assert {"name": "run", "mountPath": "/run/vc-egpu"} in agent["volumeMounts"]
    assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    assert agent["securityContext"]["allowPrivilegeEscalation"] is False


def test_nobody_else_changes(objects: tuple[Json, ...]) -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    changed = {key for one in objects if plain[key := (one["kind"], one["metadata"]["name"])] != one}
    assert changed == {
        ("DaemonSet", "vc-egpu-node-agent"),
        ("ValidatingAdmissionPolicy", "vc-egpu-system-pods"),
    }


def test_only_the_agent_may_see_the_hosts_processes(objects: tuple[Json, ...]) -> None:
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    (policy,) = [one for one in policies if one["metadata"]["name"] == "vc-egpu-system-pods"]
    (rule,) = [one for one in policy["spec"]["validations"] if "hostPID" in one["expression"]]
    assert "variables.agent || !object.spec.?hostPID.orValue(false)" in " ".join(rule["expression"].split())
    assert "hostNetwork" in rule["expression"]
