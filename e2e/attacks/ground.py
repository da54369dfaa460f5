"""Two tenants on a control plane: one attacks, as a user and as a service account."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import yaml
from localcluster.api import wait_until
from outcomes.tenants import ROLES, document_of, wait_until_counted
from rigs.webhook import BASE, REPOSITORY, Rig
from stack.kit import StoryError
from vc_egpu.kube import ApiConnection, resources
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.tenants import document, render
from vc_egpu.volcano.words.model_table import ModelTable

from attacks import people
from attacks.requests import GATED, MINE, OTHERS, QUEUE, SHARE, Json, Try, container, job
from attacks.walls import LET_IN, wall_of

IDENTITIES: Final = ("user", "service account")
ACCOUNT: Final = "pipeline"
_CLOSED_CLASS: Final = REPOSITORY / "manifests/components/closed-runtime-class/policy.yaml"
_GRANT: Final = {"h20": {"shares": 4, "memoryMiB": 8192, "cores": 100}}
_LOOKED_AT: Final = (
    resources.PODS,
    resources.POD_GROUPS,
    resources.VOLCANO_JOBS,
    resources.COMMANDS,
    resources.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES,
    resources.NETWORK_POLICIES,
    resources.ROLE_BINDINGS,
    resources.DISRUPTION_BUDGETS,
    resources.NAMESPACES,
    resources.QUEUES,
    resources.CLUSTER_ROLE_BINDINGS,
    resources.PRIORITY_CLASSES,
)
"""Where a trace could be left."""


@dataclass(frozen=True, slots=True)
class Ground:
    """The cluster, the two identities, and what names in requests stand for."""

    rig: Rig
    identities: Mapping[str, ApiConnection]
    values: Mapping[str, str]

    def attempt(self, who: str, what: Try) -> tuple[str, str]:
        """Send it; the letter of the wall (see :mod:`.walls`) and what was said."""
        api, body = self.identities[who], _filled(what.body, self.values)
        try:
            api.request(what.method, what.path, body, content_type=what.content_type)
        except KubeError as error:
            return wall_of(error), error.message
        return LET_IN, "let in"

    def traces(self) -> dict[str, Any]:
        """All that an attempt could have written: specs, rights, labels and annotations, but no status."""
        api = self.rig.kit.api
        found: dict[str, Any] = {}
        for resource in _LOOKED_AT:
            for item in api.list(resource).items:
                metadata = item["metadata"]
                key = f"{resource.plural} {metadata.get('namespace', '')}/{metadata['name']}"
                kept = {name: item.get(name) for name in ("spec", "subjects", "roleRef", "value")}
                found[key] = {**kept, **{name: metadata.get(name) for name in ("labels", "annotations")}}
        return found


def _filled(body: Any, values: Mapping[str, str]) -> Any:
    """With what its ``$names`` stand for."""
    text = json.dumps(body)
    for name, value in values.items():
        text = text.replace(f'"${name}"', json.dumps(value))
    return json.loads(text)


@contextmanager
def ground(rig: Rig) -> Iterator[Ground]:
    """Make it; the tenants are gone at the end."""
    rig.kit.apply(*map(yaml.safe_dump, yaml.safe_load_all(ROLES.read_text())), _CLOSED_CLASS)
    documents = [*_tenants(), *_surroundings()]
    rig.kit.apply(*map(yaml.safe_dump, documents))
    _wait_for_quotas(rig)
    api = rig.kit.api
    names = {"queue": str(api.get(resources.QUEUES, OTHERS)["metadata"]["uid"])}
    for one, resource, body in _inhabitants():
        made = api.create(resource, _filled(body, names))
        names[one] = str(made["metadata"]["uid"])
    if not api.get(resources.PODS, GATED, MINE)["spec"].get("schedulingGates"):
        raise StoryError(f"pod {GATED} has no gate: nothing could be lifted from it")
    identities = {"user": _user(rig), "service account": rig.tenant(ACCOUNT, MINE)}
    found = Ground(rig, identities, names)
    wait_until("both identities have their rights", lambda: all(map(_may_look, identities.values())), 30)
    wait_until("the policy on runtime classes bites", lambda: _policy_bites(found), 30)
    try:
        yield found
    finally:
        text = yaml.safe_dump_all([*reversed(documents)])
        rig.kit.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", text_in=text, check=False)
        rig.kit.kubectl("delete", "-f", str(_CLOSED_CLASS), "--ignore-not-found", check=False)


def _documents() -> Iterator[document.Tenant]:
    limits = {"maxCardsPerPod": 2}
    for name, quota in ((MINE, {"jobs": 1}), (OTHERS, {})):
        yield document_of(name, models=_GRANT, quota=quota, limits=limits)


def _table() -> ModelTable:
    return ModelTable.from_yaml((BASE / "config" / "models.yaml").read_text())


def _tenants() -> Iterator[Json]:
    for one in _documents():
        yield from render.objects(one, _table())


def _surroundings() -> Iterator[Json]:
    """What the attacker has besides, and what lies around: more than a document gives."""
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"{MINE}:ml-team"}
    account = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": MINE}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": MINE}}
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "update", "patch", "delete"]}]
    yield _role("Role", "own-pods", rules)
    yield _bound("RoleBinding", "own-pods", "Role", "own-pods", [group, account])
    yield _bound("RoleBinding", "ml-team-account", "ClusterRole", "vc-egpu-ml-team", [account])
    yield _bound("RoleBinding", "tenant-admin-account", "ClusterRole", "vc-egpu-tenant-admin", [account])
    yield _bound("ClusterRoleBinding", "attack-admin", "ClusterRole", f"queue-{MINE}-admin", [account, group])
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "nvidia"}}
    yield {**runtime, "handler": "nvidia"}
    pushy = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "pushy"}}
    yield {**pushy, "value": 1000, "preemptionPolicy": "PreemptLowerPriority"}
    yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


def _role(kind: str, name: str, rules: list[Json]) -> Json:
    metadata = {"name": name, "namespace": MINE}
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules}


def _bound(kind: str, name: str, role_kind: str, role: str, subjects: list[Json]) -> Json:
    metadata = {"name": name, **({"namespace": MINE} if kind == "RoleBinding" else {})}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}
    whole = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata}
    return {**whole, "roleRef": reference, "subjects": subjects}


def _inhabitants() -> Iterator[tuple[str, resources.Resource, Json]]:
    """What runs or waits in both tenants; made by the administrator, checked as all is."""

    def made(resource: resources.Resource, namespace: str, name: str, **fields: Any) -> Json:
        metadata = {"name": name, "namespace": namespace, **fields.pop("metadata", {})}
        return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}

    containers = [container(limits=SHARE)]
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "mine", "uid": "$own-job"}
    group = {"minMember": 1, "queue": MINE}
    target = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "any"}
    for namespace, name in ((MINE, "mine"), (OTHERS, "train")):
        spec = job(queue=namespace)["spec"]
        which = "own-job" if namespace == MINE else "job"
        yield which, resources.VOLCANO_JOBS, made(resources.VOLCANO_JOBS, namespace, name, spec=spec)
        annotations = {"annotations": {QUEUE: namespace}}
        body = made(
            resources.PODS, namespace, f"{name}-0", metadata=annotations, spec={"containers": containers}
        )
        yield f"pod {name}", resources.PODS, body
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "none"}}
    by_gate = {"containers": containers, "volumes": [claim]}  # we do not bind such a pod
    annotations = {"annotations": {QUEUE: MINE}}
    gated = made(resources.PODS, MINE, GATED, metadata=annotations, spec=by_gate)
    yield "gated", resources.PODS, gated
    owned = {"ownerReferences": [{**owner, "controller": True}]}
    yield "gang", resources.POD_GROUPS, made(resources.POD_GROUPS, MINE, "gang", metadata=owned, spec=group)
    yield (
        "group",
        resources.POD_GROUPS,
        made(resources.POD_GROUPS, OTHERS, "train", spec={**group, "queue": OTHERS}),
    )
    yield (
        "order",
        resources.COMMANDS,
        made(resources.COMMANDS, OTHERS, "order", action="AbortJob", target=target),
    )


def _wait_for_quotas(rig: Rig) -> None:
    """The quotas are counted, and pods can be made: the default account is there."""
    for one in _documents():
        wait_until_counted(rig.kit, one, _table())
    for namespace in (MINE, OTHERS):
        rig.kit.until(
            "the default account is there",
            resources.SERVICE_ACCOUNTS,
            lambda accounts: "default" in accounts,
            namespace=namespace,
        )


def _user(rig: Rig) -> ApiConnection:
    """A person of both groups of the attacking tenant."""
    mallory = people.person(rig.cluster, MINE, "mallory", (f"{MINE}:ml-team", f"{MINE}:admin"))
    return ApiConnection.connect(mallory.kubeconfig)


def _may_look(api: ApiConnection) -> bool:
    try:
        api.list(resources.PODS, MINE)
        api.get(resources.QUEUES, MINE)
    except KubeError:
        return False
    return True


def _policy_bites(found: Ground) -> bool:
    body = {
        "metadata": {"name": "probe"},
        "spec": {"containers": [container()], "runtimeClassName": "nvidia"},
    }
    try:
        found.rig.kit.api.create(
            resources.PODS, {"apiVersion": "v1", "kind": "Pod", **body}, MINE, dry_run=True
        )
    except KubeError as error:
        return wall_of(error) == "P"
    return False
