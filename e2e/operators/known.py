"""The operators that are tried, each with the settings that our pages name for it."""

from typing import Any, Final

import yaml
from localcluster.images import BUSYBOX_IMAGE

from operators.install import Operator

Json = dict[str, Any]
_RBAC: Final = "rbac.authorization.k8s.io"
_PARTS_OF_SHARES: Final = ("volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores", "volcano.sh/vgpu-h20-")
_POD_GROUPS: Final[Json] = {
    "apiGroups": ["scheduling.volcano.sh"],
    "resources": ["podgroups"],
    "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
}


def _may_make_groups(account: str, namespace: str) -> tuple[Json, Json]:
    """As the operator's own chart gives it, where it is told of Volcano."""
    name = f"{account}-podgroups"
    head = {"apiVersion": f"{_RBAC}/v1", "metadata": {"name": name}}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name}
    return (
        {**head, "kind": "ClusterRole", "rules": [_POD_GROUPS]},
        {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]},
    )


def _knows_our_shares(document: Json) -> None:
    """As docs/operator-with-other-plugins.md says: what is counted a card is not Kueue's to sum up."""
    if document["kind"] == "ConfigMap" and "controller_manager_config.yaml" in document.get("data", {}):
        text = document["data"]["controller_manager_config.yaml"]
        settings = yaml.safe_load(text)
        settings["integrations"] = {"frameworks": ["batch/job"]}
        settings["resources"] = {"excludeResourcePrefixes": list(_PARTS_OF_SHARES)}
        document["data"]["controller_manager_config.yaml"] = yaml.safe_dump(settings)


def _looks_for_its_master(document: Json) -> None:
    """The nslookup of today's busybox fails where one of several search domains has no such name."""
    if document["kind"] == "Deployment":
        pod = document["spec"]["template"]["spec"]
        name = _INIT_CONTAINER["metadata"]["name"]
        pod["volumes"].append({"name": name, "configMap": {"name": name}})
        mount = {"name": name, "mountPath": "/etc/config", "readOnly": True}
        pod["containers"][0]["volumeMounts"].append(mount)


def _in_trainers_namespace(document: Json) -> None:
    """As its own overlay does, which would fetch JobSet's manifests besides."""
    metadata = document["metadata"]
    if document["kind"] in _TRAINERS_NAMESPACED:
        metadata["namespace"] = _TRAINER
    for subject in document.get("subjects") or ():
        subject["namespace"] = _TRAINER
    for webhook in document.get("webhooks") or ():
        webhook["clientConfig"]["service"]["namespace"] = _TRAINER


_TRAINER: Final = "kubeflow-system"
_TRAINERS_NAMESPACED: Final = frozenset(
    {"ConfigMap", "Deployment", "Role", "RoleBinding", "Service", "ServiceAccount"}
)
_NEW_NAMESPACE: Final[Json] = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _TRAINER}}
_CERTIFICATE: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "kubeflow-trainer-webhook-cert", "namespace": _TRAINER},
}
_LOOKS: Final = "until nslookup {{.MasterAddr}} | grep -q ^Name; do sleep 0.2; done"
_INIT_CONTAINERS: Final = [
    {
        "name": "init-pytorch",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", _LOOKS],
    }
]
_INIT_CONTAINER: Final[Json] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "init-container", "namespace": "kubeflow"},
    # The operator takes it for a template before it takes it for YAML.
    "data": {"initContainer.yaml": yaml.safe_dump(_INIT_CONTAINERS)},
}
TRAINING: Final = Operator(
    "training-operator",
    ("manifests/overlays/standalone",),
    "kubeflow",
    ("--gang-scheduler-name=volcano",),
    more=(_INIT_CONTAINER,),
    change=_looks_for_its_master,
)
KUBERAY: Final = Operator(
    "kuberay",
    ("config/default",),
    "default",
    ("--batch-scheduler=volcano",),
    # Its own programs look after Ray: there is none in our containers.
    {"ENABLE_INIT_CONTAINER_INJECTION": "false", "ENABLE_PROBES_INJECTION": "false"},
    _may_make_groups("kuberay-operator", "default"),
)
# Trainer makes JobSets, and JobSet's operator their batch Jobs.
JOB_SET: Final = Operator("jobset", ("config/default",), "jobset-system")
TRAINER: Final = Operator(
    "trainer",
    tuple(f"manifests/base/{part}" for part in ("crds", "rbac", "webhook", "manager")),
    "kubeflow-system",
    more=(_NEW_NAMESPACE, _CERTIFICATE),
    change=_in_trainers_namespace,
)
KUEUE: Final = Operator("kueue", ("config/default",), "kueue-system", change=_knows_our_shares)
