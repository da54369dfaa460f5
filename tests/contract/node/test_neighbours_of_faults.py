"""A program that shares a card faults, is killed or meets an XID: its neighbour's results are right, its
memory is there for others, and every limit still holds. On the fake driver; not run on hardware."""

import subprocess
from collections.abc import Callable

import pytest
from contract.node.test_driver_limits import DriverNode, Made, made, node
from contract.node.test_library import Container
from unit.native.memory_worlds import BUILD, MIB, OK, OUT_OF_MEMORY

__all__ = ["made", "node"]

STEPS = 60
ILLEGAL_ADDRESS = 700
Ends = Callable[[DriverNode, "subprocess.Popen[str]"], None]


def trains(container: Container, steps: int, **variables: str) -> "subprocess.Popen[str]":
    """A program whose last line tells the sum that its kernels made on the card."""
    options = ["--kernels", "4", "--ns", "500000", "--memory-mib", "300", "--every", "5"]
    process = subprocess.Popen(
        [BUILD / "programs" / "train", *options, "--steps", str(steps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**container.environment(), **variables},
    )
    container.node.training.append(process)
    container.own(process.pid)
    return process


def lines_until(process: "subprocess.Popen[str]", word: str) -> str:
    assert process.stdout is not None
    return next(line for line in process.stdout if line.startswith(word))


def is_killed(_node: DriverNode, sharer: "subprocess.Popen[str]") -> None:
    sharer.kill()


def meets_an_xid(node: DriverNode, sharer: "subprocess.Popen[str]") -> None:
    """The driver tells it of the card, and ends the program's context."""
    node.cards.write_text(node.cards.read_text() + "xid=1:31\n")
    sharer.kill()


def faults_by_itself(_node: DriverNode, sharer: "subprocess.Popen[str]") -> None:
    assert sharer.wait(60) != 0


@pytest.mark.parametrize(
    ("ends", "variables"),
    [
        (is_killed, {}),
        (meets_an_xid, {}),
        (faults_by_itself, {"FAKE_CUDA_FAULTS": f"cuLaunchKernel:40:9999:{ILLEGAL_ADDRESS}"}),
    ],
    ids=["killed", "XID", "fault"],
)
def test_the_neighbour_goes_on_as_if_nothing_had_been(
    made: Made, node: DriverNode, ends: Ends, variables: dict[str, str]
) -> None:
    quiet, loud = made("quiet"), made("loud")
    good = trains(quiet, STEPS)
    lines_until(good, "ready")
    bad = trains(loud, 0, **variables)
    lines_until(bad, "ready")
    lines_until(good, "step 10")
    ends(node, bad)
    bad.wait(60)
    out, _ = good.communicate(timeout=120)
    assert (good.returncode, out.splitlines()[-1]) == (0, f"done {STEPS}")
    after = loud.program()
    assert after.do("alloc", 1, 900 * MIB) == OK, "what the dead one had is free"
    assert after.do("alloc", 2, 200 * MIB) == OUT_OF_MEMORY, "and its grant holds"
    assert quiet.program().do("alloc", 1, 1100 * MIB) == OUT_OF_MEMORY
