"""How busy a node was: from samples to what stands on the Node."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.measured.notes import MAX_BYTES, MAX_PODS, NodeUseNote
from vc_egpu_node.cards.measuring import AGAIN_S, EVERY_S, Measuring, Sources, host_look
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.cards.use_window import WINDOW_S, CardLook, HostLook, Look, PodLook, UseWindow
from vc_egpu_node.vendors.base import CardReading, CardSample, NodeReading

CARD = CardReading("GPU-1", 0, "NVIDIA H20", 98304)


def looks(window: UseWindow, seconds: int, percent: float, since_s: float = 0.0) -> None:
    for at in range(0, seconds + 1, 5):
        window.add(Look(since_s + at, {"GPU-1": CardLook(percent, percent / 2)}))


def compute(window: UseWindow) -> int | None:
    note = window.note(1)
    return note.cards["GPU-1"].compute if note is not None else None


def test_nothing_is_said_of_less_than_a_minute() -> None:
    window = UseWindow()
    assert window.note(1) is None
    looks(window, 55, 90.0)
    assert window.note(1) is None
    looks(window, 60, 90.0)
    assert compute(window) == 90


def test_it_is_the_mean_of_a_quarter_of_an_hour() -> None:
    window = UseWindow()
    looks(window, 900, 100.0)
    looks(window, 450, 0.0, since_s=905.0)
    assert compute(window) == 50
    looks(window, 900, 0.0, since_s=1360.0)
    assert compute(window) == 0, "older looks are gone"


def test_a_figure_does_not_go_back_and_forth_between_two_steps() -> None:
    window = UseWindow()
    looks(window, 900, 50.0)
    assert compute(window) == 50
    for number, percent in enumerate((56.0, 54.0, 56.0, 44.0, 56.9)):
        looks(window, 900, percent, since_s=1000.0 * (number + 1))
        assert compute(window) == 50
    looks(window, 900, 58.0, since_s=9000.0)
    assert compute(window) == 60


def test_what_a_card_does_not_tell_is_left_out() -> None:
    window = UseWindow()
    for at in range(0, 120, 5):
        window.add(Look(at, {"GPU-1": CardLook(None, 200.0), "GPU-2": CardLook()}))
    note = window.note(7)
    assert note is not None
    assert note.encode() == '{"version":1,"at":7,"cards":{"GPU-1":{"memory":100},"GPU-2":{}},"pods":{}}'


def test_pods_and_cpu_are_counted_by_what_they_add() -> None:
    window = UseWindow()
    for at in range(0, 601, 5):
        pods = {"old": PodLook(at * 1.0, 2)} | ({"new": PodLook(at - 570.0, 1)} if at > 570 else {})
        window.add(Look(float(at), host=HostLook((at * 3, at * 10), 42.0), pods=pods))
    note = window.note(1)
    assert note is not None
    assert note.pods == {"old": 50}, "half of each of its two cards; the new one is there too short"
    assert (note.cpu, note.memory) == (30, 40)


def test_of_very_many_pods_not_all_are_told_and_the_text_stays_short() -> None:
    window = UseWindow()
    uids = [f"{number:08d}-aaaa-bbbb-cccc-dddddddddddd" for number in range(300)]
    for at in (0.0, 60.0):
        window.add(
            Look(
                at,
                {f"GPU-{number:036d}": CardLook(50.0, 50.0) for number in range(100)},
                pods={uid: PodLook(at, 1) for uid in uids},
            )
        )
    note = window.note(1)
    assert note is not None
    assert len(note.pods) == MAX_PODS
    assert NodeUseNote.decode(note.encode()) == note
    assert len(note.encode()) < MAX_BYTES


@dataclass
class Node:
    """A node whose card is as busy as the test says, and what it was told to say."""

    busy: int | None = 0
    wanted: bool = True
    refuses: bool = False
    now_s: float = 0.0
    told: list[tuple[float, str | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._measuring = Measuring(
            Sources(self._observation, self._pods, HostLook, self._say, lambda: self.wanted),
            clock=lambda: self.now_s,
            wall=lambda: self.now_s,
        )

    def _observation(self) -> Observation:
        sample = CardSample(memory_used_mib=50, memory_free_mib=50, gpu_util_percent=self.busy)
        return Observation(NodeReading((CARD,)), samples={"GPU-1": sample, "GPU-gone": sample})

    def _pods(self) -> Mapping[str, PodLook]:
        return {}

    def _say(self, text: str | None) -> None:
        self.told.append((self.now_s, text))
        if self.refuses:
            raise KubeError("a policy refuses it")

    def runs(self, seconds: float) -> None:
        """The agent's loop turns every ten seconds."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            self._measuring.turn()
            self.now_s += 10.0

    def figures(self) -> list[int | None]:
        return [NodeUseNote.decode(text).cards["GPU-1"].compute for _, text in self.told if text is not None]


def test_figures_are_said_when_they_change_and_once_in_a_while() -> None:
    node = Node(busy=70)
    node.runs(1800.0)
    assert node.figures() == [70, 70, 70]
    at = [at for at, _ in node.told]
    assert [b - a >= AGAIN_S for a, b in pairwise(at)] == [True, True]
    assert "GPU-gone" not in str(node.told)


def test_they_are_never_said_more_than_once_a_minute() -> None:
    node = Node()
    for number in range(120):
        node.busy = 100 * (number % 2)
        node.runs(300.0)
    at = [at for at, _ in node.told]
    assert len(at) > 5
    assert min(b - a for a, b in pairwise(at)) >= EVERY_S


def test_a_write_that_fails_is_tried_again() -> None:
    node = Node(busy=30, refuses=True)
    node.runs(300.0)
    assert len(node.told) >= 3
    node.refuses = False
    before = len(node.told)
    node.runs(120.0)
    assert node.figures()[before:] == [30]


def test_the_operator_may_turn_it_off_and_on() -> None:
    node = Node(busy=30)
    node.runs(300.0)
    node.wanted = False
    node.runs(20.0)
    assert node.told[-1][1] is None
    node.told.clear()
    node.wanted = True
    node.runs(WINDOW_S)
    assert node.figures()[0] == 30
    assert node.told[0][0] >= 60.0, "it looks again first"


def test_the_host_is_read_as_its_kernel_tells(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 1 2 3\n")
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n")
    assert host_look(tmp_path) == HostLook((150, 1000), 60.0)


@pytest.mark.parametrize("text", ["", "cpu", "cpu a b c d e", "intr 1 2 3 4 5 6 7 8", "MemTotal: x\n"])
def test_what_the_kernel_does_not_tell_is_left_out(tmp_path: Path, text: str) -> None:
    assert host_look(tmp_path) == HostLook()
    (tmp_path / "stat").write_text(text)
    (tmp_path / "meminfo").write_text(text)
    assert host_look(tmp_path) == HostLook()
