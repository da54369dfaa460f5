"""What earlier runs of the same Job showed: counted here from its pods, kept for the next leader.

The loop owns it, and tells it of each change of a pod. It costs nothing while no rule of placement asks, and
no node says how busy its pods are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vc_egpu.admission.kept.keeper import Form
from vc_egpu.core.measured.use import FULL_POINTS
from vc_egpu.core.model.cluster import Instant, PodPhase
from vc_egpu.core.model.gangs import HOLDING
from vc_egpu.core.profiles.runs import MOST_S, NO_HABIT, Habit, ended, job_of
from vc_egpu.volcano.codec.cluster_codec import Owner
from vc_egpu.volcano.codec.pod_codec import DecodedPod

MOST_JOBS: Final = 2000
"""Those that ended last are kept."""
MOST_BYTES: Final = 256 * 1024
"""Names may be long: the oldest Jobs are left out of what is written then."""
_MOST_PODS: Final = 100
_LONGEST: Final = 600


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore")

    pods: int = Field(strict=True, ge=1, le=_MOST_PODS)
    held_s: float = Field(ge=0, le=MOST_S, allow_inf_nan=False)
    used_points: float | None = Field(default=None, ge=0, le=FULL_POINTS, allow_inf_nan=False)


class _Kept(BaseModel):
    """The document."""

    model_config = ConfigDict(extra="ignore")

    version: int = Field(ge=1, le=1)
    jobs: dict[str, _Row] = {}


Runs = Mapping[str, Habit]
"""Habits by Job; those that ended last come last."""


@dataclass(slots=True)
class EarlierRuns:
    """The habits of Jobs. Without ``wanted`` nothing is counted."""

    wanted: bool = False
    of_use_alone: bool = False
    """Pods of which nobody says how busy they were are not counted."""
    _habits: dict[str, Habit] = field(default_factory=dict)
    _told: Runs | None = field(default_factory=dict)

    @property
    def habits(self) -> Runs:
        """A copy that stays as it is: the same one until another pod is counted."""
        if self._told is None:
            self._told = dict(self._habits)
        return self._told

    def of(self, namespace: str, owner: Owner | None) -> Habit:
        """What earlier runs of the Job showed that makes these pods; nothing for other makers."""
        if owner is None or owner.kind != "Job":
            return NO_HABIT
        return self._habits.get(job_of(namespace, _kind(owner), owner.name), NO_HABIT)

    def change(
        self,
        before: DecodedPod | None,
        now: DecodedPod,
        at: Instant | None,
        used_points: int | None = None,
    ) -> None:
        """A managed pod changed. ``at``: now; None: it is not known. ``used_points``: how busy it was."""
        if not self.wanted or before is None or now.owner is None or now.owner.kind != "Job":
            return
        pod = now.pod
        if pod.phase is not PodPhase.SUCCEEDED or before.pod.phase not in HOLDING or not pod.shape.asks:
            return
        if self.of_use_alone and used_points is None:
            return
        over, since = pod.finished or at, pod.started or before.pod.started
        if over is None or since is None or over < since:
            return
        job = job_of(pod.namespace, _kind(now.owner), now.owner.name)
        self._habits[job] = ended(self._habits.pop(job, NO_HABIT), over - since, used_points)
        self._told = None
        while len(self._habits) > MOST_JOBS:
            del self._habits[next(iter(self._habits))]

    def begin(self, kept: Runs) -> None:
        """Go on from what an earlier leader learned."""
        self._habits, self._told = {**kept, **self._habits}, None


def encode(habits: Runs) -> str:
    """The habits as text of :data:`MOST_BYTES` at most: of those that ended last."""
    jobs = list(habits.items())
    while True:
        rows = {job: _row(one) for job, one in jobs}
        text = json.dumps({"version": 1, "jobs": rows}, separators=(",", ":"))
        if len(text.encode()) <= MOST_BYTES or not jobs:
            return text
        jobs = jobs[-(len(jobs) // 2) :] if len(jobs) > 1 else []


def _row(habit: Habit) -> dict[str, float]:
    row = {"pods": habit.pods, "held_s": round(habit.held_s, 1)}
    return row if habit.used_points is None else row | {"used_points": round(habit.used_points, 1)}


def decode(text: str) -> Runs:
    """The habits in a text. Raises ``ValueError``."""
    try:
        kept = _Kept.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(error.errors()[0]["msg"]) from error
    if len(kept.jobs) > MOST_JOBS or any(len(job) > _LONGEST for job in kept.jobs):
        raise ValueError("it has too many Jobs, or too long names")
    return {job: Habit(row.pods, row.held_s, row.used_points) for job, row in kept.jobs.items()}


FORM: Final = Form[Runs](
    key="earlier-runs.json",
    encode=encode,
    decode=decode,
    every_s=300.0,
    nothing={},
    unread="what earlier runs of Jobs showed is not known",
)


def _kind(owner: Owner) -> str:
    return "VolcanoJob" if owner.is_volcano_job else owner.kind
