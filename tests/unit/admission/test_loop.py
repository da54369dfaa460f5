"""In which order the loop does things with what came together."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unit.admission.build import added, deleted, group, let_go, pod, queue
from unit.admission.stage import GROUPS, PLAN_ID, PODS, LoopStage, loop_on
from vc_egpu.admission.carry_out.victims import SHIELD_S
from vc_egpu.admission.execution.outcomes import GateWrite, GroupLookup
from vc_egpu.admission.garbage_collector import QUIET_S, Collector
from vc_egpu.admission.intake.inbox import MOST_REST_S, Inbox
from vc_egpu.admission.intake.watch_gaps import ASK_AFTER_S
from vc_egpu.admission.loop import REVIEW_S
from vc_egpu.admission.parts import Item, Others
from vc_egpu.admission.state.agenda import Why
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import Instant, MemberPlacement, Move, NodeName, PodUid, Snapshot
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.model.reasons import Reason
from vc_egpu.volcano.codec import plans
from vc_egpu.volcano.words import names


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[LoopStage]:
    with loop_on(tmp_path) as found:
        yield found


def test_the_collector_tidies_up_where_nothing_happens(
    stage: LoopStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not between two events of a storm, where turns wait for a moment at most."""
    tidied: list[float] = []
    monkeypatch.setattr(Collector, "quiet", lambda _, now: tidied.append(now))
    stage.turn(wait_s=0.0)
    stage.turn(wait_s=QUIET_S / 10)
    assert not tidied
    stage.turn(wait_s=QUIET_S)
    assert len(tidied) == 1


def test_others_compute_while_the_loop_waits_and_not_while_it_decides(stage: LoopStage) -> None:
    seen: list[bool] = []

    def deciding(
        snapshot: Snapshot, policy: Policy, now: Instant, only: Collection[str] | None = None
    ) -> Plan:
        seen.append(stage.loop.rests(0.0))
        return decide(snapshot, policy, now, only)

    stage.decides(deciding)
    stage.arrives("pods", pod("late-w-0", gang="late", uid="pod-9"))
    stage.turn(wait_s=0.0)
    assert seen
    assert not any(seen)
    assert not stage.loop.rests(0.0), "the next turn may have much to do at once"
    waited: list[bool] = []
    other = threading.Thread(target=lambda: waited.append(stage.loop.rests(30.0)))
    other.start()
    stage.turn(wait_s=0.1)
    other.join(30)
    assert waited == [True]


class Resting:
    """Stands for the event that ends a leadership: how long it is waited for, and what happens meanwhile."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self.happens: Callable[[], None] = lambda: None

    def is_set(self) -> bool:
        return False

    def wait(self, timeout: float) -> bool:
        self.waits_s.append(timeout)
        self.happens()
        return False


@pytest.mark.parametrize("storms", [True, False])
def test_turns_of_a_storm_wait_for_more_to_happen_and_take_it_in(tmp_path: Path, storms: bool) -> None:
    rest, inbox = Resting(), Inbox[Item](most_rest_s=3600.0 if storms else -1.0)
    with loop_on(tmp_path, Others(inbox=inbox), rest) as stage:
        rest.waits_s.clear()
        rest.happens = lambda: stage.arrives("pods", pod("late-w-0", gang="late", uid="pod-9"))
        now = time.monotonic()
        inbox.turned(now - 3600.0, now)
        stage.arrives("pods", pod("first-w-0", gang="first", uid="pod-8"))
        stage.turn()
        assert "pod-8" in stage.mirror.pods
        assert ("pod-9" in stage.mirror.pods) is storms is bool(rest.waits_s)


def test_after_a_turn_that_took_long_the_next_follows_soon() -> None:
    inbox, now = Inbox[Item](), time.monotonic()
    inbox.turned(now - 100.0, now)
    assert inbox.rest_s() <= MOST_REST_S


def test_what_is_too_much_for_one_turn_is_all_taken_in(tmp_path: Path) -> None:
    """Ten thousand pods that are deleted at once, say: none of them may stay behind."""
    with loop_on(tmp_path, Others(inbox=Inbox(max_batch=2))) as stage:
        for i in range(5):
            stage.arrives("pods", pod(f"many-w-{i}", gang="many", index=i, uid=f"many-{i}"))
        for count in (2, 4, 5):
            stage.turn()
            assert sorted(stage.mirror.members["default/many"]) == [f"many-{i}" for i in range(count)]


def test_pods_that_were_made_anew_while_their_gangs_plan_was_written_are_decided_after_that(
    stage: LoopStage,
) -> None:
    """The decision about them comes while the plan for those before them is under way; no event follows."""
    stage.server.answers.clear()
    stage.arrives("podgroups", group())
    stage.turn()
    assert stage.work.is_busy("default/g")
    for i in range(2):
        stage.goes("pods", f"g-w-{i}")
        stage.arrives("pods", pod(f"g-w-{i}", index=i, uid=f"again-{i}"))
    stage.turn()
    stage.server.answers.set()
    for _ in range(2):
        stage.await_outcome()  # a plan is written
        stage.turn()
    assert stage.after(GateWrite, 2) == ["g-w-0", "g-w-1"]


def running(stage: LoopStage, count: int, **condition: str) -> None:
    """So many members run, and this is the last word on their gang."""
    for i in range(count):
        placed = let_go(pod(f"g-w-{i}", index=i, uid=f"pod-{i}"), PLAN_ID, bound=True, phase="Running")
        stage.arrives("pods", placed)
    told = [{"type": names.CONDITION_ADMITTED, **condition}] if condition else []
    stage.arrives("podgroups", group(members=1, conditions=told))


def told(stage: LoopStage) -> tuple[Reason, str] | None:
    """What is said, or about to be said, about the gang after one more turn."""
    stage.turn()
    verdict = stage.told()
    return None if verdict is None else (verdict.reason, verdict.message)


def test_a_gang_that_asks_for_less_now_is_told_that_it_waits_no_longer(stage: LoopStage) -> None:
    """As a Deployment that is scaled down: the replica that waited is gone, nobody decides about it again."""
    running(stage, 1, status="False", reason="WaitingForQuota", message="1 of 2 members have a place")
    stage.mirror.around.switches = {"stopAdmitting": "true"}
    waits = told(stage)
    assert waits is not None and waits[0] is not Reason.ADMITTED
    stage.deliver("pods", deleted(pod("g-w-1", index=1, uid="pod-1")))
    assert told(stage) == (Reason.ADMITTED, "1 member placed")


def test_a_podgroup_that_is_made_anew_under_running_pods_is_told_that_they_have_their_cards(
    stage: LoopStage,
) -> None:
    running(stage, 2)
    assert told(stage) == (Reason.ADMITTED, "2 members placed")


def test_a_gang_that_was_told_so_is_not_told_again(stage: LoopStage) -> None:
    stage.reports.forget("default/g")  # as by a leader that takes over
    running(stage, 2, status="True", reason="Admitted", message="2 members have their cards")
    assert told(stage) is None


WAITS = {"type": names.CONDITION_ADMITTED, "status": "False", "reason": "WaitingForCards", "message": "no"}


@pytest.mark.parametrize("knows", [True, False])
def test_a_pod_whose_gate_fell_does_not_go_on_saying_that_it_waits(stage: LoopStage, knows: bool) -> None:
    """What was sent while it waited can be written after its gate fell, by the leader before as well."""
    running(stage, 2, status="True", reason="Admitted", message="2 members placed")
    stage.turn()
    conditions(stage, 0)
    if not knows:
        stage.reports.forget("default/g")  # as a leader that takes over
    late = let_go(
        pod("g-w-1", index=1, uid="pod-1"), PLAN_ID, bound=True, phase="Running", conditions=[WAITS]
    )
    stage.arrives("pods", late)
    stage.turn()
    assert conditions(stage, 1) == ["g-w-1"]


@pytest.mark.parametrize("is_away", [False, True])
def test_who_is_suspended_is_looked_at_again_though_nothing_happens(stage: LoopStage, is_away: bool) -> None:
    running(stage, 2, status="True", reason="Admitted", message="2 members placed")
    for _ in range(2):  # what was left to be decided is
        stage.turn()
    said = stage.said()
    assert said is not None and said.reason is Reason.ADMITTED
    member = stage.mirror.pods[PodUid("pod-0")].pod
    stage.mirror.state.put_pod(replace(member, suspend_ordered=is_away))
    stage.later(REVIEW_S)
    stage.turn(wait_s=0.0)
    assert stage.agenda.all_for is (Why.REVIEW if is_away else None)


@pytest.mark.parametrize("moves", [False, True])
def test_a_gang_that_moves_is_looked_at_again_though_nothing_happens(stage: LoopStage, moves: bool) -> None:
    """Or what is claimed for it would be kept from others until something happens."""
    running(stage, 2, status="True", reason="Admitted", message="2 members placed")
    for _ in range(2):
        stage.turn()
    gang = stage.mirror.state.gang("default/g")
    assert gang is not None
    place = MemberPlacement(NodeName("n1"))
    stage.mirror.state.put_gang(replace(gang, move=Move(5.0, {"w/0": place} if moves else {})))
    stage.later(REVIEW_S)
    stage.turn(wait_s=0.0)
    assert stage.agenda.all_for is (Why.REVIEW if moves else None)


def test_of_podgroups_whose_pods_ask_for_no_cards_nothing_is_decided(stage: LoopStage) -> None:
    """Their pods are not seen here as members: they must not be told that those are missing."""
    stage.arrives("podgroups", group("cpu", members=1, least={"cpu": "1"}))
    stage.arrives("podgroups", group("late", members=1))
    stage.turn()
    assert stage.told("default/cpu") is None
    late = stage.told("default/late")
    assert late is not None and late.reason is Reason.WAITING_FOR_MEMBERS
    stage.arrives("pods", pod("cpu-w-0", gang="cpu", uid="pod-9"))  # a member that asks, after all
    stage.turn()
    assert "default/cpu" in stage.mirror.snapshot().gangs


def test_who_could_not_be_evicted_is_a_victim_again_whatever_the_wall_clock_does(stage: LoopStage) -> None:
    stage.mirror.shield([PodUid("pod-0")], stage.work.clock + SHIELD_S)
    for passes_s, is_shielded in ((SHIELD_S - 1, True), (2, False)):
        stage.later(passes_s)
        stage.turn()
        assert bool(stage.mirror.shielded) is is_shielded


def test_a_podgroup_that_no_watch_told_of_is_asked_for_by_name(stage: LoopStage) -> None:
    """Its pods would wait for it as long as the watch stands still, and be told that it is not there."""
    stage.server.put(f"{GROUPS}/lost", group("lost", members=1))
    stage.arrives("pods", pod("lost-w-0", gang="lost", uid="pod-7"))
    stage.arrives("pods", pod("bare-w-0", gang="not-made-yet", uid="pod-8"))
    stage.later(REVIEW_S)
    stage.turn()
    asked = [path for method, path, _ in stage.server.requests if method == "GET"]
    assert not any("podgroups/lost" in path for path in asked), "its controller may be about to make it"
    stage.later(ASK_AFTER_S + 1)
    stage.turn()
    for done in stage.outcomes(GroupLookup, 3):  # the stage's own gang has no PodGroup either
        stage.inbox.put(done)
    stage.turn()
    assert "default/lost" in stage.mirror.groups
    assert "default/not-made-yet" not in stage.mirror.groups
    said = stage.said("default/lost")
    assert said is not None and said.reason is Reason.ADMITTED, "it is tried at once"


def test_what_was_made_anew_in_one_moment_says_why_it_waits(stage: LoopStage) -> None:
    """Gone and there again before the loop looked, and the verdict is the same."""
    stage.mirror.apply("queues", added(queue(cap=1)))
    stage.arrives("podgroups", group())
    stage.turn()
    assert conditions(stage, 3) == ["g", "g-w-0", "g-w-1"]
    stage.goes("podgroups", "g")
    stage.arrives("podgroups", group(uid="another"))
    stage.goes("pods", "g-w-1")
    stage.arrives("pods", pod("g-w-1", index=1, uid="pod-again"))
    stage.turn()
    assert conditions(stage, 2) == ["g", "g-w-1"]


def conditions(stage: LoopStage, count: int) -> list[str]:
    """Of whom so many conditions are written a moment later; what the API server answered is taken in."""
    stage.server.requests.clear()
    stage.reports.work(stage.mirror, stage.work.clock + 1, time.time())
    done = [stage.inbox.get(timeout_s=10) for _ in range(count)]
    for item in done:
        stage.inbox.put(item)
    stage.turn()
    about = [
        path.partition("?")[0].removesuffix("/status") for _, path, body in stage.server.requests if body
    ]
    return sorted(path.rsplit("/", 1)[-1] for path in about if "/events" not in path)


def test_what_a_gateway_says_in_place_of_an_answer_ends_no_leadership(stage: LoopStage) -> None:
    """In good JSON, and with the HTTP status of a success."""
    stage.server.script_for = "schedulingGates"
    stage.server.script.append((200, {"message": "no backend"}, {}))
    stage.arrives("podgroups", stage.planned())
    end = time.monotonic() + 30
    while any(stage.server.objects[f"{PODS}/g-w-{i}"]["spec"].get("schedulingGates") for i in range(2)):
        assert time.monotonic() < end
        stage.turn()


def test_a_gang_whose_plan_is_too_large_is_admitted_nowhere(
    stage: LoopStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in metrics and views either, nor is it passed over when those that wait are looked at again."""
    monkeypatch.setattr(plans, "MAX_PLAN_BYTES", 10)
    stage.arrives("podgroups", group())
    stage.turn()
    verdict = stage.view().verdicts["default/g"]
    assert (verdict.reason, "the limit is 10" in verdict.message) == (Reason.EXCEEDS_CAP, True)
