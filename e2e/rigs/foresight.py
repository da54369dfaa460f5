"""A cluster that is asked what would happen, and in which it then happens: our stack on simulated nodes."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import urllib3
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from outcomes.workload import container, pod_spec, shares
from stack.hostmode import HostOptions, HostStack
from stack.kit import StoryError, cards_of, condition, is_running
from vc_egpu.core.decide import decide
from vc_egpu.core.model.policy import Policy
from vc_egpu.kube.resources import POD_GROUPS, PODS, VOLCANO_JOBS
from vc_egpu.report.snapshot_codec import from_json
from vc_egpu.volcano.words import names

from rigs.admission import gpu_node, wait_ready
from rigs.one_team import open_queues
from rigs.volcano_job import volcano_job

Json = dict[str, Any]
OURS, OTHERS = "asking", "zebra"
"""Two namespaces of two tenants."""
NODES, CARDS, CAP = 6, 4, 16
H20: Final = names.shared_resource("h20")
TIMEOUT_S: Final = 30.0
RESTART: Final[Json] = {"policies": [{"event": "PodEvicted", "action": "RestartJob"}]}


def gang_job(name: str, namespace: str, members: int, limits: Json, priority: str = "", **marks: str) -> Json:
    """A Job in the queue that is called like its namespace. ``marks``: annotations of its pods."""
    annotations = {**({names.PRIORITY: priority} if priority else {}), **marks}
    spec = {**pod_spec(container(limits=limits)), "restartPolicy": "Never"}
    made = volcano_job(
        name, namespace, members, {"metadata": {"annotations": annotations}, "spec": spec}, **RESTART
    )
    made["metadata"]["namespace"] = namespace
    return made


def random_job(rng: random.Random, number: int) -> Json:
    """Whole cards or shares, one to four members, any class."""
    members, cards = rng.choice([1, 1, 2, 3, 4]), rng.choice([1, 1, 2, 2, 4])
    memory, cores = rng.choice([(None, None), (None, None), (24576, 25), (49152, 50), (73728, None)])
    return gang_job(
        f"case{number}",
        rng.choice([OURS, OTHERS]),
        members,
        shares(memory, cores, cards=cards),
        rng.choice(["", "low", "low", "high"]),
    )


@dataclass
class Town:
    """The stack on its cluster, and all Jobs that are there."""

    stack: HostStack
    jobs: dict[str, Json] = field(default_factory=dict)
    """By namespace and name, in the order in which they came."""

    @property
    def leader(self) -> str:
        """Where the leader answers. This machine is its own, so no token is needed."""
        return f"http://127.0.0.1:{self.stack.ports['admission']}"

    def ask(self, job: Json, **more: Any) -> tuple[int, Json | str]:
        """Status and answer of the leader, to the Job as the webhook leaves it. Too many: once more."""
        namespace = job["metadata"]["namespace"]
        made = self.stack.kit.api.create(VOLCANO_JOBS, job, namespace, dry_run=True)
        body = json.dumps({"job": {"metadata": job["metadata"], "spec": made["spec"]}, **more}).encode()
        found: list[Any] = []

        def answered() -> bool:
            found[:] = [urllib3.request("POST", f"{self.leader}/v1/what-if", body=body, timeout=30)]
            return bool(found[0].status != 429)

        wait_until("the leader takes a question", answered, TIMEOUT_S)
        (answer,) = found
        text = answer.data.decode()
        return answer.status, json.loads(text) if answer.status == 200 else text

    def submit(self, job: Json) -> str:
        """Make the Job; returns its key."""
        namespace = job["metadata"]["namespace"]
        self.stack.kit.api.create(VOLCANO_JOBS, job, namespace)
        key = f"{namespace}/{job['metadata']['name']}"
        self.jobs[key] = job
        return key

    def end(self, *keys: str) -> None:
        """Delete these Jobs, and wait until their pods are gone."""
        for key in keys:
            namespace, name = key.split("/")
            self.stack.kit.api.delete(VOLCANO_JOBS, name, namespace, propagation="Background")
            del self.jobs[key]
        self.stack.kit.until(
            f"{keys} are over",
            PODS,
            lambda pods: not any(job_of(pod) in keys for pod in pods.values()) or None,
            timeout_s=TIMEOUT_S,
        )

    def pods(self) -> list[Json]:
        """All pods of Jobs."""
        return [pod for pod in self.stack.kit.api.list(PODS).items if job_of(pod)]

    def running(self) -> dict[str, frozenset[str]]:
        """The UIDs of the pods that run, by Job."""
        found: dict[str, set[str]] = {}
        for pod in self.pods():
            if is_running(pod) and not pod["metadata"].get("deletionTimestamp"):
                found.setdefault(job_of(pod), set()).add(pod["metadata"]["uid"])
        return {key: frozenset(uids) for key, uids in found.items()}

    def until_runs(self, key: str, members: int, timeout_s: float = TIMEOUT_S) -> list[Json]:
        """Wait until all members of the Job run; these pods."""
        namespace, _ = key.split("/")

        def there(pods: dict[str, Json]) -> list[Json] | None:
            mine = [pod for pod in pods.values() if job_of(pod) == key and is_running(pod)]
            return mine if len(mine) == members else None

        return self.stack.kit.until(f"{key} runs", PODS, there, namespace=namespace, timeout_s=timeout_s)

    def until_waits(self, key: str, reason: str) -> None:
        """Wait until the Job's PodGroup says that it waits for this reason."""
        namespace, name = key.split("/")

        def said(groups: dict[str, Json]) -> bool | None:
            mine = [group for group in groups.values() if group["metadata"]["name"].startswith(f"{name}-")]
            found = [condition(group, names.CONDITION_ADMITTED) for group in mine]
            return any(one and one["reason"] == reason for one in found) or None

        what = f"{key} waits for {reason}"
        self.stack.kit.until(what, POD_GROUPS, said, namespace=namespace, timeout_s=TIMEOUT_S)

    def settle(self) -> None:
        """Wait until the leader sees what is there, and has nothing to do about it."""

        def quiet() -> bool:
            page = urllib3.request("GET", f"{self.leader}/v1/snapshot", timeout=30)
            if page.status != 200:
                return False
            seen = from_json(page.data)
            pods = {pod["metadata"]["uid"]: pod["spec"].get("nodeName") for pod in self.pods()}
            known = {str(pod.uid): pod.node for pod in seen.pods.values() if pod.gang is not None}
            if pods != known or any(gang.plan is not None for gang in seen.gangs.values()):
                return False
            wanted = {key: _members(job) for key, job in self.jobs.items()}
            made = Counter(job_of(pod) for pod in self.pods())
            if any(made[key] not in {0, count} for key, count in wanted.items()):
                return False
            return not decide(seen, Policy(), time.time(), None).admissions

        wait_until("the cluster is quiet", quiet, TIMEOUT_S)


def _members(job: Json) -> int:
    return sum(int(task["replicas"]) for task in job["spec"]["tasks"])


def job_of(pod: Json) -> str:
    """The key of a pod's Job; empty where it is of none."""
    name = (pod["metadata"].get("labels") or {}).get("volcano.sh/job-name", "")
    return f"{pod['metadata']['namespace']}/{name}" if name else ""


def places_of(pods: list[Json]) -> list[tuple[str, int, tuple[str, ...]]]:
    """(node, members, cards) of pods that run, as an answer tells them."""
    members: Counter[str] = Counter()
    cards: dict[str, set[str]] = {}
    for pod in pods:
        node = pod["spec"]["nodeName"]
        members[node] += 1
        cards.setdefault(node, set()).update(cards_of(pod))
    return [(node, members[node], tuple(sorted(cards[node]))) for node in sorted(members)]


@contextmanager
def town(name: str, nodes: int = NODES) -> Iterator[Town]:
    """Two tenants with a queue each on simulated nodes."""
    with LocalCluster.up(ClusterSpec(name=name, real_nodes=0, services=False, dns=False)) as local:
        local.add_kwok_nodes(nodes, gpu_node(CARDS))
        stack = HostStack.install(local, HostOptions())
        try:
            stack.start()
            wait_ready(stack.kit, nodes)
            open_queues(stack.kit, {H20: str(CAP)}, OURS, OTHERS)
            yield Town(stack)
        except StoryError:
            for process in stack.processes.values():
                print(process.log_tail(60))  # shown where a test fails
            raise
        finally:
            stack.stop()
