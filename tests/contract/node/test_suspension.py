"""Agent, library, helper and driver in one: a program in a container leaves its card and comes back to it."""

import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from contract.node.test_library import Container, Node
from unit.native.memory_worlds import BUILD, CONTEXT_MIB
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.suspension.facts import FactsOf, LowPod, NodeState, low_pods
from vc_egpu_node.suspension.helper import ProgramHelper
from vc_egpu_node.suspension.room import MemoryLimits
from vc_egpu_node.suspension.suspender import Store, Suspender
from vc_egpu_node.suspension.verdict import Verdict, judge
from vc_egpu_node.suspension.work import Worker
from vc_egpu_node.wall.wall import Look

pytestmark = pytest.mark.timeout(180)
HELD_MIB = 600


def facts_beside(node: Node, monkeypatch: pytest.MonkeyPatch) -> FactsOf:
    """What is known of programs on this node, whose host has much memory left."""
    (node.proc / "meminfo").write_text(f"MemAvailable: {64 << 20} kB\n")
    monkeypatch.setenv("FAKE_NVML_STATE", str(node.cards))
    return FactsOf(
        hosts=ContainerOfProcess(node.proc),
        limits=MemoryLimits(node.root / "cgroup"),
        proc_dir=node.proc,
        paged=lambda: node.isolation.paged,
    )


class Suspending:
    """The node's agent as far as suspension goes; what asks the driver is one thread at a time."""

    def __init__(self, node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node = node
        self.asking = threading.Lock()
        self.said: list[NodeSuspension] = []
        self.offences: list[object] = []
        self.facts = facts_beside(node, monkeypatch)
        helper = ProgramHelper(BUILD / "egpu-checkpoint", str(BUILD / "libcuda.so.1"))
        worker = Worker(helper, self.facts, look=self.ask, shortage=lambda _pod, _mib: "")
        self.suspender = Suspender(self, worker, Store(node.root / "suspensions"), Policy)

    def ask(self) -> Look:
        with self.asking:
            self.offences += self.node.look()
            return self.node.wall.last

    def pods(self) -> Mapping[str, LowPod] | None:
        return low_pods(self.node.grants.all(), self.node.pods)

    def is_here(self, pod_uid: str) -> bool:
        return any(view.uid == pod_uid for view in self.node.pods)

    def state(self) -> NodeState:
        return NodeState("570.124.06", several_allowed=False, budget_mib=10_000, booked_mib={})

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        return judge(self.facts.of_pod(pod, self.ask(), node))

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        grants = self.node.grants.all()
        self.node.isolation.gate([one for one in grants if one.pod_uid == pod_uid], grants, closed=closed)

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        pass

    def publish(self, text: str) -> None:
        self.said.append(NodeSuspension.decode(text))

    def order(self, container: Container, number: int | None) -> None:
        text = SuspendOrder(pod_uid=container.uid, plan_id=f"1-{number}").encode() if number else None
        self.node.pods = [
            replace(one, suspend=text) if one.uid == container.uid else one for one in self.node.pods
        ]

    def until(self, container: Container, *states: str) -> PodSuspension:
        """Look until it is in one of these."""
        for _ in range(2_000):
            self.suspender.look()
            found = self.said[-1].pods[container.uid]
            if found.state in states and not self.suspender.busy:
                return found
            self.suspender.wait(0.05)
        raise AssertionError(found)


@pytest.fixture
def here(fake_nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Suspending]:
    node = Node(tmp_path)
    yield Suspending(node, monkeypatch)
    node.close()


def low(here: Suspending) -> Container:
    container = here.node.container("low", "low")
    here.node.pods = [replace(one, running=frozenset({"main"})) for one in here.node.pods]
    return container


def train(container: Container) -> "subprocess.Popen[str]":
    how = ("--every", "1", "--kernels", "10", "--ns", "200000", "--memory-mib", str(HELD_MIB))
    process = subprocess.Popen(
        [BUILD / "programs" / "train", *how],
        stdout=subprocess.PIPE, text=True, env=container.environment(),
    )  # fmt: skip
    container.node.training.append(process)
    container.own(process.pid)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def step(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    found = re.fullmatch(r"step (\d+)\n", process.stdout.readline())
    assert found is not None
    return int(found[1])


def test_a_program_leaves_its_card_and_goes_on_where_it_was(here: Suspending) -> None:
    container = low(here)
    process = train(container)
    assert step(process) == 1
    assert here.until(container, "running").suspendable
    here.order(container, 1)
    said = here.until(container, "suspended", "failed")
    assert (said.state, said.plan_id) == ("suspended", "1-1")
    assert HELD_MIB < said.host_mib <= HELD_MIB + 2 * CONTEXT_MIB
    page = here.node.isolation.file("low").read()
    assert page is not None
    assert page.suspended
    assert sum(one.memory_mib for one in here.ask().seen) == 0
    here.order(container, None)
    assert here.until(container, "running", "failed").state == "running"
    went_on = [step(process) for _ in range(2_000)]
    assert went_on == list(range(2, 2_002)), "none is lost, none is done twice"
    assert here.offences == [], "the second wall accuses nobody of having been away"


def test_a_program_that_dies_while_suspended(here: Suspending) -> None:
    container = low(here)
    process = train(container)
    here.order(container, 1)
    assert here.until(container, "suspended", "failed").state == "suspended"
    process.kill()
    process.wait(30)
    here.order(container, None)
    assert here.until(container, "running", "failed").state == "running"
    assert here.offences == []
