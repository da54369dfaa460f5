"""A controller that is told of objects as by its watches, and the API server that holds them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from unit.jobs.running import NO_WORKERS, Clock, running_beside
from unit.jobs.worlds import task
from unit.kube.tiny_api import TinyApi
from vc_egpu.jobs.controller import Controller
from vc_egpu.jobs.known.pods import trim
from vc_egpu.jobs.work import Look
from vc_egpu.kube import Change, ChangeKind, EventRecorder, Key, Resource, key_of
from vc_egpu.kube.resources import COMMANDS, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.volcano.words import names

Json = dict[str, Any]


class Cluster:
    """The controller leads, without workers: the tests look themselves. Its clock stands still."""

    def __init__(
        self, controller: Controller, server: TinyApi, recorder: EventRecorder, clock: Clock
    ) -> None:
        self.controller, self.server, self.recorder, self.clock = controller, server, recorder, clock
        self.controller.lead()

    def tell(self, resource: Resource, new: Json, old: Json | None = None) -> None:
        """A watch reports that the object is there, or that it changed."""
        kind = ChangeKind.ADDED if old is None else ChangeKind.MODIFIED
        self.controller.hear(resource, Change(kind, new, old))

    def tell_end(self, resource: Resource, last: Json) -> None:
        """A watch reports that the object is deleted."""
        self.controller.hear(resource, Change(ChangeKind.DELETED, last, last))

    def queue(self, name: str) -> Json:
        path = f"/apis/scheduling.volcano.sh/v1beta1/queues/{name}"
        document = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {},
            "status": {"state": "Open"},
        }
        self.tell(QUEUES, self.server.put(f"{path}/status", document))
        return document

    def job(self, namespace: str, name: str = "train", **spec: Any) -> Json:
        path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs/{name}"
        document = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
            "spec": {"tasks": [task(replicas=1)], "minAvailable": 1, "queue": "mine", **spec},
        }
        self.tell(VOLCANO_JOBS, self.server.put(f"{path}/status", document))
        return document

    def edit_job(self, namespace: str, name: str = "train", **spec: Any) -> None:
        """Somebody writes this into its spec."""
        path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs/{name}/status"
        old = self.server.objects[path]
        metadata = {**old["metadata"], "generation": old["metadata"].get("generation", 1) + 1}
        new = self.server.put(path, {**old, "metadata": metadata, "spec": {**old["spec"], **spec}})
        self.tell(VOLCANO_JOBS, new, old)

    def command(
        self, action: str, target: Json, *, namespace: str = "mine", called: str = "c", **otherwise: str
    ) -> None:
        """A Command for it, whose ``otherwise`` tells of the target what is not so."""
        path = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands/{called}"
        metadata = target["metadata"]
        told = {"apiVersion": target["apiVersion"], "kind": target["kind"], "name": metadata["name"]}
        document = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {
                "name": called,
                "namespace": namespace,
                "creationTimestamp": "2025-06-15T15:00:00Z",
            },
            "action": action,
            "target": {**told, "uid": metadata["uid"], **otherwise},
        }
        self.tell(COMMANDS, self.server.put(path, document))

    def pod(self, namespace: str, owner: Json, name: str = "train-w-0", phase: str = "Failed") -> None:
        """A pod that says that it is one of this Job's."""
        reference = {key: owner[key] for key in ("apiVersion", "kind")} | {"controller": True}
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": {names.TASK_SPEC: "w", names.JOB_VERSION: "0"},
                "ownerReferences": [
                    {**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
                ],
            },
            "spec": {},
            "status": {"phase": phase},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.tell(PODS, self.server.put(path, document))

    def group(self, name: str, queue: str, namespace: str = "mine", owner: Json | None = None) -> None:
        """A PodGroup that names this queue, made for ``owner``."""
        path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups/{name}"
        document = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "ownerReferences": [{**owner, "controller": True}] if owner else [],
            },
            "spec": {"minMember": 1, "queue": queue},
            "status": {"phase": "Running", "running": 1},
        }
        old = self.server.objects.get(path)
        self.tell(POD_GROUPS, self.server.put(path, document), old)

    def member(self, name: str, group: str, *, checked: str = "", managed: bool = True, **more: Any) -> None:
        """A pod of one CPU that runs, of a PodGroup, checked for a queue; ``more`` of its status."""
        path = f"/api/v1/namespaces/mine/pods/{name}"
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "mine",
                "labels": {names.MANAGED_LABEL: "true"} if managed else {},
                "annotations": {names.GROUP_NAME: group} | ({names.QUEUE_NAME: checked} if checked else {}),
            },
            "spec": {"nodeName": "n1", "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running"} | more,
        }
        old = self.server.objects.get(path)
        self.tell(PODS, trim(self.server.put(path, document)), old and trim(old))

    def asked(self, kind: Look) -> set[Key]:
        """The objects that wait for this kind of look, now or in a minute; the test takes them all."""
        self.clock.now += 60.0
        queue, found = self.controller.work.queue(kind), set()
        while (key := queue.get(timeout_s=0.0)) is not None:
            queue.done(key)
            found.add(key)
        return found

    def queues_asked(self) -> set[str]:
        """The names of the queues that wait for a look; the test takes them all."""
        return {name for _, name in self.asked(Look.QUEUE)}

    def use_of(self, name: str) -> tuple[int, str]:
        """Running gangs and CPUs that the queue's status tells after a look at it."""
        self.look_at_queue(name)
        status = (self.controller.known.queues.get(("", name)) or {})["status"]
        return status["running"], status["allocated"].get("cpu", "0")

    def events(self) -> list[tuple[str, str]]:
        """(reason, note) of all that was said so far; nothing can be said afterwards."""
        self.recorder.stop()
        found = [value for path, value in self.server.objects.items() if "/events/" in path]
        return [(event["reason"], event["note"]) for event in found]

    def look_at_queue(self, name: str) -> str:
        """The queue's state after a look at it."""
        self.controller.look(Look.QUEUE, ("", name))
        known = self.controller.known.queues.get(("", name))
        return str((known or {})["status"]["state"])

    def look_at_job(self, namespace: str, name: str = "train") -> tuple[str, int]:
        """The Job's phase and its retries after a look at it."""
        self.controller.look(Look.JOB, (namespace, name))
        retries: int = self._job_status(namespace, name).get("retryCount", 0)
        return self.phase_of_job(namespace, name), retries

    def look_in(self, namespace: str, name: str = "train") -> float | None:
        """Look at the Job; in how many seconds it asks for the next look, None for when it changes."""
        return self.controller.look(Look.JOB, (namespace, name))

    def phase_of_job(self, namespace: str, name: str = "train") -> str:
        """The phase that was written last."""
        return str(self._job_status(namespace, name).get("state", {}).get("phase", ""))

    def run_pod(self, path: str, phase: str = "Running") -> None:
        """The pod is at its place and runs, or is in another ``phase``."""
        pod = self.server.objects[path]
        runs = self.server.put(path, {**pod, "status": {"phase": phase}})
        self.tell(PODS, trim(runs), trim(pod))

    def tell_what_went(self) -> None:
        """The watches tell of pods and PodGroups that are deleted."""
        for pod in self.controller.known.pods.all():
            if f"/api/v1/namespaces/{pod.key[0]}/pods/{pod.key[1]}" not in self.server.objects:
                self.tell_end(PODS, pod.document)
        folder = "/apis/scheduling.volcano.sh/v1beta1/namespaces"
        for group in self.controller.known.groups.all():
            namespace, name = key_of(group)
            if f"{folder}/{namespace}/podgroups/{name}" not in self.server.objects:
                self.tell_end(POD_GROUPS, group)

    def _job_status(self, namespace: str, name: str) -> Json:
        known: Json = (self.controller.known.jobs.get((namespace, name)) or {}).get("status") or {}
        return known


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """One with a queue ``mine``; ``folder`` is for its kubeconfig."""
    clock = Clock()
    with running_beside(Controller, folder, NO_WORKERS, monotonic=clock) as (controller, server, recorder):
        made = Cluster(controller, server, recorder, clock)
        made.queue("mine")
        yield made
