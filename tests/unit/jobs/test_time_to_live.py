"""A finished Job goes, with its pods and logs, by what it says as it is deleted."""

from typing import Any

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import in_phase
from vc_egpu.jobs.work import Look
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import VOLCANO_JOBS
from vc_egpu.kube.wire.errors import Conflict, KubeError, NotFound
from vc_egpu.volcano.api.job import JobPhase

ENDED = in_phase(JobPhase.COMPLETED) | {"minAvailable": 1}
ENDED["state"]["lastTransitionTime"] = "2025-06-15T15:00:00Z"


@pytest.mark.parametrize(
    ("error", "again"), [(Conflict("changed", status=409), True), (NotFound("gone"), False)]
)
def test_a_job_that_changed_meanwhile_is_looked_at_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: KubeError, *, again: bool
) -> None:
    """Its owner wants to keep it and takes the TTL out; a watch may be silent for minutes before it tells."""
    document = cluster.job("mine", ttlSecondsAfterFinished=60)
    path = "/apis/batch.volcano.sh/v1alpha1/namespaces/mine/jobs/train/status"
    ended = cluster.server.put(path, {**document, "status": ENDED})
    cluster.tell(VOLCANO_JOBS, ended, document)
    asked = []

    def delete(*_: object, **conditions: Any) -> None:
        asked.append(conditions["resource_version"])
        raise error

    monkeypatch.setattr(ApiConnection, "delete", delete)
    if again:
        with pytest.raises(Conflict):
            cluster.controller.look(Look.JOB, ("mine", "train"))
    else:
        cluster.controller.look(Look.JOB, ("mine", "train"))
    assert asked == [ended["metadata"]["resourceVersion"]]
