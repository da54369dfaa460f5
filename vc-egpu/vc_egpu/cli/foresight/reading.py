"""The cluster as its admission controller sees it, read once; and the rules by which that one decides."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from vc_egpu.admission import settings
from vc_egpu.admission.intake.sources import OPTIONAL, WATCHED
from vc_egpu.admission.kept import earlier_runs, moves
from vc_egpu.admission.kept.keeper import Form
from vc_egpu.admission.state.mirror import LOAD_ORDER, Mirror
from vc_egpu.cli.foresight.flags import CannotForeseeError, NotAllowedError
from vc_egpu.core.model.cluster import Instant, Snapshot
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.profiles.table import NO_RULES, Table
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import CONFIG_MAPS, DEPLOYMENTS, Resource
from vc_egpu.kube.watch import Change, ChangeKind, drop_managed_fields
from vc_egpu.kube.wire.errors import Forbidden, NotFound
from vc_egpu.report.snapshot_codec import SnapshotError, from_json
from vc_egpu.volcano.api.containers import containers_of
from vc_egpu.volcano.codec import trim
from vc_egpu.volcano.needs.table import EnvironmentTable, TableError, shipped
from vc_egpu.volcano.profiles.table import ProfilesError, table_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError

_Kept = TypeVar("_Kept")
ADMISSION = "vc-egpu-admission"
"""Its Deployment, and the container in it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the question is asked about."""

    snapshot: Snapshot
    policy: Policy
    now: Instant
    table: ModelTable
    notes: tuple[str, ...] = ()
    environments: EnvironmentTable = field(default_factory=shipped)
    """What software needs."""


def from_file(path: Path) -> Seen:
    """A saved page of ``/v1/snapshot``. It is asked about as of its newest moment.

    Raises :class:`CannotForeseeError`.
    """
    try:
        snapshot = from_json(path.read_bytes())
    except OSError as error:
        raise CannotForeseeError(f"{path} cannot be read: {error.strerror}") from error
    except SnapshotError as error:
        raise CannotForeseeError(f"{path}: {error}") from error
    moments = [moment for pod in snapshot.pods.values() for moment in (pod.created, pod.started or 0.0)]
    moments += [gang.created for gang in snapshot.gangs.values()]
    models = [{"name": name, "memoryMiB": memory} for name, memory in snapshot.models.items()]
    note = "the rules are the defaults: a file does not have those of its cluster"
    table = ModelTable.model_validate({"models": models})
    return Seen(snapshot, Policy(), max(moments, default=0.0), table, (note,))


def from_cluster(api: ApiConnection) -> Seen:
    """The whole cluster. Raises :class:`NotAllowedError` where the user may not read it, and
    :class:`CannotForeseeError`."""
    table = _table(api)
    policy, notes, levels = _policy(api)
    profiles, more = _profiles(api)
    policy, notes = replace(policy, profiles=profiles), [*notes, *more]
    mirror = Mirror(table, levels)
    mirror.take_profiles(policy.wants)
    mirror.around.runs.begin(_kept_by_leader(api, earlier_runs.FORM))
    try:
        arrived = {resource.plural: _listed(api, resource) for resource in WATCHED}
    except Forbidden as error:
        text = f"what-if reads the whole cluster, and you may not: {error.message}"
        raise NotAllowedError(text) from error
    mirror.ends.now = time.time()
    for plural in LOAD_ORDER:
        for document in arrived.get(plural, ()):
            mirror.apply(plural, Change(ChangeKind.ADDED, document))
    mirror.settle_all()
    if policy.moving.on:
        mirror.state.remember_moves(_kept_by_leader(api, moves.FORM))
    environments, more = _environments(api)
    return Seen(mirror.snapshot(), policy, time.time(), table, (*notes, *more), environments)


def _listed(api: ApiConnection, resource: Resource) -> list[Json]:
    """All objects of a kind; none of one that the cluster lacks and need not have."""
    try:
        return api.list(resource, transform=_kept(resource.plural)).items
    except NotFound:
        if resource in OPTIONAL:
            return []
        raise


def _kept(plural: str) -> Callable[[Json], Json]:
    return lambda document: trim.of(plural, drop_managed_fields(document))


def _table(api: ApiConnection) -> ModelTable:
    try:
        found = api.get(CONFIG_MAPS, names.MODELS_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        return ModelTable.from_yaml((found.get("data") or {}).get("models.yaml", ""))
    except Forbidden as error:
        raise NotAllowedError(f"what-if reads the whole cluster, and you may not: {error.message}") from error
    except (NotFound, ModelTableError) as error:
        text = f"the model table cannot be read ({error})"
        raise CannotForeseeError(f"{text}: is the stack installed? `kubectl egpu doctor` tells") from error


def _environments(api: ApiConnection) -> tuple[EnvironmentTable, list[str]]:
    """The operator's table of needs, and what is not known of it."""
    try:
        found = api.get(CONFIG_MAPS, names.ENVIRONMENTS_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        text = (found.get("data") or {}).get("environments.yaml")
        return (shipped() if text is None else EnvironmentTable.from_yaml(text)), []
    except NotFound:
        return shipped(), []
    except (Forbidden, TableError) as error:
        return shipped(), [f"what software needs is as shipped: the cluster's table cannot be read ({error})"]


def _kept_by_leader(api: ApiConnection, form: Form[_Kept]) -> _Kept:
    """What the leader keeps for the next one; nothing where the user may not read that."""
    try:
        found = api.get(CONFIG_MAPS, names.USUAL_WORK_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        text = (found.get("data") or {}).get(form.key)
        return form.decode(text) if text else form.nothing
    except (Forbidden, NotFound, ValueError):
        return form.nothing


def _profiles(api: ApiConnection) -> tuple[Table, list[str]]:
    """The operator's table of placement, and what is not known of it."""
    try:
        found = api.get(CONFIG_MAPS, names.PLACEMENT_CONFIG_MAP, names.SYSTEM_NAMESPACE)
        return table_of((found.get("data") or {}).get("placement.yaml") or ""), []
    except NotFound:
        return NO_RULES, []
    except (Forbidden, ProfilesError) as error:
        return NO_RULES, [f"no rule of placement is known: the cluster's table cannot be read ({error})"]


def _policy(api: ApiConnection) -> tuple[Policy, list[str], tuple[str, ...]]:
    """What the flags of the running controller say: the rules, what is not known of them, network levels."""
    try:
        found = settings_of(_words(api.get(DEPLOYMENTS, ADMISSION, names.SYSTEM_NAMESPACE)))
    except (Forbidden, NotFound):
        note = "the rules are the defaults: you may not read the admission controller's flags"
        return Policy(), [note], ()
    except ValueError as error:
        return Policy(), [f"the rules are the defaults: {error}"], ()
    return found.policy, [], found.network_levels


def _words(deployment: Json) -> list[str]:
    spec = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    for container in containers_of(spec):
        words = [str(word) for word in container.get("args") or ()]
        if words[:1] == ["admission"]:
            return words[1:]
    raise ValueError("the admission controller runs with flags that this command does not know")


def settings_of(words: Iterable[str]) -> settings.Settings:
    """What these flags of ``vc-egpu admission`` set. Raises ``ValueError``."""
    try:
        return settings.parse(list(words))
    except SystemExit as error:
        text = "the admission controller runs with flags that this command does not know"
        raise ValueError(text) from error
