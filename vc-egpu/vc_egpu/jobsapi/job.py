"""The Volcano Job of a request. Pure."""

import json
from collections.abc import Mapping
from typing import Any, Final

from vc_egpu.jobsapi.request import LIMITS, Alternative, JobRequest, Part, RequestError
from vc_egpu.kube.resources import VOLCANO_JOBS
from vc_egpu.volcano.codec.alternatives import MAX_BYTES
from vc_egpu.volcano.words import names

CONTAINER: Final = "main"
TASK: Final = "main"
LABEL: Final = f"{names.DOMAIN}/made-by"
MADE_BY: Final = "jobs-api"

Json = dict[str, Any]


def volcano_job(request: JobRequest, namespace: str) -> Json:
    """The Job in this namespace. Raises :class:`.request.RequestError` where alternatives are too long.

    Container and task are called ``main``. The container may do what the restricted Pod Security Standard
    allows; with ``run_as_user`` the pod meets all of it.
    """
    annotations: dict[str, str] = {}
    template: dict[str, str] = {}
    if request.alternatives is not None:
        annotations[names.ALTERNATIVES] = _alternatives(request)
        if request.order is not None:
            annotations[names.ALTERNATIVES_ORDER] = request.order
    if request.models is not None:
        template[names.USE_MODELS] = ",".join(request.models)
    if request.needs is not None:
        template[names.NEEDS] = request.needs
    if request.priority is not None:
        template[names.PRIORITY] = request.priority
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": VOLCANO_JOBS.kind,
        "metadata": {
            "name": request.name,
            "namespace": namespace,
            "labels": {LABEL: MADE_BY},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "queue": request.in_queue,
            "minAvailable": request.members,
            "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
            "tasks": [
                {
                    "name": TASK,
                    "replicas": request.members,
                    "template": {"metadata": {"annotations": template}, "spec": _pod(request)},
                }
            ],
        },
    }


def _pod(request: JobRequest) -> Json:
    security: Json = {"seccompProfile": {"type": "RuntimeDefault"}}
    if request.run_as_user is not None:
        security |= {"runAsNonRoot": True, "runAsUser": request.run_as_user}
    container: Json = {
        "name": CONTAINER,
        "image": request.image or _first_image(request.alternatives or ()),
        "resources": _resources(request),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if request.command is not None:
        container["command"] = list(request.command)
    if request.args is not None:
        container["args"] = list(request.args)
    if request.env:
        container["env"] = [{"name": key, "value": value} for key, value in request.env.items()]
    return {"restartPolicy": "Never", "securityContext": security, "containers": [container]}


def _first_image(alternatives: tuple[Alternative, ...]) -> str:
    """A template needs one, and each alternative has its own."""
    return next((one.image for one in alternatives if one.image is not None), "")


def _resources(request: JobRequest) -> Json:
    model = request.model or request.kind
    cards = names.shared_resource(model) if model is not None else names.ANY_MODEL
    limits: Json = {cards: request.count or 1, **_amounts(request)}
    requests: Json = {}
    if request.cpu_milli is not None:
        requests["cpu"] = limits["cpu"] = f"{request.cpu_milli}m"
    if request.host_memory_mib is not None:
        requests["memory"] = limits["memory"] = f"{request.host_memory_mib}Mi"
    return {"limits": limits, **({"requests": requests} if requests else {})}


def _amounts(part: Part) -> Json:
    found: Json = {}
    if isinstance(part.memory, str):
        found[names.LIMIT_MEMORY_PERCENTAGE] = int(part.memory.removesuffix("%"))
    elif part.memory is not None:
        found[names.LIMIT_MEMORY] = part.memory
    if part.cores is not None:
        found[names.LIMIT_CORES] = part.cores
    return found


def _alternatives(request: JobRequest) -> str:
    entries = [_entry(one) for one in request.alternatives or ()]
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False)
    if (size := len(text.encode())) > MAX_BYTES:
        raise RequestError("alternatives", f"are {size} bytes as an annotation", LIMITS["alternatives"])
    return text


def _entry(one: Alternative) -> Json:
    """As the annotation spells it: what runs stands by container."""
    plain: Mapping[str, Any] = {
        "name": one.name,
        "model": one.model,
        "kind": one.kind,
        "slice": one.slice,
        "count": one.count,
        "memory": one.memory,
        "cores": one.cores,
        "needs": one.needs,
    }
    by_container: Mapping[str, Any] = {
        "image": one.image,
        "env": dict(one.env) or None,
        "command": list(one.command) if one.command is not None else None,
        "args": list(one.args) if one.args is not None else None,
    }
    return {
        **{key: value for key, value in plain.items() if value is not None},
        **{key: {CONTAINER: value} for key, value in by_container.items() if value is not None},
    }
