"""The admission policies on a real API server: how low pods go, and who is a member of what."""

import pytest
from rigs.team import NAMESPACE, Json, ensure, pod
from rigs.webhook import Rig
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.errors import Forbidden, KubeError
from vc_egpu.kube.resources import PODS

pytestmark = pytest.mark.cluster


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
        admission.patch(PODS, name, {"spec": {"schedulingGates": None}}, NAMESPACE)
        target = {"apiVersion": "v1", "kind": "Node", "name": "anywhere"}
        bind: Json = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        webhook_rig.kit.api.create(PODS, bind, NAMESPACE, subresource=(name, "binding"))
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
