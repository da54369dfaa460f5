"""A cluster that is set back to a backup of etcd while containers of a later time run."""

import pytest
from outcomes import backup, disturb
from outcomes.workload import H20_MIB, Json, Task, deployment, job, shares
from outcomes.world import World
from stack.kit import cards_of, is_running

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(900)]


def test_what_was_then_runs_again_and_what_came_later_is_gone(here: World) -> None:
    """Pods that ended since are there again: the kubelet starts a Deployment's once more, and says of those
    that are not to be restarted that they failed. On their cards run others, of whom nobody knows any more.
    Nobody of ours is restarted for it."""
    policies = ({"event": "PodFailed", "action": "RestartJob"},)
    here.submit(job("train", Task(shares(), replicas=6), queue=here.queue, policies=policies))
    here.submit(deployment("web", 2, shares(H20_MIB // 2), queue=here.queue))
    then = here.runs("train", 6) | here.runs("web", 2)
    cards = {name: cards_of(pod) for name, pod in then.items()}
    saved = backup.save(here.stack)
    disturb.wait_all_well(here.stack)
    here.delete("vcjob", "train")
    here.gone("train", {pod["metadata"]["uid"] for pod in then.values()} - here.uids("web"))
    here.scale("web", 1)
    here.runs("web", 1)
    here.submit(job("later", Task(shares(), replicas=7), queue=here.queue))
    taken = {card for pod in here.runs("later", 7).values() for card in cards_of(pod)}
    assert taken >= {card for name, found in cards.items() if name.startswith("train") for card in found}

    backup.restore(here.stack, saved)
    disturb.wait_all_well(here.stack, timeout_s=300)
    assert here.pods("later") == {}
    here.until(
        "training has containers anew", "train", lambda pods: len(anew(pods, then)) == 6, timeout_s=300
    )
    here.until("the other replica has one too", "web", lambda pods: len(anew(pods, then)) == 1, timeout_s=300)
    here.eventually(here.check)
    here.scale("web", 0)
    here.submit(job("next", Task(shares(), replicas=2), queue=here.queue))
    here.runs("next", 2)


def anew(pods: dict[str, Json], then: dict[str, Json]) -> list[str]:
    """Those that run in another container than they did."""
    return [
        name
        for name, pod in pods.items()
        if is_running(pod) and containers_of(pod) and containers_of(pod) != containers_of(then[name])
    ]


def containers_of(pod: Json) -> set[str]:
    """The runtime's names of its running containers."""
    return {
        str(found["containerID"])
        for found in pod["status"].get("containerStatuses") or ()
        if "running" in found["state"]
    }
