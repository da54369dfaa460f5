"""What one tenant writes must not reach another's Jobs and queues, nor the controller itself."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.jobs.running import running_beside
from unit.jobs.worlds import task
from unit.kube.tiny_api import TinyApi
from vc_egpu.jobs.controller import Controller
from vc_egpu.kube import Change, ChangeKind
from vc_egpu.volcano import names

Json = dict[str, Any]
CENTURIES = "9999999h"
"""1,141 years: longer than any lock of Python waits."""


class Cluster:
    """A controller that is told of objects as by its watches, and the API server that holds them."""

    def __init__(self, controller: Controller, server: TinyApi) -> None:
        self.controller, self.server = controller, server
        self.controller._leading.set()  # without workers: the tests look themselves

    def queue(self, name: str) -> Json:
        path = f"/apis/scheduling.volcano.sh/v1beta1/queues/{name}"
        document = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {},
            "status": {"state": "Open"},
        }
        self.controller._queue_changed(Change(ChangeKind.ADDED, self.server.put(f"{path}/status", document)))
        return document

    def job(self, namespace: str, name: str = "train", **spec: Any) -> Json:
        path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs/{name}"
        document = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}"},
            "spec": {"tasks": [task(replicas=1)], "minAvailable": 1, "queue": "mine", **spec},
        }
        self.controller._job_changed(Change(ChangeKind.ADDED, self.server.put(f"{path}/status", document)))
        return document

    def command(self, action: str, target: Json, *, namespace: str = "mine", **otherwise: str) -> None:
        """A Command for it, whose ``otherwise`` tells of the target what is not so."""
        path = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands/c"
        metadata = target["metadata"]
        told = {"apiVersion": target["apiVersion"], "kind": target["kind"], "name": metadata["name"]}
        document = {
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "kind": "Command",
            "metadata": {"name": "c", "namespace": namespace},
            "action": action,
            "target": {**told, "uid": metadata["uid"], **otherwise},
        }
        self.controller._command_changed(Change(ChangeKind.ADDED, self.server.put(path, document)))

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
        self.controller._pod_changed(Change(ChangeKind.ADDED, self.server.put(path, document)))

    def look_at_queue(self, name: str) -> str:
        """The queue's state after a look at it."""
        self.controller._queue_worker.look(name)
        known = self.controller._queues.get(("", name))
        return str((known or {})["status"]["state"])

    def look_at_job(self, namespace: str, name: str = "train") -> tuple[str, int]:
        """The Job's phase and its retries after a look at it."""
        self.controller._job_worker.look((namespace, name))
        status = (self.controller._jobs.get((namespace, name)) or {}).get("status") or {}
        return status.get("state", {}).get("phase", ""), status.get("retryCount", 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_beside(Controller, tmp_path) as (controller, server):
        made = Cluster(controller, server)
        made.queue("mine")
        yield made


def test_a_command_closes_the_queue_that_it_names(cluster: Cluster) -> None:
    cluster.command("CloseQueue", cluster.queue("mine"))
    assert cluster.look_at_queue("mine") == "Closed"


def test_a_command_for_one_queue_with_the_uid_of_another_closes_neither(cluster: Cluster) -> None:
    """The door asks whether its author may update the queue that is named; everybody sees all UIDs."""
    cluster.command("CloseQueue", cluster.queue("theirs"), name="mine")
    assert cluster.look_at_queue("theirs") == "Open"
    assert cluster.look_at_queue("mine") == "Open"


def test_a_command_ends_the_job_that_it_names(cluster: Cluster) -> None:
    cluster.command("TerminateJob", cluster.job("mine"))
    assert cluster.look_at_job("mine")[0] == "Terminating"


@pytest.mark.parametrize(
    ("namespace", "otherwise"), [("mine", {}), ("mine", {"name": "other"}), ("theirs", {"name": "other"})]
)
def test_a_command_of_another_namespace_or_name_ends_no_job(
    cluster: Cluster, namespace: str, otherwise: dict[str, str]
) -> None:
    """The door asks whether its author may update the Job of that name in the Command's own namespace."""
    theirs = cluster.job("theirs")
    cluster.command("TerminateJob", theirs, namespace=namespace, **otherwise)
    assert cluster.look_at_job("theirs")[0] == "Pending"


def test_a_pod_of_another_namespace_is_no_pod_of_a_job(cluster: Cluster) -> None:
    """It would take the place of a pod of the Job's, and use up its retries by failing."""
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    theirs = cluster.job("theirs", policies=policies)
    cluster.pod("mine", theirs)
    assert cluster.look_at_job("theirs") == ("Pending", 0)
    assert "/api/v1/namespaces/theirs/pods/train-w-0" in cluster.server.objects


def test_a_timeout_of_centuries_leaves_the_workers_alive(cluster: Cluster) -> None:
    """Waiting for it, a lock of Python raises, and outside of any look: each of them would have ended."""
    cluster.job("mine", policies=[{"event": "PodPending", "action": "RestartJob", "timeout": CENTURIES}])
    worker = cluster.controller._job_worker
    worker.look(("mine", "train"))  # makes the pod
    again_s = worker.look(("mine", "train"))
    assert again_s is not None
    assert again_s < threading.TIMEOUT_MAX
