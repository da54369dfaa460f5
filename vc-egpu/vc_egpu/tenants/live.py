"""What the cluster has of a tenant: its document, its objects, and objects that no document names."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from vc_egpu.kube import ApiConnection, resources
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.tenants.document import DocumentError, Tenant, parse_document
from vc_egpu.tenants.drift import Key, key_of
from vc_egpu.tenants.render import KINDS
from vc_egpu.tenants.rights import SHARED_ROLES
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

Json = dict[str, Any]
MODELS_KEY: Final = "models.yaml"
NEEDED: Final = frozenset({"pods", f"count/jobs.{resources.VOLCANO_JOBS.group}"})
"""What the first Job of a tenant is counted by."""
_WATCHED: Final = (
    resources.ROLES,
    resources.ROLE_BINDINGS,
    resources.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES,
    resources.NETWORK_POLICIES,
)
"""In a tenant's namespace each of these opens or closes something, whoever made it."""


class UnknownTenantError(LookupError):
    """There is no such tenant; the text names what is near."""


@dataclass(frozen=True, slots=True)
class Found:
    """The tenant's objects in the cluster."""

    objects: Mapping[Key, Json]
    """What the document names and is there, and all with the tenant's label."""
    strangers: tuple[Json, ...]
    """Objects with the label, or in the namespace, that the document does not name."""


def model_table(api: ApiConnection) -> ModelTable | None:
    """The cluster's models; None where the stack is not installed. Raises :class:`DocumentError`."""
    try:
        found = api.get(resources.CONFIG_MAPS, names.MODELS_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        return ModelTable.from_yaml(str((found.get("data") or {}).get(MODELS_KEY) or ""))
    except NotFound:
        return None
    except ModelTableError as error:
        raise DocumentError(f"ConfigMap {names.MODELS_CONFIG_MAP}: {error}") from error


def is_counted(api: ApiConnection, tenant: Tenant) -> bool:
    """Whether the quotas are counted: until then Kubernetes refuses what they count, pods and Jobs too.

    Its controller learns of new kinds, such as Volcano's Jobs on a new cluster, only every 30 s.
    """
    for quota in api.list(resources.RESOURCE_QUOTAS, tenant.namespace).items:
        used = (quota.get("status") or {}).get("used") or {}
        if not (NEEDED & set(quota["spec"].get("hard") or {})) <= set(used):
            return False
    return True


def missing_roles(api: ApiConnection) -> list[str]:
    """The shared roles that are not there: bindings to them would give nothing."""
    present = {str(role["metadata"]["name"]) for role in api.list(resources.CLUSTER_ROLES).items}
    return [name for name in SHARED_ROLES if name not in present]


def tenants(api: ApiConnection) -> list[Tenant]:
    """All tenants of the cluster whose document can be read, by name."""
    found = api.list(resources.NAMESPACES, label_selector=names.TENANT_LABEL).items
    return sorted(filter(None, map(stored, found)), key=lambda tenant: tenant.name)


def stored(namespace: Json) -> Tenant | None:
    """The document that a Namespace keeps; None if there is none that can be read."""
    text = (namespace["metadata"].get("annotations") or {}).get(names.TENANT_DOCUMENT)
    try:
        return parse_document(orjson.loads(text)) if text else None
    except (orjson.JSONDecodeError, DocumentError):
        return None


def find(api: ApiConnection, name: str) -> Tenant:
    """The tenant of this name; raises :class:`UnknownTenantError`."""
    known = tenants(api)
    for tenant in known:
        if tenant.name == name:
            return tenant
    shown = ", ".join(tenant.name for tenant in known[:20]) or "none"
    raise UnknownTenantError(f"there is no tenant {name!r} with a document; there are {shown}")


def read(api: ApiConnection, tenant: Tenant, wanted: Iterable[Json]) -> Found:
    """All that is there, read kind by kind."""
    named = {key_of(document) for document in wanted}
    label = f"{names.TENANT_LABEL}={tenant.name}"
    found: dict[Key, Json] = {}
    strangers: dict[Key, Json] = {}
    for resource in KINDS.values():
        for item in api.list(resource, label_selector=label).items:
            document = {**item, "kind": resource.kind}
            key = key_of(document)
            found[key] = document
            if key not in named:
                strangers[key] = document
    for resource in _WATCHED:
        for item in api.list(resource, tenant.namespace).items:
            document = {**item, "kind": resource.kind}
            key = key_of(document)
            if key in named:
                found.setdefault(key, document)
            else:
                strangers[key] = document
    for kind, namespace, name in named - found.keys():  # made by hand, or its label was taken off
        try:
            found[kind, namespace, name] = {
                **api.get(KINDS[kind], name, namespace or None),
                "kind": kind,
            }
        except NotFound:
            continue
    return Found(found, tuple(strangers[key] for key in sorted(strangers)))
