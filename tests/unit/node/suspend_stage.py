"""A suspender with a scripted helper: its pods really hold memory, the clock is injected, no node is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unit.node.granted import grant
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.codec.suspension import NodeSuspension, PodSuspension, SuspendOrder
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.suspension.facts import LowPod, NodeState
from vc_egpu_node.suspension.helper import (
    Answer,
    Drain,
    Verb,
)
from vc_egpu_node.suspension.machine import Process, Record
from vc_egpu_node.suspension.suspender import Store, Suspender
from vc_egpu_node.suspension.verdict import Verdict
from vc_egpu_node.suspension.work import Worker
from vc_egpu_node.wall.offences import Seen
from vc_egpu_node.wall.wall import Look

CARD = "GPU-1"
UID = "uid-train"
PROCESS: Process = (71, 5)


def order(number: int = 1, uid: str = UID) -> str:
    return SuspendOrder(pod_uid=uid, plan_id=f"1-{number}", why="room").encode()


def low_pod(**changes: Any) -> LowPod:
    one = grant("train", (CARD, 8_000, 50), share_class="low", pod_uid=UID)
    view = PodView(UID, "ns", "train", "node-1", "Running", "{}", running=frozenset({"main"}))
    return LowPod(replace(view, **changes), (one,))


@dataclass
class Card:
    """A helper whose pods really hold memory, and what others see of it."""

    states: dict[Process, str] = field(default_factory=lambda: {PROCESS: "running"})
    mib: int = 6_000
    calls: list[tuple[Verb, tuple[Process, ...]]] = field(default_factory=list)
    answers: list[Answer | RuntimeError] = field(default_factory=list)
    drains: list[Drain | None] = field(default_factory=list)
    """How it was to come to rest, at each call."""
    gate: Callable[[], bool] = lambda: False
    gate_then: list[bool] = field(default_factory=list)
    """Whether the pod's launches waited, at each call."""
    looks: int = 0
    free_mib: int = 90_000
    untold: int = 0
    """So many looks the driver tells nothing: no process is listed."""
    leaves_mib: int = 0
    """What stays on the card though everything was checkpointed."""

    def run(
        self, verb: Verb, processes: Sequence[Process], lock_ms: int, drain: Drain | None = None
    ) -> Answer:
        self.calls.append((verb, tuple(processes)))
        self.drains.append(drain)
        self.gate_then.append(self.gate())
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, RuntimeError):
                raise answer
            for process, state in zip(processes, answer.states.values(), strict=True):
                self.states[process] = state
            return answer
        for process in processes:
            self.states[process] = "checkpointed" if verb == "suspend" else "running"
        return Answer(done=True, states={pid: self.states[(pid, start)] for pid, start in processes})

    def sweep(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def look(self) -> Look:
        self.looks += 1
        if self.untold > 0:
            self.untold -= 1
            return Look((), {"train": None}, self.looks, frozenset({CARD}))
        held = [
            (one, self.mib if state != "checkpointed" else self.leaves_mib)
            for one, state in self.states.items()
        ]
        seen = tuple(Seen(CARD, pid, start, mib, 0, "train") for (pid, start), mib in held)
        return Look(seen, {"train": None}, self.looks)

    def shortage(self, pod: LowPod, card_mib: Mapping[str, int]) -> str:
        needed = sum(card_mib.values())
        return "" if needed <= self.free_mib else f"{self.free_mib} MiB free, {needed} are needed"

    def processes(self, pod: LowPod, look: Look) -> tuple[Process, ...]:
        return tuple(self.states)


class Stage:
    """World, helper and suspender; every look of a test waits for what it began."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.card = Card()
        self.pods_here: dict[str, LowPod] | None = {UID: low_pod()}
        self.gone = False
        """From the node, not only from the books of its cards."""
        self.verdict_now = Verdict()
        self.verdict_of: Callable[[NodeState], Verdict] = lambda _node: self.verdict_now
        self.leaving: dict[str, frozenset[str]] = {}
        """By pod: which containers' memory was on its way to the host when it was judged last."""
        self.gates: dict[str, bool] = {}
        self.card.gate = lambda: self.gates.get(UID, False)
        self.told: list[tuple[str, str]] = []
        self.node: str | None = None
        """What the Node says."""
        self.said: list[NodeSuspension] = []
        """All that was written on it."""
        self.api_down = False
        self.now_s = 1_000.0
        self.policy = Policy(resume_room_s=0.0)
        self.restart()

    def restart(self) -> None:
        worker = Worker(
            self.card,
            self.card,  # type: ignore[arg-type]
            look=self.card.look,
            shortage=self.card.shortage,
        )
        self.suspender = Suspender(
            self, worker, Store(self.folder), lambda: self.policy, clock=lambda: self.now_s
        )

    # the world
    def pods(self) -> Mapping[str, LowPod] | None:
        return self.pods_here

    def is_here(self, pod_uid: str) -> bool:
        return not self.gone

    def state(self) -> NodeState:
        return NodeState("580.1", False, 10_000, {})

    def verdict(self, pod: LowPod, node: NodeState) -> Verdict:
        self.booked = dict(node.booked_mib)
        self.leaving[pod.uid] = node.leaving
        return self.verdict_of(node)

    def gate(self, pod_uid: str, *, closed: bool) -> None:
        self.gates[pod_uid] = closed

    def tell(self, pod: LowPod, kind: str, reason: str, text: str) -> None:
        self.told.append((reason, text))

    def publish(self, text: str) -> None:
        if self.api_down:
            raise KubeError("away")
        if text != self.node:
            self.node = text
            self.said.append(NodeSuspension.decode(text))

    # the test
    def order(self, number: int | None) -> None:
        self.pods_here = {UID: low_pod(suspend=order(number) if number else None)}

    def look(self) -> PodSuspension:
        """Until nothing is under way."""
        self.suspender.look()
        self.settle()
        return self.said[-1].pods[UID]

    def settle(self, *uids: str) -> None:
        """Look until nothing is under way with these pods; none named: with any."""
        while self.suspender.busy.intersection(uids) if uids else self.suspender.busy:
            assert self.suspender.wait(60)
            self.suspender.look()

    def state_now(self) -> SuspensionState:
        return Store(self.folder).all().get(UID, Record(UID, "ns", "train")).state
