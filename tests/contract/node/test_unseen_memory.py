"""Agent, library and driver together: what no call tells of counts against the grant all the same."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.node.test_library import Container, Node
from unit.native.memory_worlds import CONTEXT_MIB, MIB, OK, OUT_OF_MEMORY, Actor
from unit.native.test_memory_programs import Program
from vc_egpu_node.isolation.pages import USAGE
from vc_egpu_node.isolation.unseen_memory import FALL_LOOKS, NOTHING
from vc_egpu_node.wall.offences import Offence

CAP_MIB = 1000
CODE_MIB = 96
LOCAL = 2048
"""Bytes that each thread of the greedy kernel needs."""


@pytest.fixture
def node(fake_nvml: None, tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def image(folder: Path, name: str, code_mib: int, local: int = 0) -> Path:
    """A text of that much code, with one kernel."""
    body = f".local .align 8 .b8 __local_depot0[{local}];" if local else ""
    head = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry greedy() {{ {body} ret; }}\n"
    path = folder / name
    path.write_text(head + f"//{'x' * 1021}\n" * (code_mib * 1024))
    return path


def settled(node: Node, looks: int = 2) -> None:
    """So many looks, none of which finds anything."""
    for _ in range(looks):
        assert node.look() == []


def known(node: Node, container: Container) -> Actor:
    """A program in it whose context is known to the agent and to the library."""
    actor = container.program()
    assert actor.do("alloc", 1, 100 * MIB) == OK
    settled(node, 3)
    return actor


def test_code_counts_once_the_driver_has_shown_it(node: Node) -> None:
    container = node.container()
    actor = known(node, container)
    free = actor.info()[0]
    assert actor.do("module", 1, image(node.root, "image", CODE_MIB)) == OK
    assert actor.info() == (free, CAP_MIB * MIB)  # no call tells
    settled(node)
    left, total = actor.info()
    assert total == CAP_MIB * MIB
    assert free - left in range(CODE_MIB * MIB, (CODE_MIB + 4) * MIB)
    assert node.account("g").beyond_mib >= CODE_MIB
    assert actor.do("alloc", 2, left + 2 * MIB) == OUT_OF_MEMORY
    assert actor.do("alloc", 2, left) == OK  # what is shown as free is there
    settled(node, 4)  # and all together is not above the grant
    assert actor.do("free", 2) == OK
    assert actor.do("module-unload", 1) == OK
    settled(node, FALL_LOOKS + 1)  # the first of them sees a change
    assert actor.info()[0] >= free - 2 * MIB


def test_local_memory_counts_from_the_first_launch_on(node: Node) -> None:
    container = node.container()
    actor = known(node, container)
    free = actor.info()[0]
    assert actor.do("module", 1, image(node.root, "image", 0, LOCAL)) == OK
    settled(node)
    assert actor.info()[0] == free
    assert actor.do("launch", 1, "greedy") == OK
    settled(node)
    taken = free - actor.info()[0]
    assert 100 * MIB < taken < 400 * MIB
    settled(node, 5)
    assert free - actor.info()[0] == taken


def test_memory_that_a_dma_buf_keeps_counts_until_it_is_closed(node: Node) -> None:
    """Take, pass on, free, and again: so a program would come by all of the card."""
    container = node.container()
    actor = known(node, container)
    free = actor.info()[0]
    files = []
    for size_mib in (300, 200):
        assert actor.do("alloc", 2, size_mib * MIB) == OK
        code, file = actor.ask("dmabuf", 2, size_mib * MIB)
        assert int(code) == OK
        assert actor.do("free", 2) == OK
        files.append(file)
    settled(node, 3)
    assert actor.info()[0] == free - 500 * MIB
    assert node.account("g").beyond_mib >= 500
    assert actor.do("alloc", 2, free - 498 * MIB) == OUT_OF_MEMORY
    for file in files:
        assert actor.do("close", file) == OK
    actor.info()  # the fake driver sees at its next call that nobody has them any more
    settled(node, FALL_LOOKS + 1)
    assert actor.info()[0] == free


def test_it_goes_with_its_process_at_once_and_other_containers_pay_nothing(node: Node) -> None:
    container, neighbour = node.container(), node.container("other")
    first, beside = known(node, container), known(node, neighbour)
    others = beside.info()
    second = container.program()
    before = second.info()[0]
    assert first.do("module", 1, image(node.root, "image", CODE_MIB)) == OK
    settled(node)
    assert before - second.info()[0] >= CODE_MIB * MIB
    first.kill()
    freed = second.info()[0]  # before the agent looks again
    assert freed >= before + 100 * MIB  # its own and what it had allocated
    settled(node, 3)
    assert second.info()[0] == freed
    assert beside.info() == others


def test_a_program_past_the_library_leaves_the_rest_less(node: Node) -> None:
    container = node.container()
    good = known(node, container)
    free = good.info()[0]
    rogue = container.program(preload=None)
    assert rogue.do("alloc", 1, 300 * MIB) == OK
    node.look()
    assert node.look() == [Offence.UNREGISTERED]
    assert free - good.info()[0] == (300 + CONTEXT_MIB - 2) * MIB
    assert good.do("alloc", 2, 800 * MIB) == OUT_OF_MEMORY
    rogue.kill()
    node.look()
    node.look()
    assert good.info()[0] == free


def test_a_program_that_had_taken_all_runs_on(node: Node) -> None:
    container = node.container()
    actor = known(node, container)
    free = actor.info()[0]
    assert actor.do("alloc", 2, free) == OK
    assert actor.do("module", 1, image(node.root, "image", CODE_MIB)) == OK
    node.look()
    assert node.look() == [Offence.OVER_GRANT]  # the driver's own figure, as ever
    assert actor.info() == (0, CAP_MIB * MIB)
    assert actor.do("launch", 1, "greedy") == OK
    assert actor.do("free", 1) == OK
    assert actor.do("alloc", 3, 40 * MIB) == OUT_OF_MEMORY  # until there is room for what counts now


def test_an_agent_that_starts_again_goes_on_from_the_page(node: Node) -> None:
    container = node.container()
    actor = known(node, container)
    assert actor.do("module", 1, image(node.root, "image", CODE_MIB)) == OK
    settled(node)
    free = actor.info()[0]
    node.restart()
    for _ in range(4):
        settled(node, 1)
        assert actor.info()[0] == free


def test_a_page_that_claims_more_gains_nothing_above_the_grant(node: Node) -> None:
    container = node.container()
    actor = known(node, container)
    assert actor.do("module", 1, image(node.root, "image", CODE_MIB)) == OK
    settled(node)
    told = node.isolation.beyond("g")
    assert told != NOTHING
    path = node.isolation.pages.path(USAGE, "g")
    page = bytearray(path.read_bytes())
    page[128 + 32 : 128 + 40] = (900 * MIB).to_bytes(
        8, "little"
    )  # its own slot: all of it is charged, it says
    path.write_bytes(page)
    settled(node, FALL_LOOKS - 1)
    assert node.isolation.beyond("g") == told  # for half a minute nothing is believed
    node.look()
    assert node.isolation.beyond("g") == NOTHING
    assert actor.do("alloc", 2, actor.info()[0]) == OK
    found = [node.look(), node.look(), node.look()]
    assert found[-1] == [Offence.OVER_GRANT]


def test_programs_that_allocate_all_the_time_lose_nothing(node: Node) -> None:
    container = node.container()
    actor = known(node, container)
    free = actor.info()[0]
    for number in range(30):
        assert actor.do("alloc", 2, (100 + number % 7 * 50) * MIB) == OK
        if number % 3 == 0:
            node.look()
        assert actor.do("free", 2) == OK
        if number % 3 == 1:
            node.look()
    assert actor.info()[0] == free


@pytest.mark.parametrize("seed", range(40 if os.environ.get("VC_EGPU_LONG") == "1" else 4))
def test_whatever_a_program_does_what_it_is_charged_for_counts_once(node: Node, seed: int) -> None:
    """Random programs over all entry points, some killed: nothing is beyond what they are charged."""
    container, chance = node.container(), random.Random(seed)
    container.limit(384)
    known(node, container).kill()
    settled(node)  # it is forgotten
    programs: list[Program] = []
    for _ in range(40):
        while len(programs) < 3:
            programs.append(Program(container.program(), chance, node.root))
            assert programs[-1].actor.do("pool", 0) == OK
        for program in programs:
            program.step()
        for program in programs:
            program.settle()
        if chance.random() < 0.3:
            programs[0].pass_on(programs[1])
        if chance.random() < 0.1:
            programs.pop(chance.randrange(len(programs))).actor.kill()
            settled(node)
        for _ in range(chance.randrange(4)):
            assert node.look() == []
        # What the driver loads at the first launch, of each of their contexts.
        lazy = sum(1 + sum(way == "context" for way in one.held.values()) for one in programs) * 2
        assert node.account("g").beyond_mib <= lazy
