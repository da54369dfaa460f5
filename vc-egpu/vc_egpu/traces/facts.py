"""What one object says about the start of a gang. Pure: documents in, values out.

The API server writes moments in whole seconds. The watch tells of a change within milliseconds, but a
process that was started late hears of old changes as well. So a moment is when the watch told of it, unless
the object says that it was earlier by more than :data:`LATE_S`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.core.model.cluster import Instant
from vc_egpu.volcano.api.conditions import condition_of
from vc_egpu.volcano.codec.cluster_codec import instant
from vc_egpu.volcano.words import names

Json = Mapping[str, Any]
LATE_S: Final = 2.0
_PLAN_ID: Final = re.compile(r'"id":"([0-9]{1,18}-[0-9]{1,18})"')
_PLAN_HEAD: Final = 4096
"""The id of a plan stands among its first characters; all of it may be 240 KiB."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A PodGroup."""

    key: str
    """Namespace and name."""
    uid: str
    created: Instant
    needed: int
    """Members that have to run, at least 1."""
    queue: str
    job: str
    """The Volcano Job that it belongs to, by name; empty: something else made it."""
    plan_id: str
    """The plan that stands on it; empty: none."""
    admitted: bool | None
    """None: nobody has said so far."""
    reason: str
    message: str
    said: Instant | None
    """When it last changed between waiting and admitted."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """A pod of a gang. A moment is None while it has not come."""

    uid: str
    group: str
    """Key of its PodGroup."""
    name: str
    node: str
    share_class: str
    created: Instant
    bound: Instant | None
    sandbox: Instant | None
    """Its sandbox and network are there."""
    running: Instant | None
    """All of its containers have started."""
    over: bool
    """It has ended, or is being deleted."""


def moment(told: Instant, stamp: Instant | None) -> Instant:
    """When something happened of which the watch told at ``told``, and the object says ``stamp``."""
    return told if stamp is None or not 0 < stamp < told - LATE_S else stamp


def group_facts(document: Json, told: Instant) -> GroupFacts:
    """Raises ``KeyError`` for an object that the API server cannot have sent."""
    meta, spec = document["metadata"], document.get("spec") or {}
    said = condition_of(document, names.CONDITION_ADMITTED)
    owner: Json = next((one for one in meta.get("ownerReferences") or () if one.get("controller")), {})
    plan = _PLAN_ID.search(str((meta.get("annotations") or {}).get(names.PLAN) or "")[:_PLAN_HEAD])
    return GroupFacts(
        key=f"{meta['namespace']}/{meta['name']}",
        uid=str(meta["uid"]),
        created=moment(told, instant(meta.get("creationTimestamp"))),
        needed=max(1, int(spec.get("minMember") or 0)),
        queue=str(spec.get("queue") or ""),
        job=str(owner["name"]) if owner.get("kind") == "Job" else "",
        plan_id=plan[1] if plan else "",
        admitted=None if said is None else said.get("status") == "True",
        reason=str((said or {}).get("reason") or ""),
        message=str((said or {}).get("message") or ""),
        said=None if said is None else moment(told, instant(said.get("lastTransitionTime"))),
    )


def pod_facts(document: Json, told: Instant) -> PodFacts:
    """Raises ``KeyError`` for an object that the API server cannot have sent."""
    meta, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    annotations = meta.get("annotations") or {}
    return PodFacts(
        uid=str(meta["uid"]),
        group=f"{meta['namespace']}/{annotations.get(names.GROUP_NAME) or ''}",
        name=str(meta["name"]),
        node=str(spec.get("nodeName") or ""),
        share_class=str(annotations.get(names.PRIORITY) or ""),
        created=moment(told, instant(meta.get("creationTimestamp"))),
        bound=_since(document, "PodScheduled", told) or (told if spec.get("nodeName") else None),
        sandbox=_since(document, "PodReadyToStartContainers", told),
        running=_running(status, told),
        over=status.get("phase") in {"Succeeded", "Failed"} or "deletionTimestamp" in meta,
    )


def _since(document: Json, kind: str, told: Instant) -> Instant | None:
    found = condition_of(document, kind)
    if found is None or found.get("status") != "True":
        return None
    return moment(told, instant(found.get("lastTransitionTime")))


def _running(status: Json, told: Instant) -> Instant | None:
    if status.get("phase") != "Running":
        return None
    started = [
        instant(((one.get("state") or {}).get("running") or {}).get("startedAt"))
        for one in status.get("containerStatuses") or ()
    ]
    return moment(told, max(started)) if started and all(started) else None
