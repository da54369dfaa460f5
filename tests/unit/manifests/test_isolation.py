"""What the isolation components add to an installation, and nothing else."""

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, patched, pod_specs


@pytest.fixture(scope="module")
def objects() -> tuple[Json, ...]:
    listed = ", ".join(f"../../manifests/components/{one}" for one in ("isolation", "second-wall-kill"))
    return patched(f"components: [{listed}]\n", "standalone-unlimited")


def test_the_agent_gets_library_pages_and_the_hosts_processes(objects: tuple[Json, ...]) -> None:
    spec = pod_specs(objects)["vc-egpu-node-agent"]
    (agent,) = spec["containers"]
    assert spec["hostPID"] is True
    assert "--library=/usr/local/lib/vc-egpu/libvgpu-egpu.so" in agent["args"]
    assert {"name": "run", "mountPath": "/run/vc-egpu"} in agent["volumeMounts"]
    assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["KILL"]}
    assert agent["securityContext"]["allowPrivilegeEscalation"] is False


def test_nobody_else_changes(objects: tuple[Json, ...]) -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone-unlimited")}
    changed = {key for one in objects if plain[key := (one["kind"], one["metadata"]["name"])] != one}
    assert changed == {("DaemonSet", "vc-egpu-node-agent")}


def test_only_the_agent_may_see_the_hosts_processes(objects: tuple[Json, ...]) -> None:
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    (policy,) = [one for one in policies if one["metadata"]["name"] == "vc-egpu-system-pods"]
    (rule,) = [one for one in policy["spec"]["validations"] if "hostPID" in one["expression"]]
    assert "variables.agent || !object.spec.?hostPID.orValue(false)" in " ".join(rule["expression"].split())
    assert "hostNetwork" in rule["expression"]


@pytest.mark.parametrize("name", ["standalone", "volcano", "local-isolated"])
def test_limits_are_on_unless_an_operator_chooses_otherwise(name: str) -> None:
    (agent,) = pod_specs(overlay(name))["vc-egpu-node-agent"]["containers"]
    assert any(argument.startswith("--library=") for argument in agent["args"])
    if name != "local-isolated":
        (bare,) = pod_specs(overlay(f"{name}-unlimited"))["vc-egpu-node-agent"]["containers"]
        assert not any(argument.startswith("--library=") for argument in bare["args"])


def test_an_overlay_that_named_the_component_before_stays_right() -> None:
    spec = pod_specs(composed("isolation"))["vc-egpu-node-agent"]
    (agent,) = spec["containers"]
    for names in (
        [one["mountPath"] for one in agent["volumeMounts"]],
        [one["name"] for one in spec["volumes"]],
    ):
        assert len(set(names)) == len(names)
