"""What is said now of each gang: the last decision's verdicts, and a verdict where no decision says a word.

No decision says a word about two kinds of gangs. Those without a PodGroup are told that it is missing. And
nothing is decided about a gang that has all it asks for. Such a gang may have waited for more and ask for
less now (scaled down, a member deleted). Or its PodGroup was replaced under running pods. It is told here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from vc_egpu.admission.state.agenda import Question
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.reports import Reports, condition_of, says_it_waits
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.core.model.findings import AboveMinimum, Kept, Placed, Shortage
from vc_egpu.core.model.gangs import OVER
from vc_egpu.core.model.reasons import BACK_OFF_NUMBER, Reason, Verdict
from vc_egpu.core.waiting import say

_ROOM = frozenset({Reason.WAITING_FOR_CARDS, Reason.WAITING_FOR_TURN, Reason.WAITING_FOR_QUOTA})
_SEATED = frozenset({PodPhase.PLACED, PodPhase.SUCCEEDED})


class Verdicts:
    """The verdict on each gang since this leader began: for metrics, views, and rules about who waits."""

    def __init__(self) -> None:
        self._now: dict[str, Verdict] = {}

    @property
    def now(self) -> Mapping[str, Verdict]:
        """By gang."""
        return MappingProxyType(self._now)

    def enter(self, question: Question, verdicts: Mapping[str, Verdict]) -> None:
        """A decision was made: what was said before of the gangs that it was about counts no more."""
        if question.only is None:
            self._now = dict(verdicts)
            return
        for key in question.only:
            self._now.pop(key, None)
        self._now.update(verdicts)

    def is_any_waiting(self) -> bool:
        """Whether some gang is not admitted."""
        return any(verdict.reason is not Reason.ADMITTED for verdict in self._now.values())

    def waiting_for_room(self) -> Iterator[str]:
        """Gangs that found no cards, or no quota."""
        return (key for key, verdict in self._now.items() if verdict.reason in _ROOM)

    def would_take_back(self, key: str) -> bool:
        """Whether the gang's queue has less than it deserves, and there was nothing to take back for it."""
        finding = self._now[key].finding if key in self._now else None
        if isinstance(finding, AboveMinimum):
            finding = finding.why
        found = finding.not_reclaimed if isinstance(finding, Shortage) else None
        return found is not None and found.why is not Kept.BEYOND


def said_now(
    decided: Mapping[str, Verdict], question: Question, mirror: Mirror, reports: Reports
) -> dict[str, Verdict]:
    """One verdict for each gang that something is to be said about. The decision's own comes first."""
    said = {key: _refused(key, verdict, mirror) for key, verdict in decided.items()}
    said |= has_all(mirror, question.tried.keys() - decided.keys(), reports)
    if question.only is None:
        said = {**without_group(mirror), **said}
    return said


def _refused(key: str, verdict: Verdict, mirror: Mirror) -> Verdict:
    """The verdict with what the API server refused, which no decision knows of."""
    barred = mirror.refusals.gangs.get(key)
    if barred is not None and BACK_OFF_NUMBER in verdict.numbers:
        text = f"{barred.why}; tried again in {verdict.numbers[BACK_OFF_NUMBER]} s"
        return Verdict(Reason.WRITE_REFUSED, text, verdict.numbers)
    if verdict.reason is not Reason.WAITING_FOR_MEMBERS:
        return verdict
    waits = (m for m in mirror.members.get(key, {}).values() if m.problem and m.pod.phase is PodPhase.GATED)
    first = min(waits, key=lambda member: member.pod.name, default=None)
    if first is None:
        return verdict
    return replace(verdict, message=f"{verdict.message}; pod {first.pod.name}: {first.problem}")


def has_all(mirror: Mirror, keys: Iterable[str], reports: Reports) -> dict[str, Verdict]:
    """What is to be said about these gangs where they wait for nothing any more."""
    found: dict[str, Verdict] = {}
    for key in keys:
        group = mirror.groups.get(key)
        if group is None or group.outstanding:
            continue
        members = mirror.members.get(key, {}).values()
        seated = sum(member.pod.phase in _SEATED for member in members)
        if not seated or seated < group.decoded.gang.min_member:
            continue
        if any(member.pod.phase is PodPhase.GATED for member in members):
            continue
        told = condition_of(group.decoded)
        waits = told is None or told[0] != "True" or reports.says_it_waits(key)
        if waits or any(says_it_waits(member) for member in members):
            rule = group.plan.rule if group.plan is not None else ""
            found[key] = say.verdict(Placed(seated, rule=rule))
    return found


def without_group(mirror: Mirror) -> dict[str, Verdict]:
    """Gangs with living pods that have no PodGroup: nothing is decided on them, and they should know."""
    text = "there is no PodGroup {} yet; its controller makes it"
    return {
        key: Verdict(Reason.WAITING_FOR_MEMBERS, text.format(key))
        for key in mirror.members.keys() - mirror.groups.keys()
        # When a Job is over its PodGroup is taken away, and the pods stay for days.
        if any(member.pod.phase not in OVER for member in mirror.members[key].values())
    }
