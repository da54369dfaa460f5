"""What users do, at random: they submit, change their mind, and leave."""

import contextlib
import random
from collections.abc import Callable
from typing import Final

from isolation.driver import PROGRAMS
from outcomes.workload import Json, Task, container, deployment, job, pod, shares, stateful_set
from outcomes.world import World, capability
from stack.kit import StoryError
from vc_egpu.kube.connection import Propagation
from vc_egpu.kube.resources import (
    COMMANDS,
    DEPLOYMENTS,
    POD_GROUPS,
    PODS,
    QUEUES,
    STATEFUL_SETS,
    VOLCANO_JOBS,
    Resource,
)
from vc_egpu.kube.wire.errors import AlreadyExists, Conflict, NotFound, Refused

from soak.ground import Ground

RUNS_ON: Final = "trap exit TERM; sleep 1000000 & wait"
"""Until it gets SIGTERM, without waking the machine."""
TRAINS: Final = f"exec {PROGRAMS}/train --memory-mib 1024 --kernels 1 --ns 50000000 --every 50"
"""Counts its steps in its card's memory; 50 ms each."""
MAKERS: Final[tuple[Resource, ...]] = (VOLCANO_JOBS, DEPLOYMENTS, STATEFUL_SETS)
MOST: Final = 14
"""So many owners at once: more than the cards hold, and not so many that nodes run out of pods."""


class Users:
    """Some tenants with one namespace and three queues. ``log`` gets a line for everything they do."""

    def __init__(self, rng: random.Random, here: World, ground: Ground, log: Callable[[str], None]) -> None:
        self.rng = rng
        self.here = here
        self.log = log
        self.programs = ground.programs
        self.volcano = ground.volcano is not None
        self.api = here.stack.kit.api
        self.queues = [here.queue, here.add_queue("b"), here.add_queue("c")]
        self.serial = 0
        here.lowered.extend(self.queues)

    def act(self) -> None:
        """One thing that somebody does. What is refused for a good reason is told and is no failure."""
        crowd = sum(len(self._named(resource)) for resource in (*MAKERS, PODS))
        moves = self._moves(crowd)
        move = self.rng.choices(list(moves), list(moves.values()))[0]

        def once() -> None:
            try:
                self.log(f"{move.__name__} {move()}")
            except (NotFound, Conflict, Refused) as error:
                self.log(f"{move.__name__}: {error}")

        self.here.eventually(once)

    def _moves(self, crowd: int) -> dict[Callable[[], object], int]:
        owners = sum(len(self._named(resource)) for resource in MAKERS)
        more = 8 if owners < MOST else 1
        return {
            self.submit_job: more,
            self.submit_deployment: more // 2,
            self.submit_set: more // 4,
            self.submit_pod: more // 4,
            self.remove: 3 if crowd else 0,
            self.scale: 2,
            self.set_cap: 1,
            self.command: 2,
            self.lose_a_pod: 2,
            self.lose_a_group: 1,
            self.suspend: 2 if self.programs else 0,
        }

    # --- coming -----------------------------------------------------------------------------------

    def submit_job(self) -> str:
        """A gang of one or two tasks; some end by themselves, some fail."""
        name = self._name("job")
        priority = self.rng.choice(["low", "low", "high", "", ""])
        tasks = [self._task(task, priority) for task in ("a", "b")[: self.rng.choice([1, 1, 1, 2])]]
        members = sum(task.replicas for task in tasks)
        least = members if self.rng.random() < 0.7 else self.rng.randint(1, members)
        policies = (
            {"event": "PodEvicted", "action": "RestartJob"},
            {"event": "PodFailed", "action": self.rng.choice(["RestartJob", "RestartTask", "AbortJob"])},
        )
        more: Json = {"maxRetry": self.rng.choice([1, 3])}
        if self.rng.random() < 0.4:
            more["ttlSecondsAfterFinished"] = self.rng.choice([0, 20])
        document = job(
            name, *tasks, queue=self.rng.choice(self.queues), min_available=least, policies=policies, **more
        )
        self._create(VOLCANO_JOBS, document)
        return f"{name}: {members} members, {least} at least, {priority or 'no class'}"

    def submit_deployment(self) -> str:
        """Inference, mostly."""
        name = self._name("web")
        queue, priority = self.rng.choice(self.queues), self.rng.choice(["high", "high", "", "low"])
        document = deployment(name, self.rng.randint(0, 3), self._limits(), queue=queue, priority=priority)
        _quiet(document["spec"]["template"]["spec"])
        self._create(DEPLOYMENTS, document)
        return f"{name}: {document['spec']['replicas']} {priority}"

    def submit_set(self) -> str:
        """Under names that stay."""
        name = self._name("set")
        document = stateful_set(
            name, self.rng.randint(1, 3), self._limits(), queue=self.rng.choice(self.queues)
        )
        if self.rng.random() < 0.5:
            document["spec"]["podManagementPolicy"] = "Parallel"
        _quiet(document["spec"]["template"]["spec"])
        self._create(STATEFUL_SETS, document)
        return name

    def submit_pod(self) -> str:
        """Nobody's but its own."""
        name = self._name("pod")
        document = pod(name, self._limits(), queue=self.rng.choice(self.queues))
        _quiet(document["spec"])
        self._create(PODS, document)
        return name

    # --- changing ---------------------------------------------------------------------------------

    def remove(self) -> str:
        """One owner or bare pod goes."""
        resource = self.rng.choice([*MAKERS, VOLCANO_JOBS, PODS])
        names = self._named(resource)
        if not names:
            return "nothing"
        name = self.rng.choice(names)
        how: Propagation = "Foreground" if self.rng.random() < 0.3 else "Background"
        self.api.delete(resource, name, self.here.namespace, propagation=how)
        return f"{name} ({how})"

    def scale(self) -> str:
        """Up, down, to nothing."""
        resource = self.rng.choice(MAKERS)
        names = self._named(resource)
        if not names:
            return "nothing"
        name, size = self.rng.choice(names), self.rng.randint(0, 4)
        if resource is not VOLCANO_JOBS:
            self.api.patch(resource, name, {"spec": {"replicas": size}}, self.here.namespace)
            return f"{name} to {size}"
        found = self.api.get(VOLCANO_JOBS, name, self.here.namespace)
        tasks = found["spec"]["tasks"]
        tasks[0]["replicas"] = max(1, size)
        for task in tasks:
            task.pop("minAvailable", None)
        least = min(found["spec"]["minAvailable"], sum(task["replicas"] for task in tasks))
        change = {"spec": {"tasks": tasks, "minAvailable": least}}
        self.api.patch(VOLCANO_JOBS, name, change, self.here.namespace)
        return f"{name} to {max(1, size)}, {least} at least"

    def set_cap(self) -> str:
        """An admin's; often below what is used."""
        name, most = self.rng.choice(self.queues), self.rng.choice([1, 3, 6, 12, 64])
        self.api.patch(QUEUES, name, {"spec": {"capability": capability(shares=most)}})
        return f"{name}: {most} shares"

    def command(self) -> str:
        """Abort, resume, restart a Job."""
        names = self._named(VOLCANO_JOBS)
        if not names:
            return "nothing"
        name = self.rng.choice(names)
        action = self.rng.choice(["AbortJob", "ResumeJob", "ResumeJob", "RestartJob"])
        uid = self.api.get(VOLCANO_JOBS, name, self.here.namespace)["metadata"]["uid"]
        target = {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "name": name, "uid": uid}
        document = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"generateName": "soak-"},
            "action": action,
            "target": target,
        }
        self._create(COMMANDS, document)
        return f"{action} {name}"

    def lose_a_pod(self) -> str:
        """Somebody deletes a member; now and then without waiting for its end."""
        names = sorted(self.here.pods())
        if not names:
            return "nothing"
        name, at_once = self.rng.choice(names), self.rng.random() < 0.3
        words = ("--force", "--grace-period=0") if at_once else ("--wait=false",)
        self.here.kit.kubectl("delete", "pod", name, "-n", self.here.namespace, *words, check=False)
        return f"{name}{' at once' if at_once else ''}"

    def lose_a_group(self) -> str:
        """Somebody deletes a PodGroup."""
        items = self.api.list(POD_GROUPS, self.here.namespace).items
        # Volcano makes those of Deployments when a pod comes, and not again.
        names = [item["metadata"]["name"] for item in items if not self.volcano or _is_of_a_job(item)]
        if not names:
            return "nothing"
        name: str = self.rng.choice(sorted(names))
        self.api.delete(POD_GROUPS, name, self.here.namespace)
        return name

    def suspend(self) -> str:
        """Or resume a pod and its gang."""
        names = sorted(self.here.pods())
        if not names:
            return "nothing"
        words = (self.rng.choice(["suspend", "resume"]), self.rng.choice(names), "-n", self.here.namespace)
        try:
            self.here.stack.egpu(*words)
        except StoryError as error:
            return f"{words[0]} {words[1]}: {str(error).strip().splitlines()[0]}"
        return f"{words[0]} {words[1]}"

    # --- what they write --------------------------------------------------------------------------

    def _name(self, kind: str) -> str:
        self.serial += 1
        return f"{kind}{self.serial}"

    def _limits(self) -> Json:
        memory_mib = self.rng.choice([4_000, 8_000, 24_000, 48_000, 90_000, None])
        cores = self.rng.choice([None, 10, 50, 100]) if memory_mib is not None else None
        return shares(memory_mib, cores, cards=self.rng.choice([1, 1, 1, 1, 2]))

    def _task(self, name: str, priority: str) -> Task:
        fate = self.rng.random()
        command, lasts_s = RUNS_ON, self.rng.randint(2, 60)
        if self.programs and priority == "low" and self.rng.random() < 0.7:
            command = TRAINS
        if fate < 0.25:
            command = f"sleep {lasts_s}"
        elif fate < 0.35:
            command = f"sleep {lasts_s}; exit 3"
        limits = self._limits() if name == "a" or self.rng.random() < 0.7 else {}
        grace = {"terminationGracePeriodSeconds": self.rng.choice([1, 1, 5])}
        return Task(limits, self.rng.randint(1, 4), name, priority, command, more=grace)

    def _create(self, resource: Resource, document: Json) -> None:
        def create() -> None:
            # It exists where the answer to the first try was lost.
            with contextlib.suppress(AlreadyExists):
                self.api.create(resource, document, self.here.namespace)

        self.here.eventually(create)

    def _named(self, resource: Resource) -> list[str]:
        items = self.api.list(resource, self.here.namespace).items
        return sorted(
            item["metadata"]["name"]
            for item in items
            if resource is not PODS or not item["metadata"].get("ownerReferences")
        )


def _is_of_a_job(group: Json) -> bool:
    owners = group["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] == VOLCANO_JOBS.kind for owner in owners)


def _quiet(spec: Json) -> None:
    (only,) = spec["containers"]
    only["command"] = container(command=RUNS_ON)["command"]
