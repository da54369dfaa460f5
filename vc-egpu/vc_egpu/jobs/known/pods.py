"""What the controller keeps of each pod: enough for decisions, and small enough for all pods of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from vc_egpu.jobs.objects import requests
from vc_egpu.jobs.objects.podgroups import Member
from vc_egpu.jobs.rules.views import PodView
from vc_egpu.kube import Json, Key
from vc_egpu.volcano.api.containers import IN_SPEC, IN_STATUS, end_of
from vc_egpu.volcano.api.job import Job
from vc_egpu.volcano.codec.pod_status import refusal_of
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.knobs import KNOBS
from vc_egpu.volcano.words.makers import controller_of
from vc_egpu.volcano.words.payer import checked_for

_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "ownerReferences",
)
_LABELS: Final = (names.MANAGED_LABEL, names.JOB_QUEUE_NAME)
_ANNOTATIONS: Final = (
    names.GROUP_NAME,
    names.GROUP_MIN_MEMBER,
    names.JOB_VERSION,
    names.OUT_OF_SYNC,
    names.PREEMPTABLE,
    names.QUEUE_NAME,
    names.TASK_SPEC,
    *KNOBS,
)
"""What we read. A user may write a quarter of a megabyte of others into each pod."""
_SPEC: Final = ("nodeName", "overhead", "resources", "priorityClassName", "schedulerName")
_ALIKE_BYTES: Final = 4096
"""A larger spec is not remembered: a user could fill memory by creating and deleting pods with such specs."""
_JOB_API: Final = f"{Job.GROUP}/{Job.VERSION}"


def trim(document: Json) -> Json:
    """A pod without the fields that no decision reads."""
    metadata = {key: value for key, value in document["metadata"].items() if key in _METADATA}
    for kind, read in (("annotations", _ANNOTATIONS), ("labels", _LABELS)):
        written = document["metadata"].get(kind) or {}
        metadata[kind] = {key: written[key] for key in read if key in written}
    spec = document.get("spec") or {}
    small: Json = {key: spec[key] for key in _SPEC if key in spec}
    small["containers"] = [{"resources": c.get("resources") or {}} for c in spec.get("containers") or ()]
    if spec.get("initContainers"):
        small["initContainers"] = [
            {"resources": c.get("resources") or {}, "restartPolicy": c.get("restartPolicy")}
            for c in spec["initContainers"]
        ]
    status = document.get("status") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": small,
        "status": {
            "phase": _phase(metadata, status),
            **{kind: [_container(c) for c in status.get(kind) or ()] for kind in IN_STATUS},
        },
    }


def _phase(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> Any:
    """The phase; a managed pod that the kubelet refused never ran, so it has not failed.

    Nothing of the user's went wrong: an agent was being replaced, for example. So no policy fires. The
    admission layer rolls the gang back, and a new pod is made.
    """
    managed = (metadata.get("labels") or {}).get(names.MANAGED_LABEL) == "true"
    return "Pending" if managed and refusal_of(status) else status.get("phase")


def _container(status: Mapping[str, Any]) -> Json:
    ended = end_of(status)
    return {
        "ready": status.get("ready"),
        "restartCount": status.get("restartCount"),
        "state": {"terminated": {"exitCode": ended["exitCode"], "finishedAt": ended.get("finishedAt")}}
        if ended
        else {},
    }


@dataclass(frozen=True, slots=True)
class CachedPod:
    """One pod."""

    key: Key
    uid: str
    view: PodView | None
    """Set for the pods of Volcano Jobs."""
    job: tuple[str, str, str] | None
    """Namespace, name and UID of its Volcano Job."""
    group: str | None
    """Its PodGroup's name, as its annotation says."""
    managed: bool
    checked: str
    """The queue that the webhook checked it for; empty if the pod is over or was not checked."""
    member: Member
    requested: requests.Amounts
    document: Json
    """Trimmed."""

    @property
    def group_key(self) -> Key | None:
        """Namespace and name of its PodGroup."""
        return (self.key[0], self.group) if self.group else None

    @property
    def occupies(self) -> bool:
        """Bound to a node and not finished: its requests count."""
        return self.member.bound and not self.member.finished

    @classmethod
    def of(cls, document: Json) -> "CachedPod":
        """Read a trimmed pod."""
        metadata, spec = document["metadata"], document["spec"]
        namespace, owner = metadata["namespace"], controller_of(document)
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        managed = labels.get(names.MANAGED_LABEL) == "true"
        member = Member(
            phase=document["status"].get("phase") or "Pending",
            bound=bool(spec.get("nodeName")),
            terminating=bool(metadata.get("deletionTimestamp")),
        )
        is_job = owner.get("kind") == Job.__name__ and owner.get("apiVersion") == _JOB_API
        return cls(
            key=(namespace, metadata["name"]),
            uid=metadata["uid"],
            view=PodView.of(document) if is_job else None,
            job=(namespace, owner["name"], owner["uid"]) if is_job else None,
            group=annotations.get(names.GROUP_NAME) or None,
            managed=managed,
            checked=checked_for(annotations, labels) if managed and not member.finished else "",
            member=member,
            requested=_requested_by(orjson.dumps(spec_of_requests(spec), option=orjson.OPT_SORT_KEYS)),
            document=document,
        )


def spec_of_requests(spec: Mapping[str, Any]) -> Json:
    """The part of a pod's spec that its requests follow from."""
    return {key: spec[key] for key in (*IN_SPEC, "overhead", "resources") if key in spec}


def _requested_by(spec: bytes) -> requests.Amounts:
    return _requested(spec) if len(spec) <= _ALIKE_BYTES else _requested.__wrapped__(spec)


@lru_cache(maxsize=4096)
def _requested(spec: bytes) -> requests.Amounts:
    # Pods of one template are alike, so their sum is worked out once. No caller changes it.
    return requests.of_pod(orjson.loads(spec))
