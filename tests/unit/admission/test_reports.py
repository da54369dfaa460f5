"""When a gang is told why it waits."""

from typing import Any

from unit.admission.build import TABLE, added, group, pod, queue
from vc_egpu.admission.mirror import Mirror
from vc_egpu.admission.reports import IN_LINE_S, MEMBERS_SETTLE_S, Reports
from vc_egpu.core.reasons import Reason, Verdict

KEY = "default/g"
MISSING = Verdict(Reason.WAITING_FOR_MEMBERS, "0 of 2 members are there")


class Told:
    """Executor and event recorder in one: what was written, by gang."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.pods: list[str] = []
        self.events: list[str] = []

    def group_condition(self, _key: str, _group: Any, condition: dict[str, Any]) -> None:
        self.reasons.append(condition["reason"])

    def pod_condition(self, _key: str, _pod: Any, condition: dict[str, Any]) -> None:
        self.pods.append(condition["reason"])

    def event(self, _about: Any, _kind: str, reason: str, _note: str) -> None:
        self.events.append(reason)


def stage(phase: str) -> tuple[Reports, Mirror, Told]:
    told: Any = Told()
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    mirror.apply("podgroups", added(group(phase=phase)))
    return Reports(told, told), mirror, told


def test_a_gang_whose_pods_nobody_makes_yet_is_told_later() -> None:
    reports, mirror, told = stage("Pending")
    reports.note({KEY: MISSING}, 0.0)
    reports.work(mirror, MEMBERS_SETTLE_S + 0.1, 1e9)
    assert told.reasons == []
    assert reports.next_at() is not None, "it is looked at again"
    reports.work(mirror, IN_LINE_S + 0.2, 1e9)
    assert told.reasons == told.events == ["WaitingForMembers"]


def test_one_that_was_enqueued_is_told_as_soon_as_its_controller_had_time() -> None:
    reports, mirror, told = stage("Inqueue")
    reports.note({KEY: MISSING}, 0.0)
    reports.work(mirror, MEMBERS_SETTLE_S - 0.1, 1e9)
    assert told.reasons == []
    reports.work(mirror, MEMBERS_SETTLE_S + 0.1, 1e9)
    assert told.reasons == ["WaitingForMembers"]


def test_a_pod_that_is_there_ends_the_standing_in_line() -> None:
    reports, mirror, told = stage("Pending")
    mirror.apply("pods", added(pod()))
    reports.note({KEY: MISSING}, 0.0)
    reports.work(mirror, MEMBERS_SETTLE_S + 0.1, 1e9)
    assert told.reasons == told.pods == ["WaitingForMembers"]


def test_a_gang_that_got_its_place_meanwhile_was_never_told_to_wait() -> None:
    reports, mirror, told = stage("Pending")
    reports.note({KEY: MISSING}, 0.0)
    reports.work(mirror, MEMBERS_SETTLE_S + 0.1, 1e9)
    reports.note({KEY: Verdict(Reason.ADMITTED, "2 members have their cards")}, MEMBERS_SETTLE_S + 1)
    reports.work(mirror, IN_LINE_S + 1, 1e9)
    assert "WaitingForMembers" not in told.reasons + told.events
