"""Two members with a card each, as a team writes them for each operator. Plain documents, low priority."""

from typing import Any, Final

from outcomes.workload import container, pod_spec, shares
from vc_egpu.volcano.words import names

Json = dict[str, Any]
UNTIL_KILLED: Final = "while :; do sleep 0.2; done"
"""Ends with an error when it is evicted, as training does."""
_LOW: Final = {names.PRIORITY: "low"}
KUEUES_QUEUE: Final = "team"


def _template(name: str, limits: Json, queue: str = "", **more: Any) -> Json:
    annotations = {**_LOW, **({names.QUEUE_NAME: queue} if queue else {})}
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
    """Two pods of a batch Job, which Kueue holds back until its own quota has room."""
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": KUEUES_QUEUE}},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "podFailurePolicy": {"rules": [ignored]},
            "template": _template("main", shares(), queue, restartPolicy="Never"),
        },
    }


def training_runtime(name: str, queue: str) -> Json:
    """What a platform team offers for TrainJobs, with a gang by Volcano's PodGroup."""
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
        "metadata": {"name": name, "labels": {"trainer.kubeflow.org/framework": "plain"}},
        "spec": {
            "mlPolicy": {"numNodes": 2},
            "podGroupPolicy": {"volcano": {}},
            "template": {
                "metadata": {"annotations": {names.QUEUE_NAME: queue}},
                "spec": {"replicatedJobs": [node]},
            },
        },
    }


def train_job(name: str, runtime: str) -> Json:
    """Two nodes of that runtime, for Trainer."""
    reference = {"apiGroup": "trainer.kubeflow.org", "kind": "TrainingRuntime", "name": runtime}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": reference},
    }


def kueues_queue(namespace: str) -> tuple[Json, ...]:
    """A queue of Kueue's with as much as the cluster has."""
    api = "kueue.x-k8s.io/v1beta2"
    quota = {"cpu": "100", "memory": "100Gi", names.shared_resource("h20"): "8"}
    flavor = {"name": "cards", "resources": [{"name": k, "nominalQuota": v} for k, v in quota.items()]}
    groups = [{"coveredResources": list(quota), "flavors": [flavor]}]
    queue = {"namespaceSelector": {}, "resourceGroups": groups}
    return (
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "cards"}},
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": namespace}, "spec": queue},
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": KUEUES_QUEUE, "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
    )
