"""Pods that were bound without a plan, and those that only looked so."""

from unit.admission.build import TABLE, let_go, pod
from vc_egpu.admission.recovery.orphans import GRACE_S, Orphans
from vc_egpu.core.model.cluster import PodUid
from vc_egpu.volcano.codec import pod_codec

UID = PodUid("pod-0")


def test_a_pod_that_has_its_plan_by_now_is_not_removed_after_a_failed_try() -> None:
    orphans = Orphans()
    raw = pod(uid=UID)
    bound = {key: value for key, value in raw["spec"].items() if key != "schedulingGates"}
    orphans.note(pod_codec.pod({**raw, "spec": {**bound, "nodeName": "n1"}}, TABLE), 0.0)
    assert orphans.due(GRACE_S) == [UID]
    orphans.note(pod_codec.pod(let_go(raw, "5-1", bound=True), TABLE), GRACE_S)
    orphans.failed(UID, GRACE_S)
    assert orphans.due(10 * GRACE_S) == []
