"""What the design promises when a queue is lowered or closed, on the whole stack."""

import json
import re
from typing import Final

import pytest
import yaml
from outcomes.workload import Task, deployment, job, shares
from outcomes.world import World, capability
from stack.kit import StoryError, is_gated
from vc_egpu.kube.resources import QUEUES
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
H20: Final = names.shared_resource("h20")


def test_a_cap_lowered_below_its_use_evicts_nobody(here: World) -> None:
    queue = here.add_queue("cap", capability=capability(shares=6))
    here.submit(job("runs", Task(shares(10_000), replicas=4), queue=queue))
    here.runs("runs", 4)
    here.submit(job("later", Task(shares(10_000), replicas=3), queue=queue))
    here.waits("later", "WaitingForQuota", "2 of 6")
    before = here.uids("runs")
    said = set_capability(here, queue, 2)
    assert re.search(r"Warning.*\b4\b.*\b2\b|Warning.*\b2\b.*\b4\b", said), said
    here.lowered.append(queue)
    here.waits("later", "ExceedsCap", "3")
    here.submit(job("small", Task(shares(10_000)), queue=queue))
    here.waits("small", "WaitingForQuota")
    assert here.uids("runs") == before
    here.check()
    set_capability(here, queue, 8)
    here.runs("later", 3)
    here.runs("small", 1)
    assert here.uids("runs") == before


def set_capability(here: World, queue: str, shares_allowed: int) -> str:
    patch = json.dumps({"spec": {"capability": {H20: shares_allowed}}})
    done = here.kit.kubectl("patch", "queue", queue, "--type=merge", "-p", patch)
    return str(done.stdout) + str(done.stderr)


def test_a_closed_queue_lets_nothing_new_in_and_harms_nothing(here: World) -> None:
    queue = here.add_queue("door", capability=capability(shares=4))
    here.submit(job("runs", Task(shares(10_000), replicas=4), queue=queue))
    here.runs("runs", 4)
    here.submit(job("waits", Task(shares(10_000), replicas=2), queue=queue))
    here.waits("waits", "WaitingForQuota")
    before = here.uids("runs")
    command(here, "CloseQueue", queue)
    here.waits("waits", "QueueClosed", queue)
    with pytest.raises(StoryError, match=r"[Cc]losed"):
        here.apply(job("new", Task(shares(10_000)), queue=queue))
    assert here.uids("runs") == before
    here.delete("vcjob", "runs")
    here.gated("waits", 2)
    command(here, "OpenQueue", queue)
    here.runs("waits", 2)


def test_replicas_that_are_lost_while_their_queue_is_closed_come_back_once_it_opens(here: World) -> None:
    """At once, and not when their controller next tries: it takes up to 17 minutes after a refusal."""
    queue = here.add_queue("shop", capability=capability(shares=4))
    here.submit(deployment("web", 3, shares(10_000), queue=queue))
    before = here.runs("web", 3)
    command(here, "CloseQueue", queue)
    here.kit.until("it is closed", QUEUES, lambda queues: queues[queue]["status"]["state"] == "Closing")
    here.delete("pod", min(before))
    here.waits("web", "QueueClosed", queue)
    here.scale("web", 4)
    here.until("two wait", "web", lambda pods: [*map(is_gated, pods.values())].count(True) == 2)
    here.check()
    command(here, "OpenQueue", queue)
    here.runs("web", 4)


def command(here: World, action: str, queue: str) -> None:
    uid = here.kit.api.get(QUEUES, queue)["metadata"]["uid"]
    document = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "door-"},
        "action": action,
        "target": {"apiVersion": QUEUES.api_version, "kind": "Queue", "name": queue, "uid": uid},
    }
    here.kit.kubectl("create", "-n", here.namespace, "-f", "-", text_in=yaml.safe_dump(document))
