"""What component container-use adds: the host's processes for the agent, and nothing else."""

from unit.manifests.kustomize import composed, of_kind, overlay, pod_specs


def test_the_agent_sees_the_host_s_processes_and_gets_no_capability() -> None:
    plain = pod_specs(overlay("standalone"))["vc-egpu-node-agent"]
    spec = pod_specs(composed("container-use"))["vc-egpu-node-agent"]
    assert spec == {**plain, "hostPID": True}
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_only_the_agent_may() -> None:
    policies = of_kind(composed("container-use"), "ValidatingAdmissionPolicy")
    (policy,) = [one for one in policies if one["metadata"]["name"] == "vc-egpu-system-pods"]
    (rule,) = [one for one in policy["spec"]["validations"] if "hostPID" in one["expression"]]
    assert "variables.agent || !object.spec.?hostPID.orValue(false)" in " ".join(rule["expression"].split())


def test_it_goes_together_with_isolation() -> None:
    spec = pod_specs(composed("container-use", "isolation"))["vc-egpu-node-agent"]
    assert spec["hostPID"] is True
