"""What a caller is told of a Job: documents of the API server in, ours out. Pure."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from vc_egpu.volcano.words import names

State = Literal["waiting", "running", "ended", "failed", "stopped", "restarting"]
_STATES: Final[Mapping[str, State]] = {
    "Running": "running",
    "Completing": "running",
    "Restarting": "restarting",
    "Completed": "ended",
    "Failed": "failed",
    "Aborting": "stopped",
    "Aborted": "stopped",
    "Terminating": "stopped",
    "Terminated": "stopped",
}
_COUNTS: Final = ("pending", "running", "succeeded", "failed", "terminating", "unknown")

Json = Mapping[str, Any]


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True)


class JobAnswer(_Told):
    """A Job as it stands."""

    name: str
    namespace: str
    uid: str
    queue: str
    state: State = Field(description="waiting: not all of its members were started yet")
    phase: str = Field(
        default="", description="Volcano's own word for the state; empty before its controller saw it"
    )
    message: str = Field(default="", description="the controller's sentence for people")
    members: int = Field(description="how many members it has")
    pods: dict[str, int] = Field(default={}, description="members by state; those that are none are left out")
    created: str = Field(default="", description="RFC 3339")
    reason: str = Field(
        default="", description="the last decision: Admitted, or why it waits, as `kubectl egpu why`"
    )
    why: str = Field(default="", description="the sentence of that decision, with its numbers")
    alternative: str = Field(default="", description="the model or alternative that was chosen")


class Refusal(_Told):
    """What is wrong with a request."""

    message: str
    field: str = Field(default="", description="path of the field; empty where it is not about one")
    limit: str = Field(default="", description="what would do")


class ErrorAnswer(_Told):
    """The body of every 4xx and 5xx."""

    error: Refusal


def told(job: Json, group: Json | None = None) -> JobAnswer:
    """The answer for a Job, with its PodGroup where there is one that the caller may see."""
    metadata, spec, status = (_mapping(job.get(key)) for key in ("metadata", "spec", "status"))
    state = _mapping(status.get("state"))
    phase = str(state.get("phase") or "")
    decision = _decision(group)
    marks = _mapping(_mapping(_mapping(group).get("metadata")).get("annotations"))
    return JobAnswer(
        name=str(metadata.get("name") or ""),
        namespace=str(metadata.get("namespace") or ""),
        uid=str(metadata.get("uid") or ""),
        queue=str(spec.get("queue") or ""),
        state=_STATES.get(phase, "waiting"),
        phase=phase,
        message=str(state.get("message") or ""),
        members=sum(_number(task.get("replicas")) for task in spec.get("tasks") or () if task),
        pods={word: count for word in _COUNTS if (count := _number(status.get(word)))},
        created=str(metadata.get("creationTimestamp") or ""),
        reason=str(decision.get("reason") or ""),
        why=str(decision.get("message") or ""),
        alternative=str(marks.get(names.CHOICE) or ""),
    )


def _decision(group: Json | None) -> Json:
    conditions = _mapping(_mapping(group).get("status")).get("conditions") or ()
    return next(
        (one for one in conditions if _mapping(one).get("type") == names.CONDITION_ADMITTED),
        {},
    )


def _mapping(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
