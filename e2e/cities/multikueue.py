"""A manager cluster of MultiKueue without cards, and two members with our stack."""

import base64
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import yaml
from localcluster import ClusterSpec, LocalCluster
from localcluster.api import wait_until
from localcluster.kwok import SUCCEED_AFTER
from outcomes.workload import container, pod_spec, shares
from rigs.foresight import H20, OURS, Town, town
from stack.hostprocess import HostProcess
from stack.identity import service_account_kubeconfig
from vc_egpu.volcano.words import names

from cities.kueue import NAMESPACE, TIMEOUT_S, Kueue

Json = dict[str, Any]
MEMBERS: Final = ("member-a", "member-b")
QUEUE: Final = "team"
QUOTA: Final = {"cpu": "100", "memory": "100Gi", H20: "4"}
"""Of each member: so many cards as it has."""
ACCOUNT: Final = "multikueue"
_API: Final = "kueue.x-k8s.io/v1beta2"


@dataclass
class Member:
    """One cluster that runs Jobs."""

    name: str
    town: Town
    kueue: HostProcess


@dataclass
class Manager:
    """The cluster that users talk to, with its members."""

    cluster: LocalCluster
    kueue: HostProcess
    members: dict[str, Member]

    def submit(self, job: Json) -> None:
        """Make a batch Job in the manager cluster."""
        self.cluster.kubectl("apply", "-f", "-", text_in=yaml.safe_dump(job))

    def jobs(self, cluster: LocalCluster) -> dict[str, Json]:
        """Batch Jobs of the team, by name."""
        found = cluster.api().get(f"/apis/batch/v1/namespaces/{OURS}/jobs")["items"]
        return {one["metadata"]["name"]: one for one in found}

    def workloads(self, cluster: LocalCluster) -> list[Json]:
        """Kueue's Workloads of the team."""
        found: list[Json] = cluster.api().get(f"/apis/{_API}/namespaces/{OURS}/workloads")["items"]
        return found

    def holder(self, name: str) -> str:
        """The member that has this Job; empty: none."""
        return next(
            (one.name for one in self.members.values() if name in self.jobs(one.town.stack.cluster)), ""
        )

    def end(self, name: str) -> None:
        """Delete the Job in the manager; its members follow."""
        self.cluster.kubectl("delete", "job", name, "-n", OURS, "--wait=true")
        wait_until(f"{name} is nowhere", lambda: not self.holder(name), TIMEOUT_S)


def batch_job(name: str, members: int, cards: int, ends_s: int = 0) -> Json:
    """A batch Job of whole cards, in a queue of Kueue and in one of ours. ``ends_s``: 0 for never."""
    marks = {names.QUEUE_NAME: OURS, **({SUCCEED_AFTER: f"{ends_s}s"} if ends_s else {})}
    spec = {**pod_spec(container(limits=shares(cards=cards))), "restartPolicy": "Never"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": OURS, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}},
        "spec": {
            "parallelism": members,
            "completions": members,
            "template": {"metadata": {"annotations": marks}, "spec": spec},
        },
    }


@contextmanager
def manager(kueue: Kueue) -> Iterator[Manager]:
    """Bring up all three."""
    with ExitStack() as stack:
        members = {}
        for name in MEMBERS:
            found = stack.enter_context(town(name, 1))
            process = kueue.install(found.stack.cluster)
            _apply(found.stack.cluster, [*_queues({}), *_granted("default", OURS, [_USE])])
            members[name] = Member(name, found, process)
        spec = ClusterSpec(name="manager", real_nodes=0, services=False, dns=False, scheduler=False)
        cluster = stack.enter_context(LocalCluster.up(spec))
        process = kueue.install(cluster)
        cluster.kubectl("create", "namespace", OURS)
        _apply(cluster, [*map(_secret, members.values()), *_joined(), *_queues(_CHECKED)])
        made = Manager(cluster, process, members)
        wait_until("the queue is open", lambda: _is_active(cluster), TIMEOUT_S)
        yield made


_USE: Final[Json] = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["use"]}
"""Pods that a controller makes count in a queue that their own account may use."""
_CHECKED: Final[Json] = {"admissionChecksStrategy": {"admissionChecks": [{"name": "members"}]}}


def _queues(more: Json) -> list[Json]:
    """A queue of Kueue for the team, with as much as there is."""
    flavor = {"name": "cards", "resources": [{"name": k, "nominalQuota": v} for k, v in QUOTA.items()]}
    groups = [{"coveredResources": list(QUOTA), "flavors": [flavor]}]
    return [
        _object("ClusterQueue", QUEUE, {"namespaceSelector": {}, "resourceGroups": groups, **more}),
        _object("LocalQueue", QUEUE, {"clusterQueue": QUEUE}, OURS),
    ]


def _joined() -> list[Json]:
    """The members, as the manager knows them."""
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "members"}
    return [
        *(
            _object("MultiKueueCluster", name, {"clusterSource": {"kubeConfig": {"location": name}}})
            for name in MEMBERS
        ),
        _object("MultiKueueConfig", "members", {"clusters": list(MEMBERS)}),
        _object(
            "AdmissionCheck", "members",
            {"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters},
        ),
    ]  # fmt: skip


def _secret(member: Member) -> Json:
    """The manager's way into a member: an account that may write Jobs and Workloads there, and no more."""
    cluster = member.town.stack.cluster
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": ACCOUNT, "namespace": NAMESPACE},
    }
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs", "jobs/status"], "verbs": ["*"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "workloads/status"], "verbs": ["*"]},
    ]
    _apply(cluster, [account, *_granted(ACCOUNT, NAMESPACE, rules)])
    document = yaml.safe_load(service_account_kubeconfig(cluster, NAMESPACE, ACCOUNT).read_text())
    for one in document["clusters"]:  # Kueue takes no kubeconfig that names files
        authority = cluster.ca_certificate.read_bytes()
        del one["cluster"]["certificate-authority"]
        one["cluster"]["certificate-authority-data"] = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": member.name, "namespace": NAMESPACE},
        "stringData": {"kubeconfig": yaml.safe_dump(document)},
    }


def _granted(account: str, namespace: str, rules: list[Json]) -> list[Json]:
    """A role for one service account everywhere."""
    group = "rbac.authorization.k8s.io"
    name = f"{namespace}-{account}"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    common = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    return [
        {**common, "kind": "ClusterRole", "rules": rules},
        {**common, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ]


def _object(kind: str, name: str, spec: Json, namespace: str = "") -> Json:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": _API, "kind": kind, "metadata": metadata, "spec": spec}


def _apply(cluster: LocalCluster, documents: list[Json]) -> None:
    cluster.kubectl("apply", "-f", "-", text_in=yaml.safe_dump_all(documents))


def _is_active(cluster: LocalCluster) -> bool:
    found = cluster.api().get(f"/apis/{_API}/clusterqueues/{QUEUE}")
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Active" and one["status"] == "True" for one in conditions)
