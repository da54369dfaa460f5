"""What a tenant may have of which model, as the Queue's amounts. Pure.

A key that a Queue does not name is no cap for Volcano's scheduler. So each model of the cluster's table that
the tenant was not granted stands there with 0.
"""

import difflib
from collections.abc import Iterator
from typing import Any, Final

from vc_egpu.tenants.document import Amounts, DocumentError, Grant, Tenant
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.model_table import GpuModel, ModelTable

CORES_OF_A_CARD: Final = 100


def check_models(tenant: Tenant, table: ModelTable) -> None:
    """Refuse models that the cluster does not know; raises :class:`DocumentError`."""
    known = [model.name for model in table.models]
    faults = []
    for model in tenant.spec.models:
        if model not in known:
            near = difflib.get_close_matches(model, known, 1)
            guess = f"did you mean {near[0]}?" if near else f"known are {', '.join(known) or 'none'}"
            faults.append(f"tenant {tenant.name}: spec.models.{model}: this model is not known; {guess}")
    if faults:
        raise DocumentError("\n".join(faults))


def queue_spec(tenant: Tenant, table: ModelTable | None) -> dict[str, Any]:
    """The Queue's ``spec``.

    ``table``: the cluster's models; without it only models that are granted are named, and their memory must
    stand in the document. Raises :class:`DocumentError`.
    """
    if table is not None:
        check_models(tenant, table)
    spec = tenant.spec
    queue: dict[str, Any] = {"weight": spec.weight, "reclaimable": spec.reclaimable}
    if spec.parent is not None:
        queue["parent"] = spec.parent
    if spec.priority is not None:
        queue["priority"] = spec.priority
    queue["capability"] = dict(_capability(tenant, table))
    if deserved := dict(_parts(tenant, "deserved")):
        queue["deserved"] = deserved
    if guarantee := dict(_parts(tenant, "guarantee")):
        queue["guarantee"] = {"resource": guarantee}
    return queue


def _capability(tenant: Tenant, table: ModelTable | None) -> Iterator[tuple[str, int]]:
    for name, grant in sorted(tenant.spec.models.items()):
        yield from _cap(tenant, name, grant, table.get(name) if table is not None else None)
    for model in sorted((model.name for model in table.models) if table is not None else ()):
        if model not in tenant.spec.models:
            yield names.shared_resource(model), 0
            yield names.native_resource(model), 0


def _cap(tenant: Tenant, name: str, grant: Grant, model: GpuModel | None) -> Iterator[tuple[str, int]]:
    memory = grant.memory_mib
    if memory is None:
        if model is None and grant.shares:
            path = f"tenant {tenant.name}: spec.models.{name}.memoryMiB"
            raise DocumentError(
                f"{path}: is missing, and without the table of models a card's memory is unknown"
            )
        memory = grant.shares * (model.memory_mib if model is not None else 0)
    yield names.shared_resource(name), grant.shares
    yield names.memory_total_resource(name), memory
    yield names.cores_total_resource(name), _cores(grant)
    yield names.native_resource(name), grant.cards


def _cores(amounts: Amounts) -> int:
    return amounts.shares * CORES_OF_A_CARD if amounts.cores is None else amounts.cores


def _parts(tenant: Tenant, which: str) -> Iterator[tuple[str, int]]:
    """Only what is named: a key that is not there means nothing."""
    for name, grant in sorted(tenant.spec.models.items()):
        part: Amounts | None = getattr(grant, which)
        if part is None:
            continue
        for resource, amount in (
            (names.shared_resource(name), part.shares),
            (names.memory_total_resource(name), part.memory_mib),
            (names.cores_total_resource(name), part.cores),
            (names.native_resource(name), part.cards),
        ):
            if amount:
                yield resource, amount
