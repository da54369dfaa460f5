"""Random lives of Jobs with an API server that refuses writes: every Job ends, or an event tells why not.

The controller is the real one, without its threads: watches are late, leaders die between two writes, writes
are answered with 409, 429, 5xx (some of which happened all the same) and with refusals that stay. In between
come Commands, evictions, time-outs of policies, and Jobs that are scaled. Each write is judged.

More lives: ``VC_EGPU_LIVES=2000 pytest tests/property/test_job_lives.py -n 2``.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, cast

import pytest
import seeds
from property.job_api import WATCHED, Died, Judge, Server, phase_of, seen
from vc_egpu.jobs.changes import Changes
from vc_egpu.jobs.health import Metrics
from vc_egpu.jobs.known.cluster import Known
from vc_egpu.jobs.rules.times import timestamp
from vc_egpu.jobs.rules.views import PodPhase
from vc_egpu.jobs.work import Look, Work
from vc_egpu.jobs.workers.groupworker import GroupWorker
from vc_egpu.jobs.workers.jobworker import JobWorker
from vc_egpu.jobs.workers.turns import Turns
from vc_egpu.kube import ApiConnection, Change, ChangeKind, EventRecorder, Key, Resource
from vc_egpu.kube.resources import COMMANDS, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.kube.wire.transport import Transport
from vc_egpu.volcano.words import names

LIVES: Final = int(os.environ.get("VC_EGPU_LIVES") or (600 if os.environ.get("VC_EGPU_LONG") == "1" else 60))
STEPS: Final = 90
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
FINISHED: Final = {"Completed", "Failed", "Terminated"}
RESTS: Final = {*FINISHED, "Aborted"}
TELLING: Final = {"WriteRefused", "FailedCreate", "NotObeyed"}
METRICS: Final = Metrics()
Json = dict[str, Any]


class Leader:
    """One process of the Job controller: what it knows, and what it has to look at."""

    def __init__(self, server: Server, now: Callable[[], float], events: Any, look_s: float) -> None:
        api = ApiConnection(cast("Transport", server))
        self.looks = 0
        self.known = Known()
        self.work = Work(now)
        recorder = cast("EventRecorder", events)
        # Without writers of their own, looks write one after the other; some end after each write.
        turns = Turns(0, look_s=look_s, monotonic=now)
        self.jobs = JobWorker(
            api, self.known, turns=turns, recorder=recorder, metrics=METRICS,
            local_scheduler="default-scheduler", clock=now,
        )  # fmt: skip
        groups = GroupWorker(api, self.known, ask_for_queues=lambda names: None, clock=now)
        self._look: dict[Look, Callable[[Key], float | None]] = {
            Look.JOB: self.jobs.look,
            Look.GROUP: groups.look,
        }
        self._changes = Changes(self.known, self.work, job_gone=self.jobs.forget, pod_gone=self.jobs.pod_gone)
        self._failures: Counter[tuple[Look, Key]] = Counter()
        for resource in WATCHED:
            server.untold[resource].clear()
            for document in server.all(resource).values():
                self.hear(resource, Change(ChangeKind.ADDED, seen(resource, document), None))
        self.work.begin()
        self._changes.ask_for_all()

    def hear(self, resource: Resource, change: Change) -> None:
        self._changes.hear(resource, change)

    def work_off(self) -> None:
        """Look at everything that is due."""
        for _ in range(1000):
            found = [self._one(kind) for kind in (Look.JOB, Look.GROUP)]
            if not any(found):
                return
        raise AssertionError("it looks again and again, and no time passes")

    def _one(self, kind: Look) -> bool:
        queue = self.work.queue(kind)
        key = queue.get(timeout_s=0.0)
        if key is None:
            return False
        self.looks += 1
        try:
            again_s = self._look[kind](key)
        except KubeError:
            failures = self._failures[kind, key]
            self._failures[kind, key] += 1
            queue.add_after(key, min(30.0, 0.05 * 2 ** min(failures, 20)))
        else:
            del self._failures[kind, key]
            if again_s is not None:
                queue.add_after(key, again_s)
        queue.done(key)
        return True


class Life(Judge):
    """A Job ``train`` to which all of it happens, and a Job ``other`` that has to end whatever happens."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = BEGIN
        self.server = Server(self, lambda: timestamp(self.now))
        self.server.answer = self.answer
        self.flaky = 0.0
        self.refused: tuple[str, str, int] | None = None
        """Method, part of the path and status of the writes that are refused for now."""
        self.refused_since = BEGIN
        self.reasons = 0
        self.serial = 0
        self.told: list[tuple[float, str, str]] = []
        self.kept: set[str] = set()
        """UIDs of the pods that the resumed Job keeps."""
        self._put(QUEUES, "", "mine", {"kind": "Queue", "status": {"state": "Open"}})
        self.tasks = self._tasks()
        spec = {**self._spec(), "tasks": self.tasks}
        self._job("train", spec)
        self._job("other", {"tasks": [_task("w", 2)], "minAvailable": 2})
        self.leader = self._leader()

    # --- objects -------------------------------------------------------------------------------------

    def _put(self, resource: Resource, namespace: str, name: str, document: Json) -> Json:
        path = resource.path(namespace or None, name)
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        return self.server.put(path, {"apiVersion": resource.api_version, "metadata": metadata, **document})

    def _job(self, name: str, spec: Json) -> None:
        self._put(
            VOLCANO_JOBS, "mine", name, {"kind": "Job", "spec": {"queue": "mine", **spec}, "status": {}}
        )

    def _tasks(self) -> list[Json]:
        tasks = [_task(name, self.rng.randint(1, 3)) for name in ("a", "b")[: self.rng.choice([1, 2, 2])]]
        if tasks[1:] and self.rng.random() < 0.4:
            tasks[1]["dependsOn"] = {"name": ["a"]}
            # Without an answer to its failure, the other task would wait for it for ever, as in Volcano.
            tasks[0]["policies"] = [{"event": "PodFailed", "action": "RestartTask"}]
        return tasks

    def _spec(self) -> Json:
        rng = self.rng
        actions = ["RestartJob", "RestartTask", "RestartPod", "AbortJob", "TerminateJob", "CompleteJob"]
        policies: list[Json] = []
        triggers: list[Json] = [
            {"exitCode": 42},
            *(
                {"event": event}
                for event in ("PodFailed", "PodEvicted", "Unknown", "PodPending", "TaskCompleted")
            ),
        ]
        for trigger in triggers:
            late = rng.random() < 0.4 or trigger.get("event") == "PodPending"
            if rng.random() < 0.45:
                timeout = {"timeout": rng.choice(["30s", "2m", "5m"])} if late else {}
                policies.append({**trigger, "action": rng.choice(actions[: rng.choice([3, 6])]), **timeout})
        total = sum(task["replicas"] for task in self.tasks)
        spec: Json = {"policies": policies, "maxRetry": rng.choice([1, 3, 6])}
        spec["minAvailable"] = rng.randint(1, total)
        if rng.random() < 0.2:
            spec["ttlSecondsAfterFinished"] = rng.choice([0, 60])
        if rng.random() < 0.2:
            spec["minSuccess"] = rng.randint(1, total)
        if rng.random() < 0.3:
            spec["plugins"] = {"svc": [], "env": []}
        return spec

    def job(self, name: str = "train") -> Json | None:
        return self.server.objects.get(VOLCANO_JOBS.path("mine", name))

    def state(self, name: str = "train") -> Json:
        return dict(((self.job(name) or {}).get("status") or {}).get("state") or {})

    def pods(self, name: str = "train") -> dict[str, Json]:
        return {
            path: pod
            for path, pod in self.server.all(PODS).items()
            if path.rsplit("/", 1)[1].startswith(f"{name}-")
        }

    # --- what the API server answers, and what it sees -------------------------------------------------

    def answer(self, method: str, path: str) -> tuple[int, bool]:
        if self.refused is not None and "other" not in path:
            refused, part, code = self.refused
            if method == refused and part in path:
                return code, False
        if self.rng.random() < self.flaky:
            code = self.rng.choice([409, 429, 500, 503, 504, 504])
            if code == 409 and method == "POST":
                return 429, False  # to a creation it means that the name is taken
            return code, code >= 500 and self.rng.random() < 0.5
        return 0, False

    def event(self, about: Json, kind: str, reason: str, note: str) -> None:
        """The controller tells people."""
        if kind == "Warning" and about["metadata"]["name"] == "train":
            self.told.append((self.now, reason, note))

    def created(self, resource: Resource, body: Json) -> None:
        if resource is not PODS:
            return
        name, version = body["metadata"]["name"], body["metadata"]["annotations"][names.JOB_VERSION]
        job = name.partition("-")[0]
        group = self.server.objects.get(
            POD_GROUPS.path("mine", body["metadata"]["annotations"][names.GROUP_NAME])
        )
        assert group is not None, f"{name} is made without its PodGroup"
        made_for = group["metadata"]["annotations"][names.JOB_VERSION]
        assert made_for == version, f"{name} of try {version} in the PodGroup of try {made_for}"
        for pod in self.pods(job).values():
            older = int(pod["metadata"]["annotations"][names.JOB_VERSION]) < int(version)
            going = "deletionTimestamp" in pod["metadata"]
            runs = phase_of(pod) in {"Pending", "Running"}
            assert not (older and runs and not going), f"{name} is made next to {pod['metadata']['name']}"

    def deleted(self, resource: Resource, present: Json) -> None:
        if resource is COMMANDS and present["action"] != "ResumeJob":
            self.kept.clear()  # it may restart what the Command before it kept
        elif self.state().get("reason") == "ResumeJob":
            assert present["metadata"]["uid"] not in self.kept, "what succeeded is kept by a resumed Job"

    def status_written(self, present: Json, body: Json) -> None:
        old, new = present.get("status") or {}, body["status"]
        for count in ("retryCount", "version"):
            assert 0 <= new.get(count, 0) - old.get(count, 0) <= 1, f"{count}: one at a time"
        before, after = (status.get("state", {}).get("phase") for status in (old, new))
        one_restart = before == after == "Restarting"
        assert not one_restart or old.get("retryCount") == new.get("retryCount"), "one restart, one try"
        assert before not in FINISHED or before == after, f"{before} -> {after}"
        is_resumed = new["state"].get("reason") == "ResumeJob" and before in {"Aborting", "Aborted"}
        if is_resumed and new["retryCount"] < present["spec"]["maxRetry"]:
            known = [pod.view for pod in self.leader.known.pods.all() if pod.view is not None]
            self.kept = {pod.uid for pod in known if pod.phase is PodPhase.SUCCEEDED and not pod.out_of_sync}

    # --- what happens --------------------------------------------------------------------------------

    def moves(self) -> dict[Callable[[], object], int]:
        return {
            self.tick: 12,
            self.hear_some: 14,
            self.look: 14,
            self.kubelet: 10,
            self.fail: 5,
            self.succeed: 5,
            self.evict: 3,
            self.mark: 1,
            self.command: 4,
            self.scale: 1,
            self.die: 1,
            self.die_between_writes: 2,
            self.refuse: 3,
            self.take_again: 2,
            self.be_flaky: 2,
        }

    def step(self) -> None:
        moves = self.moves()
        self.rng.choices(list(moves), list(moves.values()))[0]()

    def tick(self) -> None:
        self.now += self.rng.choice([0.2, 1, 5, 40, 120])

    def hear_some(self) -> None:
        for resource in self.rng.sample(WATCHED, self.rng.randint(1, len(WATCHED))):
            late = self.server.untold[resource]
            for _ in range(self.rng.randint(0, len(late))):
                self.leader.hear(resource, late.pop(0))

    def hear_all(self) -> None:
        for resource in WATCHED:
            while self.server.untold[resource]:
                self.leader.hear(resource, self.server.untold[resource].pop(0))

    def look(self) -> None:
        self.leader.work_off()

    def _leader(self) -> Leader:
        self.server.last_write = None
        return Leader(self.server, lambda: self.now, self, self.rng.choice([0.0, 1.0]))

    def die(self) -> None:
        self.leader = self._leader()

    def die_between_writes(self) -> None:
        self.server.last_write = self.server.writes + self.rng.randint(0, 6)
        try:
            self.leader.work_off()
        except Died:
            self.leader = self._leader()
        self.server.last_write = None

    def kubelet(self) -> None:
        """Pods start, and those that were told to go are gone."""
        for path, pod in self.server.all(PODS).items():
            if self.rng.random() < 0.7:
                self._kubelet_of(path, pod)

    def _kubelet_of(self, path: str, pod: Json) -> None:
        if "deletionTimestamp" in pod["metadata"]:
            self.server.remove(path)
        elif phase_of(pod) == "Pending":
            ready = [{"name": "c", "ready": True, "restartCount": 0, "state": {"running": {}}}]
            status = {"phase": "Running", "containerStatuses": ready}
            self.server.put(path, {**pod, "spec": {**pod["spec"], "nodeName": "n"}, "status": status})

    def _some_pod(self, *phases: str) -> tuple[str, Json] | None:
        found = [
            (path, pod) for path, pod in self.pods().items()
            if phase_of(pod) in phases and "deletionTimestamp" not in pod["metadata"]
        ]  # fmt: skip
        return self.rng.choice(found) if found else None

    def _end(self, path: str, pod: Json, code: int) -> None:
        self.reasons += path.rsplit("/", 1)[1].startswith("train-")
        ends = [
            {"name": name, "state": {"terminated": {"exitCode": one, "finishedAt": timestamp(self.now)}}}
            for name, one in (("agent", 0), ("trainer", code))
        ]
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": ends}
        self.server.put(path, {**pod, "status": status})

    def fail(self) -> None:
        found = self._some_pod("Running")
        if found is not None:
            self._end(*found, self.rng.choice([1, 42]))

    def succeed(self) -> None:
        found = self._some_pod("Running")
        if found is not None:
            self._end(*found, 0)

    def evict(self) -> None:
        found = self._some_pod("Pending", "Running", "Succeeded", "Failed")
        if found is not None:
            self.reasons += 1
            self.kept.discard(found[1]["metadata"]["uid"])
            self.server.delete(found[0])

    def mark(self) -> None:
        """The admission layer wants it made again."""
        found = self._some_pod("Pending", "Running")
        if found is not None:
            path, pod = found
            annotations = {**pod["metadata"]["annotations"], names.OUT_OF_SYNC: "true"}
            self.server.put(path, {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    def command(self) -> None:
        job = self.job()
        if job is None:
            return
        self.serial += 1
        self.reasons += 1
        self.kept.clear()
        choices = [
            "AbortJob",
            "AbortJob",
            "ResumeJob",
            "ResumeJob",
            "RestartJob",
            "RestartTask",
            "RestartPod",
        ]
        action = self.rng.choice([*choices, *self.rng.choice([[], ["TerminateJob"], ["CompleteJob"]])])
        target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train",
                  "uid": job["metadata"]["uid"]}  # fmt: skip
        self._put(
            COMMANDS, "mine", f"train-{self.serial}", {"kind": "Command", "action": action, "target": target}
        )

    def scale(self) -> None:
        job = self.job()
        if job is not None:
            tasks = [{**task} for task in job["spec"]["tasks"]]
            self.rng.choice(tasks)["replicas"] = self.rng.randint(1, 4)
            self._put(VOLCANO_JOBS, "mine", "train", {**job, "spec": {**job["spec"], "tasks": tasks}})

    def refuse(self) -> None:
        """From now on one kind of write is refused."""
        self.refused_since = self.now
        self.refused = self.rng.choice([
            ("POST", "/pods", self.rng.choice([403, 404, 422, 500])),
            ("POST", "/podgroups", self.rng.choice([403, 404, 422])),
            ("POST", "/configmaps", self.rng.choice([403, 422])),
            ("DELETE", "/pods/train-", self.rng.choice([403, 422, 500])),
            ("DELETE", "/pods/train-a-0", self.rng.choice([403, 422, 500])),
            ("DELETE", "/podgroups/train-", 403),
            ("DELETE", "/commands/train-", 403),
            ("DELETE", "/jobs/train", 403),
            ("PATCH", "/pods/train-", self.rng.choice([403, 422])),
            ("PATCH", "/podgroups/train-", self.rng.choice([403, 422])),
            ("PUT", "/jobs/train", self.rng.choice([403, 422])),
        ])  # fmt: skip

    def take_again(self) -> None:
        self.refused = None

    def be_flaky(self) -> None:
        self.flaky = self.rng.choice([0.0, 0.1, 0.4])

    # --- how it ends ---------------------------------------------------------------------------------

    def calm(self, rounds: int, *, to_rest: bool = False) -> None:
        """No more trouble: pods start and succeed, the watches keep up. ``to_rest``: until all is done."""
        for _ in range(rounds):
            if to_rest and self.at_rest() and self.at_rest("other") and not self.server.all(COMMANDS):
                break
            self.now += 5
            self.hear_all()
            self.look()
            for path, pod in self.server.all(PODS).items():
                if phase_of(pod) == "Running" and "deletionTimestamp" not in pod["metadata"]:
                    self._end(path, pod, 0)
                else:
                    self._kubelet_of(path, pod)

    def at_rest(self, name: str = "train") -> bool:
        """Ended, aborted or not begun, and nothing of it is left to do; or deleted after its time."""
        job = self.job(name)
        if job is None:
            return True
        live = [pod for pod in self.pods(name).values() if phase_of(pod) in {"Pending", "Running"}]
        state = self.state(name)
        return (state.get("phase") in RESTS or state.get("reason") == "Refused") and not live

    def its_end(self) -> None:
        """All is mended: the Job comes to its end, and then nothing is done any more."""
        self.refused, self.flaky = None, 0.0
        self.calm(400, to_rest=True)
        self.calm(20)
        assert self.at_rest(), f"still {self.state()}"
        assert not self.server.all(COMMANDS) or self.job() is None or self.passed_over()
        groups = [path for path in self.server.all(POD_GROUPS) if "train" in path]
        assert not groups or self.job() is None or self.state().get("reason") == "Refused"
        writes, looks = self.server.writes, self.leader.looks
        self.calm(120)
        assert self.server.writes == writes, "nothing is left to do"
        assert self.leader.looks <= looks + 4, "it looks again and again"

    def passed_over(self) -> bool:
        """A Command that could not be deleted waits for the next leader."""
        return any(reason in {"NotObeyed", "WriteRefused"} for _, reason, _ in self.told)


def _task(name: str, replicas: int) -> Json:
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
    }


@pytest.mark.parametrize("seed", seeds.fresh(LIVES))
def test_every_job_ends_or_says_why_whatever_the_api_server_refuses(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.flaky = 0.0
    life.calm(200, to_rest=True)
    assert life.at_rest("other"), "what is refused to one Job holds up another"
    if not life.at_rest():
        looks, told = life.leader.looks, len(life.told)
        life.calm(120)
        assert life.leader.looks - looks <= 120, "it spins"
        why = [(reason, note) for at, reason, note in life.told if at >= life.refused_since]
        assert len(life.told) > told or why, f"nothing tells why it is {life.state()}: {life.refused}"
        assert {reason for reason, _ in why} & TELLING
    life.its_end()
    retries = ((life.job() or {}).get("status") or {}).get("retryCount", 0)
    lasting = {"PodPending", "Unknown"} & {policy.get("event") for policy in _policies(life)}
    assert lasting or retries <= life.reasons, "no try without a reason"


def _policies(life: Life) -> list[Json]:
    job = life.job() or {"spec": {"policies": [], "tasks": []}}
    own = [policy for task in job["spec"]["tasks"] for policy in task.get("policies") or ()]
    return [*(job["spec"].get("policies") or ()), *own]
