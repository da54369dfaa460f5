"""Volcano's own defaults and spelling, copied back into a Job that is applied again.

Volcano's webhook fills in a Job's defaults when it is created, and refuses every later update that lacks
them. A second ``kubectl apply`` of a manifest without them would fail. So the stored value comes back if a
field is absent and Volcano would have filled it in. It also comes back if a number is only written
differently. What a user really changes stays changed.
"""

from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.volcano.api.containers import IN_SPEC
from vc_egpu.volcano.api.job import DEFAULT_MAX_RETRY
from vc_egpu.volcano.words.quantity import QuantityError, parse
from vc_egpu.webhook.protocol.context import items, mapping, spec_of
from vc_egpu.webhook.protocol.decision import Json

_HOST_NETWORK_DNS: Final = "ClusterFirstWithHostNet"


def minimum_of(task: Json) -> Any:
    """The ``minAvailable`` that Volcano fills in: of as many partitions as have to run, or all replicas."""
    policy = mapping(task.get("partitionPolicy"))
    partitions, size = policy.get("minPartitions"), policy.get("partitionSize")
    if isinstance(partitions, int) and isinstance(size, int) and partitions > 0:
        return partitions * size
    return task.get("replicas")


def respell_task(task: Json, stored: Json) -> Json:
    """The task with the defaults and the spelling of the stored one of the same name."""
    filled = dict(task)
    if "name" not in task and "name" in stored:
        filled["name"] = stored["name"]
    if "maxRetry" not in task and stored.get("maxRetry") == DEFAULT_MAX_RETRY:
        filled["maxRetry"] = DEFAULT_MAX_RETRY
    minimum, replicas = stored.get("minAvailable"), task.get("replicas")
    if "minAvailable" not in task and isinstance(minimum, int) and minimum == minimum_of(stored):
        # It stays what it was when the Job came in, unless fewer replicas are wanted now than that.
        filled |= {"minAvailable": minimum} if isinstance(replicas, int) and minimum <= replicas else {}
    template, old = mapping(task.get("template")), mapping(stored.get("template"))
    if isinstance(template.get("spec"), dict):
        filled["template"] = {**template, "spec": _respell_spec(spec_of(template), spec_of(old))}
    return filled


def _respell_spec(spec: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    filled = dict(spec)
    was_filled_in = spec.get("hostNetwork") is True and stored.get("dnsPolicy") == _HOST_NETWORK_DNS
    if "dnsPolicy" not in spec and was_filled_in:
        filled["dnsPolicy"] = _HOST_NETWORK_DNS
    for key in IN_SPEC:
        before = {_name_of(old): mapping(old) for old in items(stored.get(key))}
        if items(spec.get(key)):
            filled[key] = [
                _respell_container(container, before[_name_of(container)])
                if isinstance(container, dict) and _name_of(container) in before
                else container
                for container in spec[key]
            ]
    return filled


def _name_of(container: Any) -> str | None:
    """No check of templates comes before ours: a value that is no string is no name."""
    name = mapping(container).get("name")
    return name if isinstance(name, str) else None


def _respell_container(container: dict[str, Any], stored: Json) -> Json:
    if "resources" not in container:
        return {**container, "resources": {}} if stored.get("resources") == {} else container
    resources = dict(mapping(container["resources"]))
    for kind in ("limits", "requests"):
        before = mapping(mapping(stored.get("resources")).get(kind))
        if isinstance(resources.get(kind), dict):
            resources[kind] = {
                name: before[name] if name in before and _same(raw, before[name]) else raw
                for name, raw in resources[kind].items()
            }
    return {**container, "resources": resources}


def _same(one: object, other: object) -> bool:
    try:
        return parse(one).value == parse(other).value
    except QuantityError:
        return False
