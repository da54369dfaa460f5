"""Component container-use: the host's processes for the agent and nothing else. It is in all overlays."""

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, pod_specs, rendered

COMMON = "manifests/base"


@pytest.fixture(scope="module")
def agent() -> Json:
    """The agent of the overlay that has the least in it."""
    return pod_specs(overlay("standalone-unlimited"))["vc-egpu-node-agent"]


def test_the_agent_sees_the_host_s_processes_and_gets_no_capability(agent: Json) -> None:
    assert "hostPID" not in pod_specs(rendered(COMMON))["vc-egpu-node-agent"]
    assert agent["hostPID"] is True
    assert agent["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert agent["containers"][0]["securityContext"]["allowPrivilegeEscalation"] is False


@pytest.mark.parametrize(
    "name", ["standalone-unlimited", "volcano-unlimited", "standalone", "volcano", "local"]
)
def test_what_containers_use_is_known_in_each_overlay(name: str) -> None:
    assert pod_specs(overlay(name))["vc-egpu-node-agent"]["hostPID"] is True


def test_only_the_agent_may() -> None:
    policies = of_kind(overlay("standalone-unlimited"), "ValidatingAdmissionPolicy")
    (policy,) = [one for one in policies if one["metadata"]["name"] == "vc-egpu-system-pods"]
    (rule,) = [one for one in policy["spec"]["validations"] if "hostPID" in one["expression"]]
    assert "variables.agent || !object.spec.?hostPID.orValue(false)" in " ".join(rule["expression"].split())


def test_an_overlay_that_named_the_component_before_stays_right() -> None:
    spec = pod_specs(composed("container-use", "isolation"))["vc-egpu-node-agent"]
    assert spec["hostPID"] is True
