"""When a gang is told why it waits."""

from typing import Any

from unit.admission.build import TABLE, added, deleted, group, let_go, pod, queue
from vc_egpu.admission.execution import writes
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.admission.telling.reports import IN_LINE_S, MEMBERS_SETTLE_S, NUMBERS_EVERY_S, Reports
from vc_egpu.core.model.reasons import Reason, Verdict

KEY = "default/g"
MISSING = Verdict(Reason.WAITING_FOR_MEMBERS, "0 of 2 members are there")


class Told:
    """Executor and event recorder in one: what was written, by gang."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.messages: list[str] = []
        self.pods: list[str] = []
        self.events: list[str] = []

    def group_condition(self, _key: str, _group: Any, condition: dict[str, Any]) -> None:
        self.reasons.append(condition["reason"])
        self.messages.append(condition["message"])

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


FULL = Verdict(Reason.WAITING_FOR_QUOTA, "the queue team has 1 of 4 left")
FULLER = Verdict(Reason.WAITING_FOR_QUOTA, "the queue team has 0 of 4 left")


def waiting() -> tuple[Reports, Mirror, Told]:
    """A gang of two that was told a moment ago why it waits; it stands on its objects."""
    reports, mirror, told = stage("Inqueue")
    stands = writes.condition(admitted=False, reason=FULL.reason.value, message=FULL.message, now=1e9)
    for index in range(2):
        mirror.apply("pods", added(pod(f"g-w-{index}", index=index)))
    reports.note({KEY: FULL}, 0.0)
    reports.work(mirror, 1.0, 1e9)
    assert (told.reasons, told.pods) == (["WaitingForQuota"], ["WaitingForQuota"] * 2)
    mirror.apply("podgroups", added(group(phase="Inqueue", conditions=[stands])))
    for index in range(2):
        mirror.apply("pods", added(pod(f"g-w-{index}", index=index, conditions=[stands])))
    return reports, mirror, told


def test_a_pod_group_that_was_made_anew_says_so_too() -> None:
    """Its pods wait as before: the verdict is the same, and nothing stands on the new object."""
    reports, mirror, told = waiting()
    mirror.apply("podgroups", deleted(group()))
    mirror.apply("podgroups", added(group(uid="another", phase="Inqueue")))
    reports.note({KEY: FULL}, 2.0)
    reports.look_again((KEY,), 2.0)
    reports.work(mirror, 3.0, 1e9)
    assert (told.reasons, told.pods) == (["WaitingForQuota"] * 2, ["WaitingForQuota"] * 2)


def test_a_member_that_was_made_anew_says_so_too() -> None:
    reports, mirror, told = waiting()
    mirror.apply("pods", deleted(pod("g-w-1")))
    mirror.apply("pods", added(pod("g-w-1", index=1, uid="another")))
    reports.note({KEY: FULL}, 2.0)
    reports.look_again((KEY,), 2.0)
    reports.work(mirror, 3.0, 1e9)
    assert (told.reasons, told.pods) == (["WaitingForQuota"], ["WaitingForQuota"] * 3)


def test_looking_again_tells_new_numbers_no_sooner() -> None:
    reports, mirror, told = waiting()
    reports.note({KEY: FULLER}, 2.0)
    reports.look_again((KEY,), 2.0)
    reports.work(mirror, 3.0, 1e9)
    assert (len(told.reasons), len(told.pods)) == (1, 2)
    reports.work(mirror, 1.0 + NUMBERS_EVERY_S, 1e9)
    assert (len(told.reasons), len(told.pods)) == (2, 4)


def test_looking_again_tells_nothing_sooner_that_is_not_yet_told() -> None:
    reports, mirror, told = stage("Inqueue")
    reports.note({KEY: MISSING}, 0.0)
    reports.look_again((KEY,), 0.0)
    reports.work(mirror, MEMBERS_SETTLE_S - 0.1, 1e9)
    assert told.reasons == []
    reports.work(mirror, MEMBERS_SETTLE_S + 0.1, 1e9)
    assert told.reasons == ["WaitingForMembers"]


def test_a_member_that_has_its_place_does_not_wait_beside_those_that_do() -> None:
    """A Deployment that is scaled beyond its cap: the last that fits was told to wait for its victims."""
    reports, mirror, told = waiting()
    stands = writes.condition(admitted=False, reason=FULL.reason.value, message=FULL.message, now=1e9)
    mirror.apply("pods", added(let_go(pod("g-w-0"), "1-1", bound=True, conditions=[stands])))
    reports.note({KEY: FULL}, 2.0)
    reports.look_again((KEY,), 2.0)
    reports.work(mirror, 3.0, 1e9)
    assert told.pods == ["WaitingForQuota"] * 2 + ["Admitted"]


SOME = Verdict(Reason.ADMITTED, "2 members placed; 4 above ...", {"placed": 2, "surplus_waiting": 4})
FEWER = Verdict(Reason.ADMITTED, "1 more member placed; 3 above ...", {"placed": 1, "surplus_waiting": 3})
ALL = Verdict(Reason.ADMITTED, "4 more members placed, 6 in all", {"placed": 4, "surplus_waiting": 0})


def grown(*verdicts: Verdict) -> tuple[Reports, Mirror, Told]:
    """A gang that was told of the first verdict, and got the others within two seconds."""
    reports, mirror, told = stage("Running")
    for number, verdict in enumerate(verdicts):
        reports.note({KEY: verdict}, float(number))
        reports.work(mirror, number + 0.9, 1e9)
    return reports, mirror, told


def test_nobody_is_said_to_wait_any_more_as_soon_as_all_have_their_place() -> None:
    """The reason is the same, and that some wait would stand there for half a minute."""
    _, _, told = grown(SOME, ALL)
    assert told.messages == [SOME.message, ALL.message]
    assert told.events == ["Admitted"]


def test_how_many_wait_is_numbers() -> None:
    reports, mirror, told = grown(SOME, FEWER)
    assert told.messages == [SOME.message]
    reports.work(mirror, 1.0 + NUMBERS_EVERY_S, 1e9)
    assert told.messages == [SOME.message, FEWER.message]


def test_a_gang_that_grows_again_and_again_is_told_now_and_then() -> None:
    _, _, told = grown(SOME, ALL, SOME, ALL)
    assert told.messages == [SOME.message, ALL.message]
