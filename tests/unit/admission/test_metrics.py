"""Level-1 metrics: who waits."""

from prometheus_client import generate_latest
from unit.admission.build import TABLE, added, group, pod, queue
from vc_egpu.admission.loop import View
from vc_egpu.admission.metrics import Level1
from vc_egpu.admission.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.policy import Policy


def waiting(mirror: Mirror) -> list[str]:
    """The series of gangs that wait, as the leader shows them."""
    snapshot = mirror.snapshot()
    plan = decide(snapshot, Policy(), 1000.0)
    view = View(snapshot, plan.verdicts, {}, 5, admitting=True, decide_s=0.0)
    lines = generate_latest(Level1(lambda: view).registry()).decode().splitlines()
    return [line for line in lines if line.startswith("egpu_queue_waiting_gangs{")]


def of_a_replica_set(name: str) -> dict[str, object]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": f"rs-{name}",
        "controller": True,
    }


def test_who_is_scaled_to_nothing_does_not_wait() -> None:
    """What scales nodes by who waits would add one for nobody."""
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    replicas = group("podgroup-rs-web", members=1)
    replicas["metadata"]["ownerReferences"] = [of_a_replica_set("web")]
    mirror.apply("podgroups", added(replicas))
    assert waiting(mirror) == []
    one = pod("web-1", gang="podgroup-rs-web", owners=[of_a_replica_set("web")])
    mirror.apply("pods", added(one))
    assert waiting(mirror) == ['egpu_queue_waiting_gangs{queue="team",reason="WaitingForModel"} 1.0']


def test_a_job_whose_pods_are_still_to_be_made_waits() -> None:
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    mirror.apply("podgroups", added(group("train")))
    assert waiting(mirror) == ['egpu_queue_waiting_gangs{queue="team",reason="WaitingForMembers"} 1.0']
