"""A control plane without nodes, the webhook beside it, and alice of team-a with her queue.

No nodes are needed where everything is decided at the door.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.resources import PODS, QUEUES, SERVICE_ACCOUNTS
from vc_egpu.kube.wire.errors import KubeError

from rigs.webhook import Rig

Json = dict[str, Any]
NAMESPACE = "team-a"

WORLD = f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {NAMESPACE}}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{name: a}}
spec: {{weight: 1, capability: {{volcano.sh/vgpu-h20: 4}}}}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {{name: b}}
spec: {{weight: 1, capability: {{volcano.sh/vgpu-h20: 4}}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: team-a}}
rules:
- {{apiGroups: [""], resources: [pods, pods/status], verbs: ["*"]}}
- {{apiGroups: [batch.volcano.sh], resources: [jobs], verbs: ["*"]}}
- {{apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: ["*"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: team-a, namespace: {NAMESPACE}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: team-a}}
subjects: [{{kind: ServiceAccount, name: alice, namespace: {NAMESPACE}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: queue-a}}
rules:
- {{apiGroups: [scheduling.volcano.sh], resources: [queues], resourceNames: [a], verbs: [use, update, patch]}}
- {{apiGroups: [scheduling.volcano.sh], resources: [queues], verbs: [get, list]}}
- {{apiGroups: [bus.volcano.sh], resources: [commands], verbs: [create]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: queue-a}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: queue-a}}
subjects: [{{kind: ServiceAccount, name: alice, namespace: {NAMESPACE}}}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: alice, namespace: {NAMESPACE}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: vc-egpu-system}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: vc-egpu-admission, namespace: vc-egpu-system}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: vc-egpu-node-agent, namespace: vc-egpu-system}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: ours-for-test}}
rules:
- {{apiGroups: [""], resources: [pods, pods/status, pods/binding, nodes, nodes/status], verbs: ["*"]}}
- {{apiGroups: [scheduling.volcano.sh], resources: [podgroups], verbs: ["*"]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: ours-for-test}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: ours-for-test}}
subjects:
- {{kind: ServiceAccount, name: vc-egpu-admission, namespace: vc-egpu-system}}
- {{kind: ServiceAccount, name: vc-egpu-node-agent, namespace: vc-egpu-system}}
"""


@contextmanager
def team(name: str, folder: Path) -> Iterator[Rig]:
    """The cluster ``name`` with the webhook and alice; gone afterwards."""
    spec = ClusterSpec(name=name, real_nodes=0, services=False, dns=False, scheduler=False)
    with LocalCluster.up(spec) as cluster:
        started = Rig.start(cluster, folder, ["--settle-s", "1"])
        started.kit.apply(WORLD)
        # The controllers make it, at times while others are applied: who applied it as well was refused then.
        started.kit.until(
            "the default account is there",
            SERVICE_ACCOUNTS,
            lambda accounts: "default" in accounts,
            namespace=NAMESPACE,
        )
        alice = started.tenant("alice", NAMESPACE)
        wait_until("alice has her rights", lambda: _may_look(alice), 20)
        yield started


def _may_look(api: ApiConnection) -> bool:
    try:
        api.list(PODS, NAMESPACE)
        api.list(QUEUES)
    except KubeError:
        return False
    return True


def pod(name: str, **limits: Any) -> Json:
    """A pod of alice's queue; limits by their last part, with underscores: ``vgpu_h20=1``."""
    resources = {"limits": {"volcano.sh/" + k.replace("_", "-"): v for k, v in limits.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {"scheduling.volcano.sh/queue-name": "a"},
        },
        "spec": {"containers": [{"name": "main", "image": "none.example/none:1", "resources": resources}]},
    }


def ensure(api: ApiConnection, obj: Json) -> None:
    """The pod is there, made now or before."""
    try:
        api.get(PODS, obj["metadata"]["name"], NAMESPACE)
    except KubeError:
        api.create(PODS, obj)
