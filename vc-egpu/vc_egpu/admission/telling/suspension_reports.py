"""Conditions and events about suspensions: written where they are not what stands there, one at a time."""

import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import assert_never

from vc_egpu.admission.execution import writes
from vc_egpu.admission.execution.executor import Executor
from vc_egpu.admission.execution.outcomes import GroupReport, PodReport
from vc_egpu.admission.execution.results import Denied, Later, Overtaken, Unknown, Written
from vc_egpu.admission.state.gangs import Group
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling import suspension_words as words
from vc_egpu.admission.telling.reports import Reports, group_reference, pod_reference
from vc_egpu.core.model.cluster import Instant, PodPhase, PodUid
from vc_egpu.volcano.codec.pod_codec import DecodedPod


@dataclass(slots=True)
class SuspensionReports:
    """Owned by the conductor's thread."""

    mirror: Mirror
    executor: Executor
    reports: Reports
    wall: Callable[[], Instant] = time.time
    under_way: set[str] = field(default_factory=set)
    """UIDs of pods and keys of gangs whose condition is being written."""
    again: set[str] = field(default_factory=set)
    """Gangs about which not everything could be said."""
    _pods: dict[PodUid, words.Said] = field(default_factory=dict)
    _gangs: dict[str, words.Said] = field(default_factory=dict)
    _refused: dict[str, words.Said] = field(default_factory=dict)
    """What the API server does not let us write on a pod or a PodGroup, by UID or key."""

    def tell(
        self,
        key: str,
        group: Group,
        about: Callable[[DecodedPod], words.Said | None],
        written: Container[PodUid],
    ) -> None:
        """Say what is new about a gang; pods in ``written`` are being written to, and have to wait."""
        members = [m for m in self.mirror.members.get(key, {}).values() if m.pod.phase is PodPhase.PLACED]
        found = [(pod, said.cut()) for pod in members if (said := about(pod)) is not None]
        for pod, said in found:
            uid = pod.pod.uid
            # What stands there counts, not what was written: a write of the leader before may come late.
            if words.stands(pod) == said or self._refused.get(uid) == said:
                continue
            if uid in written or uid in self.under_way:
                continue  # looked at once more when that is done
            if not self.reports.limit.try_take():
                self.again.add(key)
                return
            self.under_way.add(uid)
            self.executor.pod_condition(key, pod, words.condition(said, self.wall()))
            if self._pods.get(uid) != said:
                self._pods[uid] = said
                self.event(pod_reference(pod), said)
        if found or self.has_more(key, group):
            self._tell_of_gang(key, group, found, len(members))

    def _tell_of_gang(
        self, key: str, group: Group, found: list[tuple[DecodedPod, words.Said]], members: int
    ) -> None:
        answers = (self.mirror.answers.about(pod) for pod, said in found if said.status == "True")
        said = words.of_gang(found, members, sum(answer.host_mib for answer in answers)).cut()
        if said in (words.standing(group.decoded.conditions), self._gangs.get(key)) or key in self.under_way:
            return
        self._gangs[key] = said
        self.under_way.add(key)
        self.executor.group_condition(key, group.decoded, words.condition(said, self.wall()))
        self.event(group_reference(key, group.decoded), said)

    def has_more(self, key: str, group: Group) -> bool:
        """Whether its PodGroup says something that is not the last word."""
        last = self._gangs.get(key) or words.standing(group.decoded.conditions)
        # A pod that could not come back is replaced, and that is the last word on the pod alone.
        return last is not None and (last.is_open or last.reason == words.RESTORE_FAILED)

    def event(self, about: writes.Json, said: words.Said) -> None:
        """The same as an event."""
        self.reports.events.event(about, said.event_type, said.reason, said.message)

    def told(self, done: GroupReport | PodReport) -> None:
        """A condition was written, or could not be: then once more, later."""
        about = done.uid if isinstance(done, PodReport) else done.gang
        if about not in self.under_way:
            return  # another condition
        self.under_way.discard(about)
        result = done.result
        match result:
            case Written():
                self.mirror.agenda.look_at(done.gang)
            case Overtaken() | Later() | Unknown():
                self.again.add(done.gang)
                self._forget_told(done)
            case Denied():
                # It stays untold until there is something else to say; the event has told it.
                said = self._pods.get(done.uid) if isinstance(done, PodReport) else self._gangs.get(done.gang)
                if said is not None:
                    self._refused[about] = said
            case _:
                assert_never(result)

    def _forget_told(self, done: GroupReport | PodReport) -> None:
        if isinstance(done, PodReport):
            self._pods.pop(done.uid, None)
        else:
            self._gangs.pop(done.gang, None)

    def gone(self, uid: PodUid) -> None:
        """The pod is not there any more."""
        self._pods.pop(uid, None)
        self._refused.pop(uid, None)

    def forget(self, key: str) -> None:
        """The gang is gone."""
        self._gangs.pop(key, None)
        self._refused.pop(key, None)
