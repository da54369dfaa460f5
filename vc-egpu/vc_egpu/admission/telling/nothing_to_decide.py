"""Gangs about which no decision says a word.

Those without a PodGroup are told that it is missing. And nothing is decided about a gang that has all it asks
for: one that waited for more and asks for less now (scaled down, a member deleted), or whose PodGroup was
made anew under running pods, is told so here.
"""

from collections.abc import Iterable

from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.state.tally import OVER
from vc_egpu.admission.telling.reports import Reports, condition_of, says_it_waits
from vc_egpu.core.model.cluster import PodPhase
from vc_egpu.core.model.findings import Placed
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.core.waiting import say

_SEATED = frozenset({PodPhase.PLACED, PodPhase.SUCCEEDED})


def verdicts(mirror: Mirror, keys: Iterable[str], reports: Reports) -> dict[str, Verdict]:
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
            found[key] = say.verdict(Placed(seated))
    return found


def without_group(mirror: Mirror) -> dict[str, Verdict]:
    """Gangs with living pods that have no PodGroup: nobody decides on them, and they should know."""
    text = "there is no PodGroup {} yet; its controller makes it"
    return {
        key: Verdict(Reason.WAITING_FOR_MEMBERS, text.format(key))
        for key in mirror.members.keys() - mirror.groups.keys()
        # Of a Job that is over the PodGroup is taken away, and the pods stay for days.
        if any(member.pod.phase not in OVER for member in mirror.members[key].values())
    }
