"""What ``kubectl egpu tenant`` does: reads documents and the cluster, writes objects, says what it did."""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from rich.console import RenderableType
from rich.text import Text

from vc_egpu.cli.exit_status import EXIT_FOUND, EXIT_OK
from vc_egpu.cli.tenant import files, views
from vc_egpu.cli.tenant.views import TenantDrift, TenantState, TenantWritten
from vc_egpu.cli.views import render as screen
from vc_egpu.kube import ApiConnection, resources
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.tenants import drift, live, occupants, removal, render, writing
from vc_egpu.tenants.document import API_VERSION, KIND, DocumentError, Tenant, parse_document
from vc_egpu.tenants.removal import StillThereError
from vc_egpu.tenants.writing import CannotApplyError
from vc_egpu.volcano.words.model_table import ModelTable

Json = dict[str, Any]
POLL_S: Final = 0.2
REFUSALS: Final = (
    DocumentError, files.FileError, CannotApplyError, StillThereError, live.UnknownTenantError,
)  # fmt: skip
"""What a command raises where it does nothing, with a text for the user."""


@dataclass(frozen=True, slots=True)
class Said:
    """A command's answer: for ``-o json``, for people, and the exit status."""

    document: Any
    shown: RenderableType
    status: int = EXIT_OK


def needs_no_cluster(options: argparse.Namespace) -> bool:
    """Whether the command works on files alone."""
    return bool(options.action == "render" and options.models)


def run(api: ApiConnection | None, options: argparse.Namespace) -> Said:
    """Do what the flags say; raises one of :data:`REFUSALS`. ``api`` is None for :func:`needs_no_cluster`."""
    if options.action == "render":
        return _render(api, options)
    if api is None:
        raise ValueError(f"tenant {options.action} needs a cluster")
    return _ACTIONS[options.action](api, options)


def _add(api: ApiConnection, options: argparse.Namespace) -> Said:
    tenant = parse_document(_document_of(options), "tenant")
    text = yaml.safe_dump(tenant.document(), sort_keys=False)
    table = live.model_table(api)
    objects = render.objects(tenant, table)
    if options.dry_run:
        return Said(tenant.document(), Text(text.rstrip()))
    for key in (drift.key_of(objects[0]), ("Queue", "", tenant.queue)):
        if _exists(api, *key):
            kind, _, name = key
            raise CannotApplyError(
                f"{kind} {name} is already there; `tenant apply` changes a tenant, or takes one over"
            )
    if options.save:
        files.save(Path(options.save), text)
    done = TenantWritten(tenant.name, tuple(writing.apply(api, tenant, table)))
    return Said(done, views.written([done]), _until_counted(api, [tenant], options.wait_s))


def _document_of(options: argparse.Namespace) -> Json:
    groups = {"team": options.team, "admins": options.admin}
    quota = {"cpu": options.cpu, "memory": options.memory}
    spec: Json = {
        "groups": {key: value for key, value in groups.items() if value},
        "models": dict(options.models),
        "quota": {key: value for key, value in quota.items() if value},
        "network": {"profile": options.network} if options.network else {},
        "parent": options.parent,
        "highPods": options.high_pods,
    }
    spec = {key: value for key, value in spec.items() if value}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": options.name}, "spec": spec}


def _exists(api: ApiConnection, kind: str, namespace: str, name: str) -> bool:
    try:
        api.get(render.KINDS[kind], name, namespace or None)
    except NotFound:
        return False
    return True


def _apply(api: ApiConnection, options: argparse.Namespace) -> Said:
    tenants, table = files.documents(options.files), live.model_table(api)
    for tenant in tenants:
        render.objects(tenant, table)  # a fault in the last document stops the first
    done = [
        TenantWritten(tenant.name, tuple(writing.apply(api, tenant, table, force=options.force_conflicts)))
        for tenant in _parents_first(tenants)
    ]
    return Said(done, views.written(done), _until_counted(api, tenants, options.wait_s))


def _until_counted(api: ApiConnection, tenants: Iterable[Tenant], wait_s: float) -> int:
    """Wait until Kubernetes counts the quotas, and takes the first Job; the exit status."""
    deadline, status = time.monotonic() + wait_s, EXIT_OK
    for tenant in tenants:
        while not live.is_counted(api, tenant):
            if time.monotonic() >= deadline:
                screen.tell(
                    f"tenant {tenant.name}: its quotas are not counted within {wait_s:.0f} s; until then "
                    "Kubernetes refuses its pods and Jobs (is the controller manager well?)",
                    "yellow",
                )
                status = EXIT_FOUND
                break
            time.sleep(POLL_S)
    return status


def _parents_first(tenants: Iterable[Tenant]) -> list[Tenant]:
    left, ordered = list(tenants), list[Tenant]()
    while left:
        queues = {tenant.queue for tenant in left}
        ready = [tenant for tenant in left if tenant.spec.parent not in queues] or left
        ordered += ready
        left = [tenant for tenant in left if tenant not in ready]
    return ordered


def _diff(api: ApiConnection, options: argparse.Namespace) -> Said:
    if bool(options.files) == bool(options.name):
        raise DocumentError("tenant diff: name a tenant, or a file with -f")
    tenants = files.documents(options.files) if options.files else [live.find(api, options.name)]
    table = live.model_table(api)
    found = [TenantDrift(tenant.name, tuple(_differences(api, tenant, table))) for tenant in tenants]
    status = EXIT_FOUND if any(one.differences for one in found) else EXIT_OK
    return Said(found, views.drift(found), status)


def _differences(api: ApiConnection, tenant: Tenant, table: ModelTable | None) -> list[drift.Difference]:
    wanted = render.objects(tenant, table)
    found = live.read(api, tenant, wanted)
    return drift.differences(wanted, found.objects, found.strangers)


def _show(api: ApiConnection, options: argparse.Namespace) -> Said:
    table = live.model_table(api)
    if options.name:
        one = _state(api, live.find(api, options.name), table)
        return Said(one, views.state(one))
    states = [_state(api, tenant, table) for tenant in live.tenants(api)]
    return Said(states, views.listed(states))


def _state(api: ApiConnection, tenant: Tenant, table: ModelTable | None) -> TenantState:
    quota: dict[str, dict[str, str]] = {}
    for item in api.list(resources.RESOURCE_QUOTAS, tenant.namespace).items:
        scope = " (high)" if "scopeSelector" in item.get("spec", {}) else ""
        status = item.get("status") or {}
        for name, hard in (status.get("hard") or {}).items():
            quota[name + scope] = {"hard": str(hard), "used": str((status.get("used") or {}).get(name, "0"))}
    try:
        queue = api.get(resources.QUEUES, tenant.queue)
        state = str((queue.get("status") or {}).get("state") or "Open")
    except NotFound:
        state = "missing"
    inside = tuple(occupants.look(api, tenant).sentences())
    return TenantState(tenant.document(), state, quota, inside, len(_differences(api, tenant, table)))


def _remove(api: ApiConnection, options: argparse.Namespace) -> Said:
    tenant = live.find(api, options.name)
    result = removal.remove(
        api,
        tenant,
        evict=options.evict,
        delete_volumes=options.delete_volumes,
        timeout_s=options.wait_s,
        progress=screen.tell,
    )
    return Said(result, views.removed(tenant.name, result), EXIT_FOUND if result.left else EXIT_OK)


def _render(api: ApiConnection | None, options: argparse.Namespace) -> Said:
    tenants = files.documents(options.files)
    table = files.table(options.models) if options.models else live.model_table(api) if api else None
    made = {tenant.name: render.objects(tenant, table) for tenant in tenants}
    everything = [document for objects in made.values() for document in objects]
    if not options.into:
        return Said(everything, Text(render.as_yaml(everything).rstrip()))
    folder = Path(options.into)
    for name, objects in made.items():
        files.save(folder / f"{name}.yaml", files.GENERATED + render.as_yaml(objects))
    names = sorted(f"{name}.yaml" for name in made)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "resources": names,
    }  # fmt: skip
    files.save(
        folder / "kustomization.yaml", files.GENERATED + yaml.safe_dump(kustomization, sort_keys=False)
    )
    told = f"{folder}: {len(names)} tenants, {len(everything)} objects"
    return Said(orjson.loads(orjson.dumps(names)), Text(told))


_ACTIONS: Final[Mapping[str, Callable[[ApiConnection, argparse.Namespace], Said]]] = {
    "add": _add,
    "show": _show,
    "diff": _diff,
    "apply": _apply,
    "remove": _remove,
}
