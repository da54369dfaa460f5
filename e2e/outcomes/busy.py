"""A busy cluster, and what of it must be the same after an upgrade."""

from typing import Any, Final

from stack.kit import is_running
from vc_egpu.volcano.words import names

from outcomes.workload import Task, deployment, job, pod, shares
from outcomes.world import World, capability

RESTART_ON_FAILURE: Final = tuple(
    {"event": event, "action": "RestartJob"} for event in ("PodFailed", "PodEvicted")
)
"""For small Jobs while agents are replaced: kubelets refuse pods meanwhile."""


def held(here: World) -> dict[str, Any]:
    """What each running pod of the load has: cards, restarts, and what its container says."""
    restarts = here.restarts()
    return {
        found["metadata"]["uid"]: (
            found["metadata"]["annotations"][names.CARDS],
            restarts[found["metadata"]["uid"]],
            here.inside(name, 'printf %s "$EGPU_CARDS"'),
        )
        for name, found in here.pods().items()
        if is_running(found) and not name.startswith("small-")
    }


def load(here: World) -> None:
    """Gangs on shared cards, a service, a bare pod; one gang waits for cards, one for its cap."""
    small = here.add_queue("small", capability=capability(shares=2))
    here.submit(job("train", Task(shares(40_000, 100), replicas=6, priority="low"), queue=here.queue))
    here.runs("train", 6)
    here.submit(job("infer", Task(shares(30_000, 50), replicas=2, priority="high"), queue=here.queue))
    here.submit(deployment("web", 2, shares(10_000, 10), queue=small, priority="high"))
    here.submit(pod("alone", shares(5_000, 5), queue=here.queue))
    for name, members in (("infer", 2), ("web", 2), ("alone", 1)):
        here.runs(name, members)
    here.submit(job("capped", Task(shares(1000), replicas=2), queue=small))
    here.submit(job("large", Task(shares(), replicas=5), queue=here.queue))
    here.waits("capped", "WaitingForQuota")
    here.waits("large", "WaitingForCards")
