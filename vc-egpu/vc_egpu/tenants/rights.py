"""A tenant's rights: who submits, who edits the queue, who may take time from others. Pure.

What is the same for all tenants stands in the roles of ``queues/base``; here it is bound.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from vc_egpu.tenants.document import Tenant
from vc_egpu.volcano.words import names

Json = dict[str, Any]
GROUP: Final = "rbac.authorization.k8s.io"
ML_TEAM: Final = "vc-egpu-ml-team"
TENANT_ADMIN: Final = "vc-egpu-tenant-admin"
VIEWER: Final = "vc-egpu-viewer"
PRIORITY_HIGH: Final = "vc-egpu-priority-high"
SHARED_ROLES: Final = (ML_TEAM, TENANT_ADMIN, VIEWER, PRIORITY_HIGH)
"""ClusterRoles that each tenant's bindings name."""


def rights(tenant: Tenant) -> Iterator[Json]:
    """All roles and bindings. Service accounts of the namespace submit too: they make pipelines' pods."""
    team, admins, setters = tenant.team, tenant.admins, tenant.spec.groups.cap_setters
    people = tuple(dict.fromkeys((*team, *admins, *setters)))
    accounts = (f"system:serviceaccounts:{tenant.namespace}",)
    use, edit, raising = (f"queue-{tenant.queue}-{what}" for what in ("use", "admin", "set-cap"))
    yield _queue_role(use, tenant, ["get", names.VERB_USE])
    yield _everywhere(use, use, (*people, *accounts))
    yield _queue_role(edit, tenant, ["get", "update", "patch"])
    yield _everywhere(edit, edit, admins)
    if setters:
        yield _queue_role(raising, tenant, ["get", "update", "patch", names.VERB_SET_CAP])
        yield _everywhere(raising, raising, setters)
    yield _everywhere(f"{VIEWER}-{tenant.name}", VIEWER, people)
    yield _inside(tenant, "ml-team", ML_TEAM, team)
    yield _inside(tenant, "tenant-admin", TENANT_ADMIN, tuple(dict.fromkeys((*admins, *setters))))
    if tenant.spec.high_pods:
        yield _everywhere(f"{PRIORITY_HIGH}-{tenant.name}", PRIORITY_HIGH, (*team, *accounts))


def _queue_role(name: str, tenant: Tenant, verbs: Sequence[str]) -> Json:
    rule = {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": [tenant.queue],
        "verbs": list(verbs),
    }
    return {"apiVersion": f"{GROUP}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}


def _everywhere(name: str, role: str, groups: Iterable[str]) -> Json:
    return _binding("ClusterRoleBinding", {"name": name}, role, groups)


def _inside(tenant: Tenant, name: str, role: str, groups: Iterable[str]) -> Json:
    return _binding("RoleBinding", {"name": name, "namespace": tenant.namespace}, role, groups)


def _binding(kind: str, metadata: Json, role: str, groups: Iterable[str]) -> Json:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": name} for name in groups],
    }
