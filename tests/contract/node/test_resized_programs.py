"""Agent, library and driver together: a program that runs gets more memory, or less, while it runs on."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest
from contract.node.test_library import CARD, Container, Node
from unit.native.memory_worlds import MIB, OK, OUT_OF_MEMORY
from vc_egpu.volcano.resizing.notes import NodeResizes, ResizeNote, Stage
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.isolation.live_limits import LiveLimits

HAD_MIB = 1000
"""What a container of these has at first."""


class Room:
    """Takes every change: whether cards have room is another test's."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def change(self, grants: Sequence[Grant]) -> None:
        for grant in grants:
            self._node.grants.reserve(grant)

    def rewrite(self, grant: Grant) -> None:
        pass


class Pods:
    """One pod, as the admission layer has written it last."""

    synced = True

    def __init__(self, pod: PodView) -> None:
        self.pod = pod

    def views(self) -> Iterable[PodView]:
        return [self.pod]


class Resized:
    """A container, and the part of the agent that changes its limits."""

    def __init__(self, node: Node) -> None:
        self.container: Container = node.container()
        self.pods = Pods(node.pods[0])
        self.live = LiveLimits(
            node="n",
            grants=node.grants,
            pods=self.pods,  # type: ignore[arg-type]
            identity=Room(node),  # type: ignore[arg-type]
            isolation=node.isolation,
            tell=lambda *_: None,
        )
        self.notes = 0

    def wish(self, then_mib: int, had_mib: int = HAD_MIB) -> str:
        """What the agent answers, the whole way: lowered first where it is less."""
        self.notes += 1
        less = then_mib < had_mib
        state = self._writes(Stage.LOWERING, then_mib, had_mib) if less else "lowered"
        if state != "lowered":
            self._writes(Stage.REFUSED, then_mib, had_mib)
            return state
        return self._writes(Stage.APPLYING, then_mib, then_mib)

    def _writes(self, stage: Stage, then_mib: int, held_mib: int) -> str:
        def shares(mib: int) -> dict[str, tuple[CardShare, ...]]:
            return {"main": (CardShare(uuid=CARD, memory_mib=mib, cores=0),)}

        uid = self.container.uid
        cards = Cards(pod_uid=uid, node="n", plan_id="1-1", containers=shares(held_mib))
        note = ResizeNote(pod_uid=uid, number=f"1-{self.notes}", stage=stage, was={}, then=shares(then_mib))
        self.pods.pod = dataclasses.replace(self.pods.pod, cards=cards.encode(), resized=note.encode())
        self.live.apply()
        return NodeResizes.decode(self.live.told).pods[uid].state if self.live.told else ""


@pytest.fixture
def node(fake_nvml: None, tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def test_a_running_program_gets_what_it_did_not_before(node: Node) -> None:
    resized = Resized(node)
    program = resized.container.program()
    before = program.info()[0]
    assert program.do("alloc", 1, before + 2 * MIB) == OUT_OF_MEMORY
    assert resized.wish(HAD_MIB + 500) == "applied"
    assert program.info() == (before + 500 * MIB, (HAD_MIB + 500) * MIB), "it is shown so, too"
    assert program.do("alloc", 1, before + 500 * MIB) == OK
    assert program.do("alloc", 2, 4 * MIB) == OUT_OF_MEMORY


def test_a_lower_limit_holds_at_once_and_what_was_there_stays(node: Node) -> None:
    resized = Resized(node)
    program = resized.container.program()
    assert program.do("alloc", 1, 300 * MIB) == OK
    assert resized.wish(400) == "applied"
    free, total = program.info()
    assert total == 400 * MIB
    assert program.do("alloc", 2, free + 2 * MIB) == OUT_OF_MEMORY
    assert program.do("alloc", 2, free) == OK
    assert program.do("free", 1) == OK
    assert program.do("alloc", 3, 300 * MIB) == OK, "up to the new limit"


def test_less_than_a_program_has_is_refused_and_it_keeps_its_limit(node: Node) -> None:
    resized = Resized(node)
    program = resized.container.program()
    assert program.do("alloc", 1, 600 * MIB) == OK
    assert resized.wish(500) == "refused"
    assert program.info()[1] == HAD_MIB * MIB
    assert program.do("alloc", 2, 300 * MIB) == OK
    assert program.do("free", 1) == OK
    assert resized.wish(500) == "applied"
    assert program.info()[1] == 500 * MIB


def test_there_and_back_again_while_a_program_allocates(node: Node) -> None:
    resized = Resized(node)
    program = resized.container.program()
    for turn in range(10):
        assert resized.wish(2000) == "applied"
        assert program.do("alloc", turn, 1500 * MIB) == OK
        assert resized.wish(HAD_MIB, had_mib=2000) == "refused"
        assert program.do("free", turn) == OK
        assert resized.wish(HAD_MIB, had_mib=2000) == "applied"
        assert program.do("alloc", turn, 1500 * MIB) == OUT_OF_MEMORY
