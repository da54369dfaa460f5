"""Objects of one gang as the API server would send them."""

from datetime import UTC, datetime
from typing import Any

from vc_egpu.volcano.words import names

Json = dict[str, Any]
NAMESPACE, GROUP, QUEUE = "research", "train-1", "team"
KEY = f"{NAMESPACE}/{GROUP}"
DAY = 1_800_000_000
"""When the stories begin: whole seconds since the epoch."""


def stamp(moment: float) -> str:
    """As the API server writes it: whole seconds."""
    return datetime.fromtimestamp(int(moment), UTC).isoformat().replace("+00:00", "Z")


def job(made: float = DAY) -> Json:
    """The Volcano Job ``train``."""
    meta = {"name": "train", "namespace": NAMESPACE, "uid": "job-1", "resourceVersion": "1"}
    return {"metadata": meta | {"creationTimestamp": stamp(made)}}


def group(
    made: float = DAY,
    *,
    needed: int = 2,
    waits_for: str = "",
    plan: str = "",
    admitted: bool | None = None,
    said: float | None = None,
    uid: str = "group-1",
) -> Json:
    """Its PodGroup."""
    meta: Json = {"name": GROUP, "namespace": NAMESPACE, "uid": uid, "creationTimestamp": stamp(made)}
    meta["ownerReferences"] = [{"kind": "Job", "name": "train", "controller": True}]
    if plan:
        meta["annotations"] = {names.PLAN: f'{{"v":1,"id":"{plan}","rest":0}}'}
    conditions = []
    if waits_for or admitted is not None:
        status = "True" if admitted else "False"
        message = f"it waits for {waits_for}"
        condition = {
            "type": names.CONDITION_ADMITTED,
            "status": status,
            "reason": waits_for,
            "message": message,
        }
        conditions.append(condition | {"lastTransitionTime": stamp(made if said is None else said)})
    return {
        "metadata": meta,
        "spec": {"minMember": needed, "queue": QUEUE},
        "status": {"conditions": conditions},
    }


def pod(
    number: int,
    made: float = DAY,
    *,
    node: str = "",
    bound: float | None = None,
    sandbox: float | None = None,
    running: float | None = None,
    phase: str = "",
) -> Json:
    """One of its pods."""
    meta: Json = {
        "name": f"train-w-{number}",
        "namespace": NAMESPACE,
        "uid": f"pod-{number}",
        "creationTimestamp": stamp(made),
        "annotations": {names.GROUP_NAME: GROUP, names.PRIORITY: "low"},
    }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": stamp(at)}
        for kind, at in (("PodScheduled", bound), ("PodReadyToStartContainers", sandbox))
        if at is not None
    ]
    status: Json = {"phase": phase or ("Pending" if running is None else "Running"), "conditions": conditions}
    if running is not None:
        status["containerStatuses"] = [{"state": {"running": {"startedAt": stamp(running)}}}]
    spec = {"nodeName": node or "node-1"} if bound is not None else {}
    return {"metadata": meta, "spec": spec, "status": status}
