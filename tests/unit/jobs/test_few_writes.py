"""How often the status of a PodGroup is written while the members of its gang start."""

from unit.jobs.cluster import Cluster
from vc_egpu.jobs.work import Look
from vc_egpu.jobs.workers.groupworker import COUNTS_EVERY_S

KEY = ("mine", "g")
PATH = "/apis/scheduling.volcano.sh/v1beta1/namespaces/mine/podgroups/g"


def written(cluster: Cluster) -> int:
    return sum(method == "PATCH" and path.startswith(PATH) for method, path, _ in cluster.server.requests)


def test_members_that_start_one_after_the_other_cost_two_writes(cluster: Cluster) -> None:
    """The phase is written at once, the counts a second later."""
    cluster.group("g", "mine")
    for index in range(8):
        cluster.member(f"g-{index}", "g", phase="Pending")
    assert cluster.controller.look(Look.GROUP, KEY) is None
    first = written(cluster)
    for index in range(8):
        cluster.member(f"g-{index}", "g", phase="Running")
        cluster.clock.now += 0.05
        again_s = cluster.controller.look(Look.GROUP, KEY)
        assert again_s is not None
        assert 0 < again_s <= COUNTS_EVERY_S
    assert written(cluster) == first
    cluster.clock.now += COUNTS_EVERY_S
    assert cluster.controller.look(Look.GROUP, KEY) is None
    assert written(cluster) == first + 1
    assert cluster.server.objects[PATH]["status"]["running"] == 8


def test_another_phase_is_written_at_once(cluster: Cluster) -> None:
    cluster.group("g", "mine")
    cluster.member("g-0", "g", phase="Pending")
    cluster.controller.look(Look.GROUP, KEY)
    first = written(cluster)
    cluster.member("g-0", "g", phase="Succeeded")
    assert cluster.controller.look(Look.GROUP, KEY) is None
    assert written(cluster) == first + 1
    assert cluster.server.objects[PATH]["status"]["phase"] == "Completed"
