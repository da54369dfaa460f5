"""Whether the cluster has come to rest, and what is wrong with it then. Judged from the API objects alone."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Final

from outcomes.world import World
from stack.install import MODELS
from stack.kit import Json, StoryError, condition, is_gated, is_running
from stack.verify import look
from vc_egpu.core.decide import decide
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.kube.resources import (
    CORE_EVENTS,
    DEPLOYMENTS,
    NODES,
    POD_GROUPS,
    PODS,
    STATEFUL_SETS,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import CONDITION_ADMITTED, GROUP_NAME, JOB_NAME

REST_TIMEOUT_S: Final = 600.0
_LOOK_S: Final = 1.0
_ON_ITS_WAY: Final = frozenset({"Restarting", "Terminating", "Aborting", "Completing"})


def wait_for_rest(here: World, meanwhile: Callable[[], None]) -> None:
    """Until nothing is under way any more; ``meanwhile`` is done at each look.

    Raises :class:`StoryError` with what still was, after a time in which everything should have ended.
    """
    deadline = time.monotonic() + REST_TIMEOUT_S
    table = ModelTable.from_yaml(MODELS.read_text())
    moving: list[str] = ["nothing was looked at"]
    while time.monotonic() < deadline:
        meanwhile()
        try:
            snapshot, reasons = look(here.kit, table)
            plans = [f"{gang.key} has a plan" for gang in snapshot.gangs.values() if gang.plan is not None]
            moving = [*_moving(here, reasons), *plans, *_to_do(decide(snapshot, Policy(), time.time()))]
        except KubeError as error:
            moving = [str(error)]
        if not moving:
            return
        threading.Event().wait(_LOOK_S)  # there is no one event for "nothing is under way"
    raise StoryError(f"no rest within {REST_TIMEOUT_S:.0f} s:\n  " + "\n  ".join(moving))


def _to_do(plan: Plan) -> Iterator[str]:
    """What a controller that sees this would do."""
    yield from (f"{found.gang} could be admitted" for found in plan.admissions)
    yield from (f"the plan of {found.gang} is to be withdrawn: {found.why}" for found in plan.withdrawals)
    yield from (f"the plan of {found.gang} is ready" for found in plan.ready)
    yield from (f"{found.gang} is to be suspended" for found in plan.suspensions)
    yield from (f"{found.gang} could be resumed" for found in plan.resumes)
    yield from (f"{found.gang} is to be evicted" for found in plan.evictions)


def _moving(here: World, told: Collection[str]) -> Iterator[str]:
    api, namespace = here.kit.api, here.namespace
    pods = api.list(PODS, namespace).items
    for node in api.list(NODES).items:
        ready = condition(node, "Ready")
        if ready is None or ready["status"] != "True":
            yield f"node {node['metadata']['name']} is not ready"
    for pod in pods:
        said = _pod_moves(pod, told)
        if said:
            yield f"pod {pod['metadata']['name']} {said}"
    for group in api.list(POD_GROUPS, namespace).items:
        said = (condition(group, CONDITION_ADMITTED) or {}).get("message", "")
        if "is tried again in" in said:
            yield f"PodGroup {group['metadata']['name']} {said}"
    refused = [
        str(event["involvedObject"]["name"])
        for event in api.list(CORE_EVENTS, namespace).items
        if "denied the request" in (event.get("message") or "")
    ]
    for job in api.list(VOLCANO_JOBS, namespace).items:
        said = _job_moves(job, pods)
        if said and job["metadata"]["name"] not in refused:
            yield f"Job {job['metadata']['name']} {said}"
    for resource in (DEPLOYMENTS, STATEFUL_SETS):
        for owner in api.list(resource, namespace).items:
            said = _replicas_move(owner, pods)
            # What asks for more than its queue's cap is refused at the door, pod by pod, for as long.
            if said and not any(_belongs(name, owner["metadata"]["name"]) for name in refused):
                yield f"{resource.kind} {owner['metadata']['name']} {said}"


def _belongs(name: str, owner: str) -> bool:
    """Whether it is the owner, or one of its ReplicaSets."""
    return name == owner or name.startswith(f"{owner}-")


def _pod_moves(pod: Json, told: Collection[str]) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "is on its way out"
    if pod["status"].get("phase") in {"Succeeded", "Failed"}:
        return ""
    if is_gated(pod):
        group = f"{pod['metadata']['namespace']}/{pod['metadata']['annotations'].get(GROUP_NAME)}"
        says = condition(pod, CONDITION_ADMITTED) and group in told
        return "" if says else "is gated, and it or its PodGroup does not say why"
    if not is_running(pod):
        return f"is neither gated nor running: {pod['status'].get('phase')}"
    return ""


def _job_moves(job: Json, pods: list[Json]) -> str:
    phase = ((job.get("status") or {}).get("state") or {}).get("phase", "")
    if job["metadata"].get("deletionTimestamp"):
        return "is on its way out"
    if phase in _ON_ITS_WAY or not phase:
        return f"is {phase or 'not looked at yet'}"
    mine = [
        pod for pod in pods if (pod["metadata"].get("labels") or {}).get(JOB_NAME) == job["metadata"]["name"]
    ]
    if phase in {"Pending", "Inqueue", "Running"}:
        wanted = sum(task["replicas"] for task in job["spec"]["tasks"])
        if len(mine) != wanted:
            return f"is {phase} and has {len(mine)} of {wanted} pods"
    elif phase == "Aborted" and any(map(is_running, mine)):
        return "is aborted and has pods that run"
    return ""


def _replicas_move(owner: Json, pods: list[Json]) -> str:
    if owner["metadata"].get("deletionTimestamp"):
        return "is on its way out"
    mine = [
        pod for pod in pods if (pod["metadata"].get("labels") or {}).get("app") == owner["metadata"]["name"]
    ]
    wanted = owner["spec"]["replicas"]
    in_turn = owner["spec"].get("podManagementPolicy") == "OrderedReady"
    if len(mine) == wanted or (in_turn and len(mine) < wanted and any(map(is_gated, mine))):
        return ""
    return f"has {len(mine)} of {wanted} pods"
