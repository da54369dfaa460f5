"""All objects of a tenant, of its document. Pure.

The walls come first, and the rights last: nobody may submit before the walls stand.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml

from vc_egpu.kube import resources
from vc_egpu.kube.resources import Resource
from vc_egpu.tenants.document import Tenant
from vc_egpu.tenants.grants import queue_spec
from vc_egpu.tenants.rights import rights
from vc_egpu.tenants.walls import limit_range, namespace, network_policies, quotas
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

Json = dict[str, Any]
KINDS: Final[Mapping[str, Resource]] = {
    resource.kind: resource
    for resource in (
        resources.NAMESPACES,
        resources.RESOURCE_QUOTAS,
        resources.LIMIT_RANGES,
        resources.NETWORK_POLICIES,
        resources.QUEUES,
        resources.CLUSTER_ROLES,
        resources.CLUSTER_ROLE_BINDINGS,
        resources.ROLE_BINDINGS,
    )
}
"""The kinds of a tenant's objects, in the order in which they are made."""


def objects(tenant: Tenant, table: ModelTable | None) -> list[Json]:
    """Every object, each with the tenant's label; in the order in which they are to be made.

    ``table``: see :func:`.grants.queue_spec`. Raises :class:`.document.DocumentError`.
    """
    made = [
        namespace(tenant),
        *quotas(tenant),
        limit_range(tenant),
        *network_policies(tenant),
        _queue(tenant, table),
        *rights(tenant),
    ]
    for one in made:
        one["metadata"].setdefault("labels", {})[names.TENANT_LABEL] = tenant.name
    return made


def _queue(tenant: Tenant, table: ModelTable | None) -> Json:
    metadata: Json = {"name": tenant.queue}
    if limits := tenant.spec.limits.encode():
        metadata["annotations"] = {names.QUEUE_LIMITS: limits}
    return {
        "apiVersion": resources.QUEUES.api_version,
        "kind": resources.QUEUES.kind,
        "metadata": metadata,
        "spec": queue_spec(tenant, table),
    }


def as_yaml(documents: Iterable[Json]) -> str:
    """The objects as one file, for kustomize and for people."""
    return "---\n".join(yaml.dump(one, Dumper=_Plain, sort_keys=False, width=110) for one in documents)


class _Plain(yaml.SafeDumper):
    """Writes a list that stands in two places twice: tools of others read no references."""

    def ignore_aliases(self, _data: Any) -> bool:
        """Always."""
        return True
