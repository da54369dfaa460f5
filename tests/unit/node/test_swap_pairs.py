"""Two programs that take one card in turns, with a scripted helper: their memory is held, and moves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from unit.node.granted import grant
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.swapping.notes import NodeSwaps, PodSwap
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.suspension.facts import LowPod, NodeState
from vc_egpu_node.suspension.helper import Answer, Drain, HelperError, Verb
from vc_egpu_node.suspension.machine import Process
from vc_egpu_node.suspension.suspender import Store, Suspender
from vc_egpu_node.suspension.verdict import Verdict
from vc_egpu_node.suspension.work import Worker
from vc_egpu_node.swapping.pairs import Pairs, SwapPod, swap_pods
from vc_egpu_node.swapping.signs import Sign
from vc_egpu_node.wall.offences import Seen
from vc_egpu_node.wall.wall import Look

CARD = "GPU-1"
M = 90_000
STAY_S = 60.0


def swap_grant(name: str) -> Grant:
    share = CardShare(uuid=CARD, memory_mib=M, cores=0, physical_mib=M // 2, swap=True)
    return replace(grant(name), shares=(share,))


@dataclass
class Program:
    """One process on the card, or on the host."""

    process: Process
    mib: int = 80_000
    state: str = "running"
    open: bool = False
    """Its gate."""
    asks: bool = False
    """Some call of it waits."""
    units: int = 0
    began: bool = False
    """It has taken its memory."""


@dataclass
class Stage:
    """Around, helper and driver in one; agents come and go."""

    folder: Path
    programs: dict[str, Program] = field(default_factory=dict)
    now_s: float = 1_000_000.0
    looks: int = 0
    policy_now: Policy = field(
        default_factory=lambda: Policy(host_memory_mib=4 * M, swap_min_stay_s=STAY_S, swap_idle_s=5.0)
    )
    bound: dict[str, str] = field(default_factory=dict)
    told: list[tuple[str, str]] = field(default_factory=list)
    said: NodeSwaps | None = None
    dies: bool = False
    """The agent is killed at the helper's next call: its answer is heard by nobody."""
    api_down: bool = False

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        store = Store(self.folder)
        self.pairs = Pairs(self, poke=lambda: None)
        self.pairs.remember(store.all().values())
        worker = Worker(self, self, look=self.look, shortage=self.shortage)  # type: ignore[arg-type]
        self.suspender = Suspender(self.pairs, worker, store, self.policy, clock=lambda: self.now_s)

    def start(self, name: str) -> Program:
        self.programs[name] = Program((100 + len(self.programs), 5))
        return self.programs[name]

    # around
    def pods(self) -> Mapping[str, SwapPod] | None:
        views = [
            PodView(f"uid-{name}", "ns", name, "node-1", "Running", None, running=frozenset({"main"}))
            for name in self.programs
        ]
        return swap_pods([swap_grant(name) for name in self.programs], views)

    def is_here(self, pod_uid: str) -> bool:
        return pod_uid.removeprefix("uid-") in self.programs

    def node(self) -> NodeState:
        return NodeState("580.1", False, self.policy_now.host_memory_mib, {})

    def policy(self) -> Policy:
        return self.policy_now

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        return Verdict(self.bound.get(pod.view.name, ""))

    def sign(self, pod: SwapPod) -> Sign:
        program = self.programs[pod.view.name]
        # The monotonic clock began at zero of Unix time here.
        return Sign(((program.units,),), int(self.now_s * 1e9) if program.asks else 0)

    def closed(self, pod: LowPod) -> bool:
        return not self.programs[pod.view.name].open

    def holds(self, pod: LowPod) -> bool:
        program = self.programs[pod.view.name]
        return program.began and program.state != "checkpointed"

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        program = self.programs[pod_uid.removeprefix("uid-")]
        program.open = not closed
        if program.open:
            program.asks = False

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        self.told.append((pod.view.name, reason))

    def publish(self, text: str | None) -> None:
        if self.api_down:
            raise KubeError("away")
        self.said = NodeSwaps.decode(text) if text is not None else None

    def clocks(self) -> tuple[float, int]:
        return self.now_s, int(self.now_s * 1e9)

    # helper and driver
    def run(
        self, verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None
    ) -> Answer:
        mine = {one.process: one for one in self.programs.values()}
        for process in processes:
            mine[process].state = "checkpointed" if verb == "suspend" else "running"
            self.never_both()
        if self.dies:
            raise HelperError("killed")
        return Answer(done=True, states={pid: mine[(pid, start)].state for pid, start in processes})

    def sweep(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def look(self) -> Look:
        self.looks += 1
        held = {name: one for name, one in self.programs.items() if one.began and one.state != "checkpointed"}
        seen = tuple(Seen(CARD, *one.process, one.mib, 0, name) for name, one in held.items())
        return Look(seen, dict.fromkeys(self.programs), self.looks)

    def shortage(self, pod: LowPod, card_mib: Mapping[str, int]) -> str:
        return ""

    def processes(self, pod: LowPod, look: Look) -> tuple[Process, ...]:
        program = self.programs[pod.view.name]
        return (program.process,) if program.began else ()

    def never_both(self) -> None:
        there = [name for name, one in self.programs.items() if one.began and one.state == "running"]
        assert len(there) <= 1, there
        opened = [name for name, one in self.programs.items() if one.open]
        assert len(opened) <= 1, opened

    # the test
    def pass_s(self, seconds: float = 2.0) -> None:
        """Programs do what they may, and the agent looks until nothing is under way."""
        self.now_s += seconds
        self.settle()

    def idle_s(self, seconds: float = 1_000.0) -> None:
        """The agent looks soon after the last work, and again when that is long ago."""
        self.pass_s()
        self.pass_s(seconds)

    def settle(self) -> None:
        for _ in range(4):  # each look may begin something
            self.suspender.look()
            while self.suspender.busy:
                assert self.suspender.wait(60)
                self.suspender.look()
            self.never_both()

    def work(self, name: str) -> bool:
        """Whether it could."""
        program = self.programs[name]
        if not program.open:
            program.asks = True
            return False
        program.began = True
        program.units += 1
        return True

    def place(self, name: str) -> PodSwap:
        assert self.said is not None
        return self.said.pods[f"uid-{name}"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "swaps")
    yield stage
    stage.suspender.stop()


def alone(stage: Stage) -> None:
    """``day`` works on the card; ``night`` is there, and idles."""
    stage.start("day")
    stage.pass_s()
    assert stage.work("day")
    stage.start("night")
    stage.pass_s()


def test_a_pod_alone_has_the_card_at_once(stage: Stage) -> None:
    stage.start("day")
    assert not stage.programs["day"].open, "nobody has decided yet"
    stage.pass_s()
    assert stage.programs["day"].open
    assert stage.place("day").place == "card"


def test_one_that_starts_beside_another_waits_until_it_wants(stage: Stage) -> None:
    alone(stage)
    assert (stage.place("day").place, stage.place("night").place) == ("card", "away")
    stage.idle_s()
    assert stage.place("night").place == "away", "it wants nothing"
    assert not stage.work("night")
    stage.pass_s()
    assert (stage.place("day").place, stage.place("night").place) == ("away", "card")
    assert stage.work("night")
    assert stage.place("day").host_mib == 80_000


def test_day_and_night_and_day_again(stage: Stage) -> None:
    alone(stage)
    for mine, other in (("night", "day"), ("day", "night"), ("night", "day")):
        stage.idle_s()
        assert not stage.work(mine)
        stage.pass_s()
        assert stage.work(mine)
        assert not stage.programs[other].open
    totals = stage.pairs.totals
    assert totals.hand_overs == 3
    assert totals.moved_bytes == (80_000 << 20) * 5, "night's first turn brings nothing from the host"


def test_both_at_work_take_turns_and_it_is_said(stage: Stage) -> None:
    alone(stage)
    turns: list[str] = []
    for _ in range(600):
        for name in ("day", "night"):
            if stage.work(name) and turns[-1:] != [name]:
                turns.append(name)
        stage.pass_s(1.0)
    assert turns[:3] == ["day", "night", "day"]
    assert 8 <= len(turns) <= 600 / STAY_S + 1
    waits = next(one for one in ("day", "night") if stage.place(one).place == "away")
    assert "both want it: they take turns of 60 s" in stage.place(waits).reason


@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_an_agent_killed_in_mid_hand_over(stage: Stage, verb: Verb) -> None:
    alone(stage)
    stage.idle_s()
    stage.work("night")
    if verb == "resume":  # so that day is the one that comes back
        stage.pass_s()
        assert stage.work("night")
        stage.idle_s()
        stage.work("day")
    mine, other = ("night", "day") if verb == "suspend" else ("day", "night")
    stage.dies = True
    stage.suspender.look()  # the order
    stage.suspender.look()  # the helper
    stage.suspender.wait(60)
    stage.suspender.stop()
    stage.dies = False
    stage.restart()
    stage.pass_s()
    stage.pass_s()
    assert (stage.place(mine).place, stage.place(other).place) == ("card", "away")
    assert stage.work(mine)
    assert not stage.work(other)


def test_a_new_agent_leaves_all_as_it_is(stage: Stage) -> None:
    alone(stage)
    stage.idle_s()
    stage.work("night")
    stage.pass_s()
    stage.work("night")
    for _ in range(3):
        stage.suspender.stop()
        stage.restart()
        stage.pass_s()
        assert (stage.place("day").place, stage.place("night").place) == ("away", "card")
        assert stage.work("night")


def test_one_that_cannot_leave_keeps_the_card_and_the_reason_is_said(stage: Stage) -> None:
    alone(stage)
    stage.bound["day"] = "it holds 5 MiB of managed memory, which a checkpoint cannot move"
    stage.idle_s()
    stage.work("night")
    stage.pass_s()
    assert stage.work("day")
    assert stage.place("night").reason == (
        "ns/day cannot leave the card: it holds 5 MiB of managed memory, which a checkpoint cannot move"
    )
    del stage.bound["day"]
    stage.pass_s()
    assert stage.work("night")


def test_a_pod_that_ends_gives_its_turn_to_the_other(stage: Stage) -> None:
    alone(stage)
    stage.work("night")
    del stage.programs["day"]
    stage.pass_s()
    assert stage.work("night")


def test_the_api_server_away_stops_no_hand_over(stage: Stage) -> None:
    alone(stage)
    stage.api_down = True
    stage.idle_s()
    stage.work("night")
    stage.pass_s()
    assert stage.work("night")
    stage.api_down = False
    stage.pass_s()
    assert stage.place("night").place == "card"
