"""What the design promises of rules between pods, on the whole stack with a real scheduler."""

from typing import Final

import pytest
from outcomes.workload import Json, Task, deployment, job, shares
from outcomes.world import World
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
HOSTNAME: Final = "kubernetes.io/hostname"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def apart(labels: dict[str, str]) -> Json:
    """Part of a pod's spec: no two pods with these labels on one node."""
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": labels}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def nodes_of(here: World, of: str) -> list[str]:
    return sorted(str(found["spec"].get("nodeName")) for found in here.pods(of).values())


def note_of(here: World, of: str) -> str:
    """The note of a roll-back on its PodGroup; empty where it was never rolled back."""
    return str((here.group_of(of)["metadata"].get("annotations") or {}).get(names.ROLLED_BACK, ""))


def test_members_that_keep_apart_start_on_different_nodes_at_once(here: World) -> None:
    both = sorted(node.name for node in here.stack.cluster.nodes)
    pair = Task(shares(10_000), replicas=2, more=apart({names.JOB_NAME: "pair"}))
    here.submit(job("pair", pair, queue=here.queue))
    here.runs("pair", 2)
    assert nodes_of(here, "pair") == both
    here.submit(deployment("web", 2, shares(10_000), queue=here.queue, **apart({"app": "web"})))
    here.runs("web", 2)
    assert nodes_of(here, "web") == both
    assert [note_of(here, "pair"), note_of(here, "web")] == ["", ""]
    here.check()


def test_nobody_goes_for_a_gang_that_needs_more_nodes_than_there_are(here: World) -> None:
    here.submit(job("train", Task(shares(80_000, 100), replicas=8, priority="low"), queue=here.queue))
    here.runs("train", 8)
    before = here.uids("train")
    three = Task(shares(60_000, 50), replicas=3, priority="high", more=apart({names.JOB_NAME: "three"}))
    here.submit(job("three", three, queue=here.queue))
    here.waits("three", "WaitingForCards", "Evicting low-priority work would not make room")
    here.gated("three", 3)
    assert here.uids("train") == before
    here.check()


def test_nobody_goes_for_a_gang_that_wants_to_be_next_to_pods_that_do_not_exist(here: World) -> None:
    here.submit(job("train", Task(shares(80_000, 100), replicas=8, priority="low"), queue=here.queue))
    here.runs("train", 8)
    before = here.uids("train")
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "no-such-thing"}}}
    lonely = {"affinity": {"podAffinity": {REQUIRED: [term]}}}
    urgent = Task(shares(60_000, 50), priority="high", more=lonely)
    here.submit(job("urgent", urgent, queue=here.queue))
    here.waits("urgent", "WaitingForCards", "Evicting low-priority work would not make room")
    here.gated("urgent", 1)
    assert here.uids("train") == before
    here.check()


def test_members_that_are_spread_are_bound_by_us(here: World) -> None:
    """The decision reads their rules, so no scheduler has to."""
    labels = {names.JOB_NAME: "even"}
    rule = {"topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}
    even = {"topologySpreadConstraints": [{**rule, "labelSelector": {"matchLabels": labels}}]}
    here.submit(job("even", Task(shares(10_000), replicas=4, more=even), queue=here.queue))
    here.runs("even", 4)
    placed = nodes_of(here, "even")
    assert [placed.count(name) for name in sorted(set(placed))] == [2, 2]
    schedulers = {pod["spec"]["schedulerName"] for pod in here.pods("even").values()}
    assert schedulers == {names.SCHEDULER_DIRECT}
    here.check()
