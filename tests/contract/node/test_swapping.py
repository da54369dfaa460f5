"""Agent, library, helper and driver in one: two programs that each want the whole card have it in turns."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from contract.node.test_library import CARD, Container, Node
from contract.node.test_suspension import facts_beside
from unit.native.memory_worlds import BUILD, CARD_MIB
from unit.native.turn_program import Told
from vc_egpu.volcano.swapping.notes import NodeSwaps, PodSwap
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.suspension.facts import LowPod, NodeState
from vc_egpu_node.suspension.helper import ProgramHelper
from vc_egpu_node.suspension.suspender import Store, Suspender
from vc_egpu_node.suspension.verdict import Verdict
from vc_egpu_node.suspension.work import Worker
from vc_egpu_node.suspension.world import Parts
from vc_egpu_node.swapping.both import Leaving
from vc_egpu_node.swapping.pairs import Pairs, SwapPod, swap_pods
from vc_egpu_node.swapping.signs import Sign
from vc_egpu_node.swapping.swapping import Settled, holds, sign_by, verdict_of
from vc_egpu_node.vendors.base import Edits
from vc_egpu_node.wall.wall import Look

pytestmark = pytest.mark.timeout(240)
HELD_MIB = CARD_MIB * 3 // 4
"""Two of these are more than the card."""
STAY_S = 2.0
PATIENCE_S = 60.0


class Turns:
    """The node's agent as far as turns go; what asks the driver is one thread at a time."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node_world = node
        self.asking = threading.Lock()
        self.said = NodeSwaps(pods={})
        self.offences: list[object] = []
        self.most_used_mib = 0
        self.programs: list[Told] = []
        self.facts = facts_beside(node, monkeypatch)
        self.restart()

    def restart(self) -> None:
        """Another agent."""
        store = Store(self.node_world.root / "swaps")
        helper = Settled(ProgramHelper(BUILD / "egpu-checkpoint", str(BUILD / "libcuda.so.1")))
        worker = Worker(helper, self.facts, look=self.ask, shortage=lambda _pod, _mib: "")
        self.pairs = Pairs(self, poke=lambda: None)
        self.pairs.remember(store.all().values())
        self.suspender = Suspender(self.pairs, worker, store, self.policy)

    def ask(self) -> Look:
        with self.asking:
            self.offences += self.node_world.look()
            last = self.node_world.wall.last
        self.most_used_mib = max(self.most_used_mib, sum(one.memory_mib for one in last.seen))
        return last

    # around
    def pods(self) -> Mapping[str, SwapPod] | None:
        return swap_pods(self.node_world.grants.all(), self.node_world.pods)

    def is_here(self, pod_uid: str) -> bool:
        return any(view.uid == pod_uid for view in self.node_world.pods)

    def node(self) -> NodeState:
        return NodeState("570.124.06", several_allowed=False, budget_mib=3 * CARD_MIB, booked_mib={})

    def policy(self) -> Policy:
        return Policy(host_memory_mib=3 * CARD_MIB, swap_min_stay_s=STAY_S, swap_idle_s=1.0)

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        self.ask()
        return verdict_of(self.facts, pod, self.node_world.wall, node)

    def sign(self, pod: SwapPod) -> Sign:
        return sign_by(self.node_world.isolation, self.node_world.wall, pod)

    def closed(self, pod: LowPod) -> bool:
        return any(grant.name in self.node_world.isolation.closed for grant in pod.grants)

    def holds(self, pod: LowPod) -> bool:
        return holds(self.node_world.wall, pod)

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        grants = self.node_world.grants.all()
        own = [one for one in grants if one.pod_uid == pod_uid]
        self.node_world.isolation.gate(own, grants, closed=closed)

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        pass

    def publish(self, text: str | None) -> None:
        self.said = NodeSwaps.decode(text) if text is not None else NodeSwaps(pods={})

    def clocks(self) -> tuple[float, int]:
        return time.time(), time.monotonic_ns()

    # the test
    def container(self, name: str) -> tuple[Container, Told]:
        """A program in a container of a pod that takes turns, which has begun to take its memory."""
        made = self.node_world.container(name)
        share = CardShare(uuid=CARD, memory_mib=CARD_MIB, cores=0, physical_mib=CARD_MIB // 2, swap=True)
        made.grant = replace(made.grant, shares=(share,))
        self.node_world.grants.reserve(made.grant)
        grants = self.node_world.grants.all()
        self.node_world.isolation.gate([made.grant], grants, closed=True)  # as for one that is let in
        self.node_world.isolation.refresh(grants, [made.grant])
        self.node_world.pods = [replace(one, running=frozenset({"main"})) for one in self.node_world.pods]
        program = Told(made.environment())
        self.programs.append(program)
        made.own(program.process.pid)
        program.tell("start", HELD_MIB)
        return made, program

    def until(self, done: Callable[[], bool]) -> None:
        """Look until that is so."""
        end_s = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end_s, self.said
            self.suspender.look()
            self.suspender.wait(0.05)

    def heard(self, program: Told) -> str:
        """Its next answer, while the agent does its work."""
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.append(program.hear()))
        reader.start()
        self.until(lambda: not reader.is_alive())
        return lines[0]

    def place(self, container: Container) -> PodSwap:
        return self.said.pods[container.uid]

    def idle(self, seconds: float) -> None:
        end_s = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end_s)

    def close(self) -> None:
        self.suspender.stop()
        for program in self.programs:
            program.end()


@pytest.fixture
def turns(fake_nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    node = Node(tmp_path)
    made = Turns(node, monkeypatch)
    yield made
    made.close()
    node.close()


def test_day_and_night(turns: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    day, by_day = turns.container("day")
    assert turns.heard(by_day) == "ready"
    by_day.tell("work", 5)
    assert turns.heard(by_day) == "counted 5"
    night, by_night = turns.container("night")
    counts = {"day": 5, "night": 0}
    assert turns.heard(by_night) == "ready", "it took its memory once the other one had left"
    for mine, other, program in (("day", night, by_day), ("night", day, by_night), ("day", night, by_day)):
        turns.idle(STAY_S + 2.0)
        counts[mine] += 7
        program.tell("work", 7)
        assert turns.heard(program) == f"counted {counts[mine]}"
        turns.until(lambda other=other: turns.place(other).place == "away")  # type: ignore[misc]
        assert turns.place(other).host_mib >= HELD_MIB
    totals = turns.pairs.totals
    assert totals.hand_overs == 4
    assert totals.moved_bytes >= (HELD_MIB << 20) * 7
    assert turns.most_used_mib < 2 * HELD_MIB
    assert turns.offences == [], "the second wall accuses nobody of having been away"
    with capsys.disabled():
        print(
            "\n"
            + json.dumps(
                {
                    "hand_overs": totals.hand_overs,
                    "seconds_each": round(totals.seconds / totals.hand_overs, 2),
                    "moved_mib": totals.moved_bytes >> 20,
                    "most_on_the_card_mib": turns.most_used_mib,
                }
            )
        )


def test_a_copy_from_the_host_calls_an_idle_program_back(turns: Turns) -> None:
    """Not a launch, which waits at the library's own gate: the driver lets this call wait by itself."""
    _day, by_day = turns.container("day")
    assert turns.heard(by_day) == "ready"
    for words in (("alloc", 1), ("work", 1)):
        by_day.tell(*words)
        assert turns.heard(by_day)
    turns.idle(STAY_S + 2.0)
    _night, by_night = turns.container("night")
    assert turns.heard(by_night) == "ready"
    turns.idle(STAY_S + 2.0)
    by_day.tell("copy")
    assert turns.heard(by_day) == "copied"


def test_both_at_once_take_turns(turns: Turns) -> None:
    day, by_day = turns.container("day")
    assert turns.heard(by_day) == "ready"
    night, by_night = turns.container("night")
    by_day.tell("work", 60_000)
    assert turns.heard(by_night) == "ready"
    by_night.tell("work", 60_000)
    seen: list[tuple[str, float]] = []
    reasons: set[str] = set()
    began_s = time.monotonic()
    while time.monotonic() < began_s + 16.0:
        turns.suspender.look()
        turns.suspender.wait(0.05)
        for name, container in (("day", day), ("night", night)):
            place = turns.place(container)
            reasons.add(place.reason)
            if place.place == "card" and (not seen or seen[-1][0] != name):
                seen.append((name, time.monotonic()))
    assert len(seen) >= 3
    stays = [after - before for (_, before), (_, after) in pairwise(seen[1:])]
    assert min(stays) >= STAY_S
    assert any("both want it: they take turns of 2 s" in reason for reason in reasons), reasons


def test_the_agent_has_both_low_pods_and_pods_that_take_turns(turns: Turns) -> None:
    """Put together as the agent does it: the first look lets a pod in that has the card for itself."""
    world, said = turns.node_world, Said()
    (world.proc / "meminfo").write_text(f"MemAvailable: {64 << 20} kB\n")
    world.look()
    settings: Any = SimpleNamespace(
        state_dir=world.root / "agent",
        cgroup_dir=world.root / "cgroup",
        proc_dir=world.proc,
        checkpoint=str(BUILD / "egpu-checkpoint"),
    )
    driver: Any = SimpleNamespace(reading=SimpleNamespace(driver_version="570.1"))
    heard: Any = said
    nobody: Any = None
    parts = Parts(
        settings=settings, api=nobody, grants=world.grants, pods=heard, node=heard, isolation=world.isolation,
        wall=world.wall, hosts=ContainerOfProcess(world.proc), events=nobody, policy=turns.policy,
        observation=lambda: driver, stock=nobody,
    )  # fmt: skip
    leaving = Leaving(parts)
    day = world.container("day")
    share = CardShare(uuid=CARD, memory_mib=CARD_MIB, cores=0, physical_mib=CARD_MIB // 2, swap=True)
    other = replace(day.grant, name="new", shares=(share,))
    world.grants.reserve(other)
    world.grants.write(other, Edits(), {})
    assert "new" in world.isolation.closed, "it waits for its turn"
    world.grants.release(day.grant.name)
    said.pods = [replace(one, running=frozenset({"main"})) for one in world.pods]
    leaving.start()
    try:
        assert said.heard.wait(PATIENCE_S)
    finally:
        leaving.stop()
    (swap,) = NodeSwaps.decode(said.swaps or "").pods.values()
    assert swap.place == "card"
    assert "new" not in world.isolation.closed
    assert leaving.suspended() == frozenset()
    assert list(leaving.pods()) == []
    assert (leaving.totals.hand_overs, leaving.unsaid_s()) == (0, 0.0)


class Said:
    """The Node and its pods, as far as they are asked."""

    def __init__(self) -> None:
        self.pods: list[PodView] = []
        self.synced = True
        self.swaps: str | None = None
        self.heard = threading.Event()

    def views(self) -> list[PodView]:
        return self.pods

    def subscribe(self, hear: Callable[[], None]) -> None:
        pass

    def say_suspension(self, text: str | None) -> None:
        pass

    def say_swaps(self, text: str | None) -> None:
        self.swaps = text
        if text is not None:
            self.heard.set()
