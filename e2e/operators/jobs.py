"""Two members with a card each, as a team writes them for each operator. Plain documents, low priority."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from outcomes.workload import container, pod_spec, shares
from vc_egpu.volcano.words import names

Json = dict[str, Any]
UNTIL_KILLED: Final = "while :; do sleep 0.2; done"
"""Ends with an error when it is evicted, as training does."""
_LOW: Final = {names.PRIORITY: "low"}
KUEUES_QUEUE: Final = "team"
"""And its ClusterQueue, of which all teams take."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of work of an operator's."""

    name: str
    """For kubectl."""
    cards: tuple[int, ...]
    """Of each member, the fewest first."""
    document: Callable[[str, str], Json]
    """Of a name and a queue."""
    before: Callable[[str], tuple[Json, ...]] = lambda _queue: ()
    """What a platform team makes for a queue."""

    @property
    def members(self) -> int:
        """Pods with and without cards."""
        return len(self.cards)


def _template(name: str, limits: Json, annotations: Json | None = None, **more: Any) -> Json:
    annotations = {**_LOW, **(annotations or {})}
    spec = pod_spec(container(name, limits, UNTIL_KILLED), **more)
    return {"metadata": {"annotations": annotations}, "spec": spec}


def pytorch_job(name: str, queue: str) -> Json:
    """A master and a worker, for the Training operator."""
    replica = {
        "replicas": 1,
        "restartPolicy": "OnFailure",
        "template": _template("pytorch", shares()),
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"schedulingPolicy": {"queue": queue}},
            "pytorchReplicaSpecs": {"Master": replica, "Worker": replica},
        },
    }


def ray_cluster(name: str, queue: str) -> Json:
    """A head without cards and two workers, for KubeRay. Our containers have no Ray: they run a loop."""
    workers = {
        "groupName": "small",
        "replicas": 2,
        "minReplicas": 2,
        "maxReplicas": 2,
        "rayStartParams": {},
        "template": _template("ray-worker", shares()),
    }
    head = {"rayStartParams": {}, "template": _template("ray-head", {})}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "labels": {"volcano.sh/queue-name": queue},
            "annotations": {"ray.io/overwrite-container-cmd": "true"},
        },
        "spec": {"rayVersion": "2.52.0", "headGroupSpec": head, "workerGroupSpecs": [workers]},
    }


def batch_job(name: str, queue: str) -> Json:
    """Two pods of a batch Job, which Kueue holds back until its own quota has room. They are a gang by
    annotation: otherwise each is admitted by itself."""
    gang = {names.QUEUE_NAME: queue, names.GROUP_MIN_MEMBER: "2"}
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": KUEUES_QUEUE}},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "podFailurePolicy": {"rules": [ignored]},
            "template": _template("main", shares(), gang, restartPolicy="Never"),
        },
    }


def training_runtime(queue: str) -> Json:
    """What a platform team offers for TrainJobs of a queue, with a gang by Volcano's PodGroup."""
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    node = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {
                "podFailurePolicy": {"rules": [ignored]},
                "template": _template("node", shares(), restartPolicy="Never"),
            },
        },
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": queue, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "podGroupPolicy": {"volcano": {}},
            "template": {
                "metadata": {"annotations": {names.QUEUE_NAME: queue}},
                "spec": {"replicatedJobs": [node]},
            },
        },
    }


def train_job(name: str, queue: str) -> Json:
    """Two nodes of the queue's runtime, for Trainer."""
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": queue}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": reference},
    }


def kueues_queue() -> tuple[Json, ...]:
    """A queue of Kueue's with as much as the cluster has."""
    api = "kueue.x-k8s.io/v1beta2"
    quota = {"cpu": "100", "memory": "100Gi", names.shared_resource("h20"): "8"}
    flavor = {"name": "cards", "resources": [{"name": k, "nominalQuota": v} for k, v in quota.items()]}
    groups = [{"coveredResources": list(quota), "flavors": [flavor]}]
    name = {"name": KUEUES_QUEUE}
    return (
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "cards"}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": name,
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        {"apiVersion": api, "kind": "LocalQueue", "metadata": name, "spec": {"clusterQueue": KUEUES_QUEUE}},
    )


PYTORCH_JOB: Final = Kind("pytorchjob", (1, 1), pytorch_job)
RAY_CLUSTER: Final = Kind("raycluster", (0, 1, 1), ray_cluster)
"""Its head needs no card and is a member."""
TRAIN_JOB: Final = Kind("trainjob", (1, 1), train_job, lambda queue: (training_runtime(queue),))
BATCH_JOB: Final = Kind("job", (1, 1), batch_job, lambda _queue: kueues_queue())
