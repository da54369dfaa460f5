"""Which gang a manifest describes: a Volcano Job, a Deployment, a StatefulSet, a batch Job or a bare pod."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from vc_egpu.admission.serving.foresight.asked_jobs import gang_of
from vc_egpu.cli.foresight.flags import CannotForeseeError
from vc_egpu.cli.foresight.reading import Seen
from vc_egpu.kube import Json
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.yaml_text import NotYamlError, read_yaml
from vc_egpu.whatif.answers import Asked

REPLICAS: Final = frozenset({"Deployment", "StatefulSet"})
"""Kinds whose pods are planned singly."""
KINDS: Final = ("Job (Volcano or batch)", "Deployment", "StatefulSet", "Pod")
_TASK: Final = "member"


def read(path: Path) -> Json:
    """The one object of a manifest. Raises :class:`CannotForeseeError`."""
    try:
        text = path.read_text(encoding="utf-8")
        found = read_yaml(text)
    except (OSError, UnicodeDecodeError) as error:
        raise CannotForeseeError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    except NotYamlError as error:
        raise CannotForeseeError(
            f"{path} is not one YAML document: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise CannotForeseeError(f"{path} is no object of Kubernetes")
    return found


def is_volcano_job(document: Json) -> bool:
    """Whether it is a Job of Volcano."""
    return document.get("kind") == "Job" and str(document.get("apiVersion")).startswith("batch.volcano.sh/")


def asked(document: Json, namespace: str, seen: Seen) -> Asked:
    """The gang that this object would be. Raises :class:`CannotForeseeError`."""
    try:
        job, wants = _as_job(document, namespace), seen.policy.profiles.wants
        kind = "VolcanoJob" if is_volcano_job(document) else str(document.get("kind"))
        found = gang_of(job, seen.table, seen.now, seen.environments, wants=wants, kind=kind)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CannotForeseeError(f"this manifest cannot be read: {error!r}") from error
    if not any(shape.asks or shape.options for _, _, shape in found.tasks):
        raise CannotForeseeError("this manifest asks for no card of a model in the table, or cannot be read")
    if document.get("kind") not in REPLICAS:
        return found
    return Asked(replace(found.gang, min_member=1, single=True), found.tasks)


def _as_job(document: Json, namespace: str) -> Json:
    """As the webhook leaves a Volcano Job: its pods are marked, and have the Job's annotations of ours."""
    job = copy.deepcopy(document)
    metadata = job["metadata"]
    if not is_volcano_job(job):
        job = {"metadata": metadata, "spec": {"queue": _queue_of(job), "tasks": [_task_of(job)]}}
    job["metadata"] = {**metadata, "namespace": metadata.get("namespace") or namespace}
    own = {k: v for k, v in (metadata.get("annotations") or {}).items() if k.startswith(f"{names.DOMAIN}/")}
    for number, task in enumerate(job["spec"]["tasks"]):
        task.setdefault("name", f"task{number}")
        task.setdefault("replicas", 1)
        within = task["template"].setdefault("metadata", {}) or {}
        within["labels"] = {**(within.get("labels") or {}), names.MANAGED_LABEL: "true"}
        within["annotations"] = {**own, **(within.get("annotations") or {})}
        task["template"]["metadata"] = within
    return job


def _task_of(document: Json) -> Json:
    spec = document.get("spec") or {}
    match document.get("kind"):
        case "Deployment" | "StatefulSet":
            count, pod = spec.get("replicas", 1), spec["template"]
        case "Job":
            count, pod = spec.get("parallelism", 1), spec["template"]
        case "Pod":
            count, pod = 1, {"metadata": document["metadata"], "spec": spec}
        case other:
            raise CannotForeseeError(f"a {other} is not known here; {', '.join(KINDS)} are")
    return {
        "name": _TASK,
        "replicas": count,
        "template": {**pod, "metadata": dict(pod.get("metadata") or {})},
    }


def _queue_of(document: Json) -> str:
    """By the annotation of the pods, or of the object."""
    pod: Mapping[str, Any] = ((document.get("spec") or {}).get("template") or {}).get("metadata") or {}
    for metadata in (pod, document["metadata"]):
        if queue := (metadata.get("annotations") or {}).get(names.QUEUE_NAME):
            return str(queue)
    return ""
