"""The admission policies on a real API server: how low pods go, and who is a member of what."""

from pathlib import Path
from typing import Final

import pytest
import yaml
from localcluster.api import wait_until
from rigs.team import NAMESPACE, Json, ensure, pod
from rigs.webhook import Rig
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import Forbidden, KubeError

pytestmark = pytest.mark.cluster
RUNTIME_CLASS: Final = (
    Path(__file__).resolve().parents[1] / "manifests/components/closed-runtime-class/policy.yaml"
)


def test_a_low_pod_goes_in_its_own_time_at_most(webhook_rig: Rig, alice: ApiConnection) -> None:
    """Who is promised its cards waits for that; a delete that takes years would keep them from everybody."""
    admission = webhook_rig.tenant("vc-egpu-admission", "vc-egpu-system")
    for name, priority in (("low", "low"), ("other", "")):
        body = pod(name, vgpu_h20=1)
        body["spec"]["terminationGracePeriodSeconds"] = 20
        if priority:
            body["metadata"]["annotations"]["egpu.volcano.sh/priority"] = priority
        ensure(alice, body)
        # One that no node has goes at once, whatever the delete names.
        target = {"apiVersion": "v1", "kind": "Node", "name": "anywhere"}
        metadata = {"name": name, "namespace": NAMESPACE}
        admission.bind({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
    for grace_s in (21, 10**8):
        with pytest.raises(Forbidden, match="terminationGracePeriodSeconds"):
            alice.delete(PODS, "low", NAMESPACE, grace_period_s=grace_s)
    with pytest.raises(KubeError, match="terminationGracePeriodSeconds"):
        alice.delete_collection(PODS, NAMESPACE, field_selector="metadata.name=low", grace_period_s=21)
    assert "deletionTimestamp" not in alice.get(PODS, "low", NAMESPACE)["metadata"]
    alice.delete(PODS, "other", NAMESPACE, grace_period_s=21)
    for allowed_s in (None, 20, 0):
        alice.delete(PODS, "low", NAMESPACE, grace_period_s=allowed_s)
    alice.delete(PODS, "other", NAMESPACE, grace_period_s=0)


def test_who_brings_our_gate_alone_is_in_no_gang(alice: ApiConnection) -> None:
    """It asks for nothing and would count as a member of whatever it names."""
    gates = [{"name": "egpu.volcano.sh/admission"}]
    for annotations in ({}, {"scheduling.k8s.io/group-name": "anybodys"}):
        body = pod("gated")
        body["spec"]["schedulingGates"] = gates
        body["metadata"]["annotations"] |= annotations
        with pytest.raises(Forbidden):
            alice.create(PODS, body)
            pytest.fail("let in")


def test_a_tenant_does_not_open_all_cards_by_a_runtime_class(webhook_rig: Rig, alice: ApiConnection) -> None:
    """With the component: NVIDIA's runtime would give a pod what its environment names."""
    kubectl, api = webhook_rig.cluster.kubectl, webhook_rig.kit.api
    classes = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
        for name in ("nvidia", "nvidia-cdi", "kata")
    ]
    kubectl("apply", "-f", "-", text_in=yaml.safe_dump_all(classes))
    body = pod("opens")
    body["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]

    def refused(runtime_class: str) -> bool:
        tried = {**body, "spec": {**body["spec"], "runtimeClassName": runtime_class}}
        try:
            alice.create(PODS, tried, dry_run=True)
        except Forbidden as error:
            assert "spec.runtimeClassName: NVIDIA's opens cards" in str(error)
            return True
        return False

    assert not refused("nvidia"), "without the component nobody asks"
    kubectl("apply", "-f", str(RUNTIME_CLASS))
    try:
        wait_until("the policy is in force", lambda: refused("nvidia"), 30)
        assert refused("nvidia-cdi")
        assert not refused("kata")
        kubectl("label", "namespace", NAMESPACE, "egpu.volcano.sh/runtime-class=open")
        wait_until("the namespace is open", lambda: not refused("nvidia"), 30)
        elsewhere = {**body, "metadata": {**body["metadata"], "namespace": "vc-egpu-system"}}
        elsewhere["spec"] = {**body["spec"], "runtimeClassName": "nvidia"}
        assert "NVIDIA's opens" not in _refusal(api, elsewhere)
    finally:
        kubectl("delete", "-f", str(RUNTIME_CLASS))
        kubectl("label", "namespace", NAMESPACE, "egpu.volcano.sh/runtime-class-")


def _refusal(api: ApiConnection, body: Json) -> str:
    try:
        api.create(PODS, body, dry_run=True)
    except KubeError as error:
        return str(error)
    return ""
