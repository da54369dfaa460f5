"""What the suspension component adds to an installation, and nothing else."""

import re

import pytest
from unit.manifests.kustomize import Json, composed, of_kind, overlay, pod_specs
from vc_egpu.volcano.codec.suspension import SUSPEND_SIGNALS
from vc_egpu_node.suspension.helper import MAX_PROCESSES, Drain, words

TEMPLATE = "vc-egpu-checkpoint"


@pytest.fixture(scope="module")
def objects() -> tuple[Json, ...]:
    return composed("isolation", "suspension")


def template(objects: tuple[Json, ...]) -> Json:
    (found,) = of_kind(objects, "PodTemplate")
    spec: Json = found["template"]["spec"]
    return spec


def test_the_agent_is_told_and_gets_no_privilege(objects: tuple[Json, ...]) -> None:
    (agent,) = pod_specs(objects)["vc-egpu-node-agent"]["containers"]
    assert "--checkpoint=pod" in agent["args"]
    assert "privileged" not in agent["securityContext"]
    assert agent["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_nothing_else_changes(objects: tuple[Json, ...]) -> None:
    plain = {(one["kind"], one["metadata"]["name"]): one for one in overlay("standalone")}
    new = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert {key for key in plain if new[key] != plain[key]} == {
        ("DaemonSet", "vc-egpu-node-agent"),
        ("ValidatingAdmissionPolicy", "vc-egpu-system-pods"),
    }
    assert set(new) - set(plain) == {
        ("PodTemplate", TEMPLATE),
        ("Role", TEMPLATE),
        ("RoleBinding", TEMPLATE),
        ("ValidatingAdmissionPolicy", "vc-egpu-checkpoint-pods"),
        ("ValidatingAdmissionPolicyBinding", "vc-egpu-checkpoint-pods"),
        ("ValidatingAdmissionPolicy", "vc-egpu-checkpoint-deletes"),
        ("ValidatingAdmissionPolicyBinding", "vc-egpu-checkpoint-deletes"),
    }


def test_the_helper_runs_our_image_for_a_while_without_a_token(objects: tuple[Json, ...]) -> None:
    spec = template(objects)
    (container,) = spec["containers"]
    images = {one["image"] for pods in pod_specs(objects).values() for one in pods["containers"]}
    assert images == {container["image"]}, "one image, set in one place"
    assert container["image"] != "vc-egpu"
    assert (spec["restartPolicy"], spec["automountServiceAccountToken"]) == ("Never", False)
    assert spec["activeDeadlineSeconds"] <= 600
    (results,) = spec["volumes"]
    assert results["hostPath"]["path"] == "/var/lib/vc-egpu/checkpoints"
    assert spec["runtimeClassName"] == "nvidia"


def test_its_rights_are_in_its_own_namespace(objects: tuple[Json, ...]) -> None:
    (role,) = [one for one in of_kind(objects, "Role") if one["metadata"]["name"] == TEMPLATE]
    assert role["metadata"]["namespace"] == "vc-egpu-system"
    pods, templates = role["rules"]
    assert sorted(pods["verbs"]) == ["create", "delete"]
    assert (templates["verbs"], templates["resourceNames"]) == (["get"], [TEMPLATE])


def test_where_there_is_no_runtime_the_drivers_root_is_mounted() -> None:
    spec = template(composed("isolation", "suspension", "driver-root"))
    (container,) = spec["containers"]
    assert "runtimeClassName" not in spec
    assert {one["name"] for one in container["volumeMounts"]} == {"driver", "dev", "results"}
    assert {one["name"] for one in spec["volumes"]} == {"driver", "dev", "results"}
    assert len({one["name"] for one in container["env"]}) == len(container["env"])


def test_the_local_cluster_has_a_fake_driver_for_it() -> None:
    spec = template(overlay("local-isolated"))
    (container,) = spec["containers"]
    assert "runtimeClassName" not in spec
    assert "EGPU_CHECKPOINT" in {one["name"] for one in container["env"]}
    assert {one["name"] for one in container["volumeMounts"]} == {"fake-gpus", "fake-driver", "results"}


@pytest.mark.parametrize("drain", [None, *(Drain(name, 120_000) for name in SUSPEND_SIGNALS)])
def test_the_policy_takes_what_the_agent_asks_for(objects: tuple[Json, ...], drain: Drain | None) -> None:
    most = [((1 << 22) - number, (1 << 40) - number) for number in range(MAX_PROCESSES)]
    for verb in ("suspend", "resume"):
        text = words(verb, most, 600_000, drain)
        assert re.fullmatch(_asked_for(objects), text)
        assert len(text) < 4096


@pytest.mark.parametrize(
    "text",
    [
        "suspend --lock-ms 1 --signal KILL --drain-ms 1 1:1",
        "suspend --lock-ms 1 --signal USR1 1:1",
        "suspend --signal USR1 --drain-ms 1 1:1",
        "suspend --lock-ms 1 --signal USR1 --drain-ms 1",
    ],
)
def test_the_policy_takes_nothing_else(objects: tuple[Json, ...], text: str) -> None:
    assert not re.fullmatch(_asked_for(objects), text)


def _asked_for(objects: tuple[Json, ...]) -> str:
    """The expression by which the policy judges the words."""
    (policy,) = [
        one
        for one in of_kind(objects, "ValidatingAdmissionPolicy")
        if one["metadata"]["name"] == "vc-egpu-checkpoint-pods"
    ]
    rules = " ".join(rule["expression"] for rule in policy["spec"]["validations"])
    (found,) = re.findall(r"matches\('(\^\(suspend[^']*)'\)", rules)
    return str(found)
