"""A question stands aside for decisions, and its time ends."""

import threading
from dataclasses import dataclass, field

import pytest
from unit.core import make
from vc_egpu.admission.serving.foresight.budget import Budget
from vc_egpu.core.model.cluster import Gang, Snapshot
from vc_egpu.core.model.policy import Policy
from vc_egpu.whatif.answers import MOST_COPIES, Asked, would_start
from vc_egpu.whatif.hypothesis import Hypothesis, OutOfTimeError

NOW = 1000.0


@dataclass
class Steps:
    """Counts steps, and ends the time after so many."""

    most: int
    done: int = 0

    def step(self) -> None:
        self.done += 1
        if self.done > self.most:
            raise OutOfTimeError


@dataclass
class LoopStandIn:
    """A loop that is busy or rests, as a test says, and hears of each question's step."""

    resting: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)
    steps: int = 0

    def rests(self, timeout_s: float) -> bool:
        if not self.resting.is_set():
            self.waiting.set()
        found = self.resting.wait(timeout_s)
        self.steps += found
        return found


def cluster(nodes: int, *, used: int = 0, runtime_s: float | None = None) -> Snapshot:
    """Nodes of eight cards; on the first ``used`` nodes all cards are taken by gangs of one node."""
    each = [make.node(f"n{i}", 8) for i in range(nodes)]
    gangs: list[Gang] = []
    pods = []
    for number in range(used):
        key = f"ns/old{number}"
        gangs.append(make.gang(key, least=8))
        members = make.pods(key, 8, make.shape(make.H20_MIB, 100, runtime_s=runtime_s))
        pods += [make.placed(pod, f"n{number}/{card}", started=NOW) for card, pod in enumerate(members)]
    return make.snapshot(each, gangs, pods, models={"h20": make.H20_MIB})


def asked(members: int = 8) -> Asked:
    shape = make.shape(make.H20_MIB, 100)
    return Asked(make.gang("ns/new", least=members), (("w", members, shape),))


def test_a_question_stands_still_while_the_loop_is_busy() -> None:
    loop, found = LoopStandIn(), []
    budget = Budget(loop.rests, limit_s=60)
    thread = threading.Thread(
        target=lambda: found.append(would_start(cluster(4), Policy(), NOW, asked(), step=budget.step))
    )
    thread.start()
    assert loop.waiting.wait(10)
    assert (loop.steps, found) == (0, [])
    loop.resting.set()
    thread.join(10)
    assert found[0].outcome == "starts"
    assert found[0].more == 3


def test_the_time_of_a_question_ends_while_the_loop_is_busy() -> None:
    budget = Budget(LoopStandIn().rests, limit_s=0.01)
    with pytest.raises(OutOfTimeError):
        would_start(cluster(4), Policy(), NOW, asked(), step=budget.step)


def test_what_is_known_by_the_end_of_the_time_is_told() -> None:
    whole = Steps(10**9)
    answer = would_start(cluster(40), Policy(), NOW, asked(1), step=whole.step)
    assert (answer.more, answer.more_is_bounded) == (MOST_COPIES, True)
    part = Steps(whole.done - MOST_COPIES + 5)
    cut = would_start(cluster(40), Policy(), NOW, asked(1), step=part.step)
    assert (cut.outcome, cut.more_is_bounded) == ("starts", True)
    assert 0 < cut.more < MOST_COPIES


def test_a_forecast_without_time_says_that_it_was_cut_short() -> None:
    full = cluster(4, used=4, runtime_s=100.0)
    whole = Steps(10**9)
    assert would_start(full, Policy(), NOW, asked(16), step=whole.step).forecast is not None
    cut = would_start(full, Policy(), NOW, asked(16), step=Steps(whole.done - 1).step)
    assert (cut.outcome, cut.forecast, cut.is_cut_short) == ("waits", None, True)


def test_a_question_begins_no_step_during_a_decision() -> None:
    """The loop's side: decisions with pauses, next to questions about the same large cluster."""
    snapshot, loop = cluster(300, used=150), LoopStandIn()
    loop.resting.set()
    live = Hypothesis(snapshot, Policy(), NOW)
    live.submit(make.gang("ns/live", least=8), asked().tasks)
    ended = threading.Event()

    def questions() -> None:
        while not ended.is_set():
            would_start(snapshot, Policy(), NOW, asked(1), step=Budget(loop.rests, limit_s=60).step)

    thread = threading.Thread(target=questions, daemon=True)
    thread.start()
    begun: list[int] = []
    try:
        while len(begun) < 40:
            loop.resting.clear()
            before = loop.steps
            live.decide({"ns/live"})
            begun.append(loop.steps - before)
            loop.waiting.clear()
            loop.resting.set()
            ended.wait(0.005)
    finally:
        ended.set()
        loop.resting.set()
        thread.join(60)
    assert not thread.is_alive()
    assert loop.steps > 40, "questions were answered meanwhile"
    assert max(begun) <= 1, "one may have been allowed in the moment before"
    assert sum(begun) < 20
