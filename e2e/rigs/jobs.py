"""A Job controller alone on a cluster: ours, or Volcano's own with its scheduler as the enqueuer.

The stories of ``test_jobs.py`` are told to both, so that one says what the other should do.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from localcluster import LocalCluster, images
from stack.hostprocess import HostProcess
from stack.kit import Kit, is_running
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import (
    COMMANDS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    QUEUES,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.api.client import VolcanoClient
from vc_egpu.volcano.api.crds import files
from vc_egpu.volcano.api.job import Job
from volcano.processes import Volcano, VolcanoProcesses

Json = dict[str, Any]
T = TypeVar("T")
NAMESPACE: Final = "jobs"
SYSTEM: Final = "vc-egpu-system"
LEASE_S: Final = 3
FAILED_RESTARTS_JOB: Final = [{"event": "PodFailed", "action": "RestartJob"}]
EVICTED_RESTARTS_JOB: Final = [{"event": "PodEvicted", "action": "RestartJob"}]


@dataclass(frozen=True)
class JobsRig:
    """One cluster with one real node and simulated ones, and a Job controller."""

    cluster: LocalCluster
    api: ApiConnection
    kit: Kit
    client: VolcanoClient
    controller: HostProcess
    ours: bool

    # --- submit and wait -----------------------------------------------------------------------------

    def submit(self, name: str, *tasks: Json, **spec: Any) -> Job:
        """Create a Job."""
        return self.client.jobs.create(Job.parse(job(name, *tasks, **spec)))

    def job(self, name: str) -> Job:
        return self.client.jobs.get(name, NAMESPACE)

    def until_job(self, name: str, what: str, check: Callable[[Job], T | None], timeout_s: float = 60) -> T:
        """Wait for something about one Job."""

        def look(objects: dict[str, Json]) -> T | None:
            return check(Job.parse(objects[name])) if name in objects else None

        return self.kit.until(f"{name}: {what}", VOLCANO_JOBS, look, namespace=NAMESPACE, timeout_s=timeout_s)

    def until_phase(self, name: str, phase: str, timeout_s: float = 60) -> Job:
        """Wait until the Job is in this phase."""
        return self.until_job(
            name, f"phase {phase}", lambda j: j if j.status.state.phase == phase else None, timeout_s
        )

    def until_pods(self, name: str, what: str, check: Callable[[dict[str, Json]], T | None]) -> T:
        """Wait for something about a Job's pods (by name)."""
        label = f"volcano.sh/job-name={name}"
        return self.kit.until(
            f"{name}: {what}", PODS, check, namespace=NAMESPACE, label_selector=label, timeout_s=60
        )

    def until_running(self, name: str, count: int) -> dict[str, Json]:
        """Wait until exactly so many pods of the Job run and there are no others."""

        def check(pods: dict[str, Json]) -> dict[str, Json] | None:
            up = {n: p for n, p in pods.items() if is_running(p)}
            return up if len(up) == len(pods) == count else None

        return self.until_pods(name, f"{count} pods run", check)

    def until_replaced(self, name: str, before: dict[str, str], replaced: set[str]) -> dict[str, str]:
        """Wait until exactly these pods of the Job are others and all run; all UIDs by name."""

        def check(pods: dict[str, Json]) -> dict[str, str] | None:
            found = uids(pods)
            if found.keys() != before.keys() or not all(map(is_running, pods.values())):
                return None
            return found if {n for n in before if found[n] != before[n]} == replaced else None

        return self.until_pods(name, f"{sorted(replaced)} replaced", check)

    def until_gone(self, name: str) -> None:
        """Wait until the Job is not there any more."""
        self.kit.until(
            f"{name} is gone",
            VOLCANO_JOBS,
            lambda jobs: name not in jobs or None,
            namespace=NAMESPACE,
        )

    def group_of(self, job_: Job) -> Json:
        return self.api.get(POD_GROUPS, job_.pod_group_name(), NAMESPACE)

    # --- interfere -----------------------------------------------------------------------------------

    def scale(self, name: str, replicas: int) -> None:
        """The Job's only task has so many members from now on, and needs them all."""
        changes = [
            {"op": "replace", "path": "/spec/minAvailable", "value": replicas},
            {"op": "replace", "path": "/spec/tasks/0/replicas", "value": replicas},
            {"op": "replace", "path": "/spec/tasks/0/minAvailable", "value": replicas},
        ]
        self.api.patch(VOLCANO_JOBS, name, changes, NAMESPACE, kind="json")

    def end_pod(self, name: str, phase: str, exit_code: int = 0) -> None:
        """Make a simulated pod end."""
        state = {"terminated": {"exitCode": exit_code, "finishedAt": "2025-01-01T00:00:00Z"}}
        container = {
            "name": "c",
            "image": "x",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        body = {"status": {"phase": phase, "containerStatuses": [container]}}
        self.api.patch(PODS, name, body, NAMESPACE, kind="merge", subresource="status")

    def clean(self) -> None:
        """Remove what a story left."""
        for resource in (COMMANDS, VOLCANO_JOBS, DEPLOYMENTS):
            for item in self.api.list(resource, NAMESPACE).items:
                with suppress(NotFound):
                    self.api.delete(resource, item["metadata"]["name"], NAMESPACE, propagation="Background")
        self.api.delete_collection(PODS, NAMESPACE, grace_period_s=0)
        self.kit.until("no pods left", PODS, lambda pods: not pods or None, namespace=NAMESPACE)
        self.api.delete_collection(POD_GROUPS, NAMESPACE)


def uids(pods: dict[str, Json]) -> dict[str, str]:
    """Pod name to UID."""
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}


def simulated(name: str = "w", replicas: int = 2, **more: Any) -> Json:
    """A task whose pods run on simulated nodes until somebody ends them."""
    return task(
        name, replicas, {"nodeSelector": {"type": "kwok"}, "tolerations": [{"operator": "Exists"}]}, **more
    )


def real(script: str, name: str = "w", replicas: int = 1, **more: Any) -> Json:
    """A task that runs a shell script on the real node."""
    return task(name, replicas, {"nodeSelector": {"story": "real"}}, script, **more)


def task(name: str, replicas: int, spec: Json, script: str = "true", **more: Any) -> Json:
    """A task; ``more`` in camel case."""
    container = {
        "name": "c",
        "image": images.BUSYBOX_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "resources": {"requests": {"cpu": "10m"}},
    }
    pod_spec = {
        "schedulerName": "default-scheduler",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        **spec,
    }
    # Everything that Volcano's webhook would fill in is written out: it does not run here.
    return {
        "name": name,
        "replicas": replicas,
        "minAvailable": replicas,
        "maxRetry": 3,
        "template": {"spec": pod_spec},
        **more,
    }


def job(name: str, *tasks: Json, **spec: Any) -> Json:
    """A Job of these tasks."""
    spec.setdefault("minAvailable", sum(t["minAvailable"] for t in tasks))
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedulerName": "default-scheduler", "queue": "default", "tasks": list(tasks), **spec},
    }


def controller_argv(cluster: LocalCluster, *flags: str) -> list[str]:
    """Our Job controller as a program of this machine, with a lease that changes hands quickly."""
    return [
        *(sys.executable, "-m", "vc_egpu.cli.main", "jobs", "--kubeconfig", str(cluster.kubeconfig)),
        *("--lease-namespace", SYSTEM, "--lease-duration", str(LEASE_S)),
        *("--renew-deadline", "2", "--retry-period", "0.5", "--metrics-port", "0", *flags),
    ]


def ours(cluster: LocalCluster) -> JobsRig:
    """Our controller and our CRDs."""
    for content in files().values():
        cluster.kubectl("apply", "--server-side", "-f", "-", text_in=content)
    return _rig(cluster, HostProcess(cluster, "jobs", controller_argv(cluster)), is_ours=True)


def volcanos(cluster: LocalCluster, volcano: Volcano) -> JobsRig:
    """Volcano's controllers and CRDs, and its scheduler, which enqueues."""
    volcano.install_crds(cluster)
    processes = VolcanoProcesses.of(cluster, volcano, "own")
    processes.start(webhook=False)
    return _rig(cluster, processes.controllers, is_ours=False)


def _rig(cluster: LocalCluster, controller: HostProcess, *, is_ours: bool) -> JobsRig:
    api = ApiConnection.connect(cluster.kubeconfig)
    kit = Kit(api, cluster.kubectl)
    for name in (NAMESPACE, SYSTEM):
        kit.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    kit.until(
        "the CRD of Jobs is there",
        CUSTOM_RESOURCE_DEFINITIONS,
        lambda found: any(name.startswith(f"{Job.PLURAL}.") for name in found) or None,
    )
    if is_ours:
        queue = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "default"}}
        kit.apply({**queue, "spec": {"weight": 1}})
        controller.start()
    cluster.kubectl("label", "node", cluster.nodes[0].name, "story=real", "--overwrite")
    kit.until("namespace", NAMESPACES, lambda found: NAMESPACE in found or None)
    return JobsRig(cluster, api, kit, VolcanoClient(api), controller, is_ours)
