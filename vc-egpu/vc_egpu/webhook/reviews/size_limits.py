"""How much an object may hold before it is read: all reviews wait for each one.

The API server takes 3 MiB, and asks us before it checks anything. That is room for a million empty tasks, and
all users would wait for minutes.

Annotations have a bound of their own. What the stack tells a pod or a PodGroup stands in annotations too. A
tenant who fills them would make each such write fail.
"""

from collections.abc import Sequence
from typing import Any, Final

from vc_egpu.volcano import room
from vc_egpu.volcano.api.containers import IN_SPEC
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.resource_names import LONGEST_NAME
from vc_egpu.webhook.protocol.context import items, mapping, spec_of
from vc_egpu.webhook.protocol.decision import Json, Refusal

MAX_PARTS: Final = 32_768
"""Containers, amounts in their resources, volumes: of one object, of each kind. Well below a second."""


def check_job(job: Json, max_tasks: int) -> None:
    """Refuse Jobs with more tasks than a gang has members, or with more parts than :data:`MAX_PARTS`."""
    tasks = items(spec_of(job).get("tasks"))
    if len(tasks) > max_tasks:
        raise Refusal(
            f"spec.tasks: {len(tasks)} tasks, the largest gang has {max_tasks} members; split the Job"
        )
    check_pods([spec_of(mapping(mapping(task).get("template"))) for task in tasks], "spec.tasks")
    _check(len(items(spec_of(job).get("volumes"))), "volumes", "spec.volumes")


def check_pods(specs: Sequence[Json], path: str) -> None:
    """Refuse pod specs that together have more parts than :data:`MAX_PARTS`, or names that are too long.

    These names are keys of what we remember about resources and accounts.
    """
    containers: list[dict[str, Any]] = []
    for spec in specs:
        for key in ("serviceAccountName", "serviceAccount"):
            _check_length(spec.get(key), names.LONGEST_OBJECT_NAME, key, path)
        for key in IN_SPEC:
            found = items(spec.get(key))
            _check(len(containers) + len(found), "containers", path)
            containers += map(mapping, found)
    amounts = [
        mapping(mapping(container.get("resources")).get(kind))
        for container in containers
        for kind in ("limits", "requests")
    ]
    _check(sum(map(len, amounts)), "amounts in limits and requests", path)
    for name in (name for each in amounts for name in each):
        _check_length(name, LONGEST_NAME, "the name of a resource", path)
    _check(sum(len(items(container.get("volumeMounts"))) for container in containers), "volumeMounts", path)


def grows_too_long(annotations: Json, before: Json) -> bool:
    """Whether annotations have more than 64 KiB, and more than ``before``."""
    return room.own_size(annotations) > max(room.MAX_OWN_BYTES, room.own_size(before))


def check_annotations(annotations: Json, before: Json, path: str) -> None:
    """Refuse annotations of more than 64 KiB, unless they were there ``before`` and do not grow.

    An object that is stored beyond the bound must still lose its finalizers.
    """
    if grows_too_long(annotations, before):
        now = room.own_size(annotations)
        raise Refusal(
            f"{path}: {now} bytes in all, the limit is {room.MAX_OWN_BYTES}; put long texts into a ConfigMap"
        )


def check_room(annotations: Json, before: Json, need: int, what: str, path: str) -> None:
    """Refuse annotations that leave less than ``need`` bytes for what the stack will write next to them.

    ``what``: it in words. The copy that client-side apply makes counts here. What was there ``before`` passes
    unless it grows.
    """
    taken = {key: value for key, value in annotations.items() if key not in room.WRITTEN_BY_US}
    now, limit = room.size(taken), room.MAX_BYTES - need
    if now <= max(limit, room.size(before)):
        return
    copy = len(str(annotations.get(names.LAST_APPLIED) or ""))
    advice = (
        f"; {copy} of them are {names.LAST_APPLIED}: kubectl apply --server-side writes none" if copy else ""
    )
    raise Refusal(
        f"{path}: {now} bytes in all, the limit is {limit}: {what} needs {need} of the {room.MAX_BYTES} that "
        f"Kubernetes allows{advice}"
    )


def _check(count: int, what: str, path: str) -> None:
    if count > MAX_PARTS:
        raise Refusal(f"{path}: {count} {what} in all, the limit is {MAX_PARTS}")


def _check_length(name: object, limit: int, what: str, path: str) -> None:
    if isinstance(name, str) and len(name) > limit:
        raise Refusal(f"{path}: {what} has {len(name)} characters, the limit is {limit}: {name[:63]!r} ...")
