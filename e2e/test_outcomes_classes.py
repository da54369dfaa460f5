"""What the design promises of priority classes, on the whole stack."""

import pytest
from outcomes.workload import Json, Task, job, shares, stateful_set
from outcomes.world import World
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]


def test_replicas_of_a_set_keep_the_class_they_started_with_and_new_ones_have_the_new_one(
    here: World,
) -> None:
    """Two classes under one owner, one after the other: a high one's time must not be given to another."""
    workload = stateful_set("set", 1, shares(10_000, cores=60), queue=here.queue)
    workload["spec"]["updateStrategy"] = {"type": "OnDelete"}
    workload["spec"]["podManagementPolicy"] = "Parallel"
    classed(workload, "high")
    here.submit(workload)
    here.runs("set", 1)
    workload["spec"]["replicas"] = 2
    here.apply(classed(workload, "low"))
    pods = here.runs("set", 2)
    annotations = {name: found["metadata"]["annotations"] for name, found in pods.items()}
    given = {name: Cards.decode(found[names.CARDS]).share_class for name, found in annotations.items()}
    assert given == {"set-0": "high", "set-1": "low"}
    one_per_card = Task(shares(10_000, cores=60), replicas=len(here.card_rows()), priority="high")
    here.submit(job("full", one_per_card, queue=here.queue))
    here.waits("full", "WaitingForCards")
    here.check()


def classed(workload: Json, share_class: str) -> Json:
    workload["spec"]["template"]["metadata"]["annotations"][names.PRIORITY] = share_class
    return workload
