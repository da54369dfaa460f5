"""A pod that the admission layer had deleted is no eviction: its Job loses no retry by it."""

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import task
from vc_egpu.jobs.known.pods import trim
from vc_egpu.kube.resources import PODS
from vc_egpu.volcano.words import names

POD = "/api/v1/namespaces/mine/pods/train-w-0"
RESTARTS = ({"event": "PodEvicted", "action": "RestartJob"},)


@pytest.mark.parametrize(("pulled", "retries"), [(True, 0), (False, 1)])
def test_what_goes_by_the_lever_costs_no_retry(cluster: Cluster, pulled: bool, retries: int) -> None:
    """Another process may have pulled it, and deleted the pod: this one sees the mark and then the end."""
    cluster.job("mine", tasks=[task(replicas=1)], policies=[*RESTARTS])
    cluster.look_at_job("mine")
    cluster.run_pod(POD)
    assert cluster.look_at_job("mine") == ("Running", 0)
    if pulled:
        before = cluster.server.objects[POD]
        metadata = before["metadata"]
        marked = {**(metadata.get("annotations") or {}), names.OUT_OF_SYNC: "true"}
        now = cluster.server.put(POD, {**before, "metadata": {**metadata, "annotations": marked}})
        cluster.tell(PODS, trim(now), trim(before))
    cluster.tell_end(PODS, trim(cluster.server.objects.pop(POD)))
    assert cluster.look_at_job("mine")[1] == retries
