"""What makes pods and says how many it wants: ReplicaSets, StatefulSets, batch Jobs and CronJobs.

Pods that they cannot make have no gang that could say so. Two revisions of a Deployment may also wait for
each other. Pure: documents in, sentences out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from vc_egpu.cli import world
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.model.words import few
from vc_egpu.kube import Json
from vc_egpu.volcano.words.makers import controller_of, deployment_behind

REFUSED: Final = ("FailedCreate", "FailedCreatePod")
"""Reasons of the events that tell of a pod that could not be made."""
_REVISION: Final = "deployment.kubernetes.io/revision"
_HELD_UP: Final = frozenset(
    {
        Reason.WAITING_FOR_QUOTA.value,
        Reason.WAITING_FOR_CARDS.value,
        Reason.WAITING_FOR_TURN.value,
    }
)
"""What the room of an earlier revision would help with."""


def maker_of(group: Json, makers: Iterable[Json]) -> Json | None:
    """The one among these that the PodGroup belongs to."""
    uid = controller_of(group).get("uid")
    return next((maker for maker in makers if maker["metadata"].get("uid") == uid), None) if uid else None


def wants_none(group: Json, maker: Json | None) -> str:
    """That a gang without living members is meant to have none; empty if it is not, or if that is unknown."""
    owner = controller_of(group)
    return f"{owner.get('kind')} {owner.get('name')} {none}" if (none := _none(maker or {})) else ""


def rest(name: str, makers: Sequence[Json]) -> str:
    """That what is called so has made no pods, and wants none now; empty where it wants some, or is not
    there."""
    nones = {_none(m) for m in makers if name in {m["metadata"]["name"], deployment_of(m)}}
    if nones and "" not in nones:
        return f"{name} {min(nones)}"
    return next((_between(m) for m in makers if _is_cron_job(m) and m["metadata"]["name"] == name), "")


def _none(maker: Json) -> str:
    spec = maker.get("spec") or {}
    for key, none in (("replicas", 0), ("parallelism", 0), ("suspend", True)):
        if spec.get(key) is not None and spec[key] == none:
            return f"asks for no pods ({key}: {str(none).lower()})"
    return ""


def lacks_pods(maker: Json) -> bool:
    """Whether fewer pods of a set are there than it wants."""
    there = (maker.get("status") or {}).get("replicas") or 0
    return bool(there < ((maker.get("spec") or {}).get("replicas") or 0))


def deployment_of(maker: Json | None) -> str:
    """The Deployment behind a ReplicaSet; empty where there is none."""
    if maker is None:
        return ""
    return deployment_behind("ReplicaSet", str(maker["metadata"]["name"]), world.labels(maker))


_ENDS: Final = {"": "(-[0-9a-z]+)?", "ReplicaSet": "(-[0-9a-z]+)?", "Job": r"(-\d+)?"}
"""What Deployments and CronJobs put behind their own names, by the kind of what they make."""


def refusal(name: str, events: Iterable[Json], uid: str = "") -> str:
    """The last refusal of a pod that this object, a ReplicaSet of this Deployment or a Job of this CronJob
    wanted to make.

    ``uid``: of this object only, not of an earlier one of the same name.
    """
    told = [
        event
        for event in events
        if event.get("reason") in REFUSED
        and (about := event.get("involvedObject") or {})
        and (not uid or about.get("uid", uid) == uid)
        and re.fullmatch(re.escape(name) + _ENDS.get(about.get("kind", ""), ""), about.get("name", ""))
    ]
    if not told:
        return ""
    last = max(told, key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
    about = last["involvedObject"]
    return f"{about.get('kind', '')} {about['name']} cannot make a pod: {last.get('message', '')}".strip()


# --- CronJobs -----------------------------------------------------------------------------------------


def jobs_of(name: str, makers: Iterable[Json]) -> list[Json]:
    """The Jobs of a CronJob that are not over, or the last one: it keeps several of them."""
    jobs = [maker for maker in makers if cron_job_of(maker) == name]
    jobs.sort(key=lambda job: str(job["metadata"].get("creationTimestamp") or ""))
    return [job for job in jobs if not _over(job)] or jobs[-1:]


def cron_job_of(maker: Json) -> str:
    """The CronJob that a batch Job was made by; empty where there is none."""
    owner = controller_of(maker)
    return str(owner.get("name") or "") if owner.get("kind") == "CronJob" else ""


def _over(job: Json) -> bool:
    return world.condition_is_true(job, "Complete") or world.condition_is_true(job, "Failed")


def _is_cron_job(maker: Json) -> bool:
    return "schedule" in (maker.get("spec") or {})


def _between(cron_job: Json) -> str:
    last = (cron_job.get("status") or {}).get("lastScheduleTime")
    so_far = f"the last one at {last}" if last else "and has made none yet"
    name, schedule = cron_job["metadata"]["name"], cron_job["spec"]["schedule"]
    return f"CronJob {name} has no Job now; it makes them at {schedule}, {so_far}"


# --- revisions of a Deployment ------------------------------------------------------------------------


def roll_out(
    group: Json, groups: Iterable[Json], pods: Iterable[Json], makers: Sequence[Json], events: Sequence[Json]
) -> list[str]:
    """Where the roll-out stands in which this gang is one of the revisions, as far as it is held up."""
    maker = maker_of(group, makers)
    deployment = deployment_of(maker)
    if maker is None or not deployment:
        return []
    mine = maker["metadata"]["uid"]
    others = [m for m in makers if deployment_of(m) == deployment and m["metadata"]["uid"] != mine]
    with_gang = {controller_of(other).get("uid") for other in groups}
    unseen = [m["metadata"] for m in others if lacks_pods(m) and m["metadata"]["uid"] not in with_gang]
    refused = [refusal(other["name"], events, other["uid"]) for other in unseen]
    earlier = {other["metadata"]["uid"] for other in others if _revision(other) < _revision(maker)}
    return [*filter(None, refused), *_held_up(group, _running(pods, earlier))]


def _running(pods: Iterable[Json], of: set[str]) -> list[str]:
    return sorted(
        str(pod["metadata"]["name"])
        for pod in pods
        if controller_of(pod).get("uid") in of
        and not world.waits_for_us(pod)
        and not world.finished(pod)
        and not pod["metadata"].get("deletionTimestamp")
    )


def _held_up(group: Json, running: Sequence[str]) -> Iterator[str]:
    verdict = world.condition(group) or {}
    reason, least = verdict.get("reason"), int((group.get("spec") or {}).get("minMember") or 1)
    if not running or verdict.get("status") == "True":
        return
    before = f"{few(running)} of the revision before"
    if reason == Reason.WAITING_FOR_MEMBERS.value and least > 1:
        yield (
            f"it needs {least} pods at once, but a roll-out makes a few at a time next to {before}: "
            "the Deployment needs strategy Recreate"
        )
    elif reason in _HELD_UP:
        yield (
            f"{before} may stay until this one runs: with fewer than 4 replicas, maxUnavailable 25 % lets "
            "none go first. With maxSurge 0 and maxUnavailable 1 a roll-out needs no more room"
        )


def _revision(maker: Json) -> int:
    text = world.annotations(maker).get(_REVISION, "")
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else 0  # tenants may write it themselves
