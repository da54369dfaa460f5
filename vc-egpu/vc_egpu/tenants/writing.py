"""Writes a tenant's objects: server-side apply with a field manager of our own.

All is tried dry before anything is written. A field that another manager holds stops it, as kubectl does,
unless the caller forces it. Objects that an earlier document made and this one does not name are removed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from vc_egpu.kube import ApiConnection, resources
from vc_egpu.kube.wire.errors import Conflict, KubeError, NotFound
from vc_egpu.tenants import live, render
from vc_egpu.tenants.document import Tenant
from vc_egpu.tenants.drift import Key, key_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable

Json = dict[str, Any]
FIELD_MANAGER: Final = "vc-egpu-tenant"
_KEPT: Final = frozenset({"Namespace", "Queue"})
"""Work hangs on these: only ``remove`` takes them."""


class CannotApplyError(RuntimeError):
    """Nothing was written, or not all; the text says what and why."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one object."""

    kind: str
    namespace: str
    name: str
    outcome: Literal["created", "changed", "unchanged", "removed"]


def apply(
    api: ApiConnection, tenant: Tenant, table: ModelTable | None, *, force: bool = False
) -> list[Written]:
    """Make the cluster as the document says. Raises :class:`CannotApplyError`, ``DocumentError``."""
    wanted = render.objects(tenant, table)
    found = live.read(api, tenant, wanted)
    _check(api, tenant, found.objects)
    problems = list(_tried(api, tenant, wanted, found.objects, force=force))
    if problems:
        raise CannotApplyError("\n".join([f"tenant {tenant.name}: nothing was written:", *problems]))
    written: list[Written] = []
    for document in wanted:
        written.append(
            _write(api, document, found.objects.get(key_of(document)), force=force, before=written)
        )
    written += _prune(api, tenant, found.strangers)
    return written


def _check(api: ApiConnection, tenant: Tenant, found: Mapping[Key, Json]) -> None:
    if missing := live.missing_roles(api):
        raise CannotApplyError(
            f"tenant {tenant.name}: the roles of all tenants are not there ({', '.join(missing)}); "
            "apply them first: kubectl apply --server-side -k queues/base"
        )
    order = list(render.KINDS)
    for key in sorted((key for key in found if key[0] in order), key=lambda key: order.index(key[0])):
        kind, name, document = key[0], key[2], found[key]
        owner = (document["metadata"].get("labels") or {}).get(names.TENANT_LABEL)
        if owner not in {None, tenant.name}:
            raise CannotApplyError(f"tenant {tenant.name}: {kind} {name} belongs to tenant {owner!r}")
    parent = tenant.spec.parent
    if parent is not None:
        try:
            api.get(resources.QUEUES, parent)
        except NotFound:
            raise CannotApplyError(
                f"tenant {tenant.name}: spec.parent: queue {parent!r} does not exist"
            ) from None


def _tried(
    api: ApiConnection, tenant: Tenant, wanted: Iterable[Json], found: Mapping[Key, Json], *, force: bool
) -> Iterable[str]:
    """What stands against it. In a namespace that is not there yet nothing can be tried."""
    there = ("Namespace", "", tenant.namespace) in found
    for document in wanted:
        kind, namespace, name = key_of(document)
        if namespace and not there:
            continue
        try:
            _patch(api, document, force=force, dry_run=True)
        except Conflict as error:
            yield f"  {kind} {name}: {error.message} (--force-conflicts puts back what the document says)"
        except KubeError as error:
            yield f"  {kind} {name}: {error.message}"


def _write(
    api: ApiConnection, document: Json, before_it: Json | None, *, force: bool, before: Sequence[Written]
) -> Written:
    kind, namespace, name = key_of(document)
    try:
        after = _patch(api, document, force=force, dry_run=False)
    except KubeError as error:
        done = (
            ", ".join(f"{one.kind} {one.name}" for one in before if one.outcome != "unchanged") or "nothing"
        )
        raise CannotApplyError(
            f"{kind} {name}: {error.message}; written before it: {done}; apply again to go on from here"
        ) from error
    if before_it is None:
        return Written(kind, namespace, name, "created")
    versions = {one["metadata"].get("resourceVersion") for one in (before_it, after)}
    return Written(kind, namespace, name, "unchanged" if len(versions) == 1 else "changed")


def _patch(api: ApiConnection, document: Json, *, force: bool, dry_run: bool) -> Json:
    kind, namespace, name = key_of(document)
    return api.patch(
        render.KINDS[kind],
        name,
        document,
        namespace or None,
        kind="apply",
        field_manager=FIELD_MANAGER,
        force=force,
        dry_run=dry_run,
    )


def _prune(api: ApiConnection, tenant: Tenant, strangers: Iterable[Json]) -> Iterable[Written]:
    """Take away what an earlier document made. What has not our label and our mark stays."""
    for document in strangers:
        kind, namespace, name = key_of(document)
        metadata = document["metadata"]
        label = (metadata.get("labels") or {}).get(names.TENANT_LABEL)
        managers = {one.get("manager") for one in metadata.get("managedFields") or ()}
        if kind in _KEPT or kind not in render.KINDS or label != tenant.name or FIELD_MANAGER not in managers:
            continue
        try:
            api.delete(render.KINDS[kind], name, namespace or None, uid=metadata.get("uid"))
        except NotFound:
            continue
        yield Written(kind, namespace, name, "removed")
