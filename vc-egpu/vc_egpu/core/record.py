"""What a decision has found so far; becomes the plan."""

from vc_egpu.core.gangs import GangView
from vc_egpu.core.plan import Admission, Plan, Readiness, Withdrawal
from vc_egpu.core.ready import task_minimums
from vc_egpu.core.reasons import Verdict

_Mark = tuple[object, ...]


class Recorder:
    """Collects admissions, withdrawals and verdicts; remembers which shapes found no room."""

    def __init__(self, revision: int) -> None:
        self._revision = revision
        self._admissions: list[Admission] = []
        self._withdrawals: list[Withdrawal] = []
        self._ready: list[Readiness] = []
        self._verdicts: dict[str, Verdict] = {}
        self._refused: dict[_Mark, Verdict] = {}

    def decided(self, key: str) -> bool:
        """Whether this gang has its verdict."""
        return key in self._verdicts

    def waits(self, view: GangView, verdict: Verdict) -> None:
        """The gang waits, and why."""
        self._verdicts[view.gang.key] = verdict

    def admits(self, admission: Admission, verdict: Verdict) -> None:
        """The gang has its place, now or once its victims are gone."""
        self._admissions.append(admission)
        self._verdicts[admission.gang] = verdict

    def withdraws(self, withdrawal: Withdrawal, verdict: Verdict) -> None:
        """The gang's waiting plan is void."""
        self._withdrawals.append(withdrawal)
        self._verdicts[withdrawal.gang] = verdict

    def turns_ready(self, readiness: Readiness, verdict: Verdict) -> None:
        """The gang's victims are gone."""
        self._ready.append(readiness)
        self._verdicts[readiness.gang] = verdict

    def refused(self, view: GangView) -> Verdict | None:
        """The verdict on an equal gang that found no room: rooms only shrink within one decision."""
        return self._refused.get(_mark(view)) if not view.runs else None

    def refuse_alike(self, view: GangView, verdict: Verdict) -> None:
        """Equal gangs need not be tried again in this decision."""
        if not view.runs:
            self._refused[_mark(view)] = verdict

    def plan(self) -> Plan:
        """Everything, as one value."""
        return Plan(
            revision=self._revision,
            admissions=tuple(self._admissions),
            withdrawals=tuple(self._withdrawals),
            ready=tuple(self._ready),
            verdicts=dict(sorted(self._verdicts.items())),
        )


def _mark(view: GangView) -> _Mark:
    gang = view.gang
    shapes: dict[tuple[str, int], int] = {}
    for member in view.waiting:
        key = (member.task, member.shape_id)
        shapes[key] = shapes.get(key, 0) + 1
    return (
        gang.queue,
        gang.share_class,
        gang.single,
        gang.blocked_nodes,
        view.missing,
        tuple(sorted(task_minimums(gang).items())),
        tuple(sorted(shapes.items())),
    )
