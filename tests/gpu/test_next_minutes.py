"""What is looked at next on a card: blocks that mostly write figures down. The first five are in
:mod:`gpu.test_first_minutes`.
"""

import os
import signal
import time
from typing import Any

import pytest
from gpu.judge import percentile
from gpu.rude import RUN_S, boxes, rude
from gpu.standalone import MS, ON_FAKE, Node, busy_ns

# --- block 6: memory ---


def test_all_shares_filled_at_once(node: Node) -> None:
    """Eight of an eighth: none is refused below its cap. What stays free of the card is told."""
    each = node.free_mib() // 8 - node.context_mib // 4
    names = [f"s{index}" for index in range(8)]
    for name in names:
        node.add(name, each)
    programs = [rude(node, name, "fill", 98, 5) for name in names]
    time.sleep(3)
    print({"share_mib": each, "context_mib": node.context_mib, "free_mib": node.free_mib()})
    for said in [one.result(60) for one in programs]:
        assert said["got_mib"] == said["goal_mib"]


# --- block 7: short kernels ---


@pytest.mark.parametrize("length_ns", [5_000, 20_000, 50_000])
def test_short_kernels_of_known_length(node: Node, length_ns: int) -> None:
    """Stamps of events scatter: the share under a cap shows by how much in all."""
    boxes(node, a={"cores": 30})
    program = node.start("a", "measure", "run", "--seconds", RUN_S, "--ns", length_ns, stamps=True)
    (said,) = node.together([program])
    rows = node.rows(program, said)
    begin, end = int(rows[0, 1]), int(rows[-1, 2])
    share = 100 * busy_ns(rows, begin, end) / (end - begin)
    middle = percentile([int(one) for one in rows[:, 2] - rows[:, 1]], 50)
    print({"length_ns": length_ns, "p50_ns": middle, "share": share})
    assert share == pytest.approx(30, abs=20 if ON_FAKE else 5)


# --- block 8: inference beside training ---


@pytest.mark.parametrize("kernels", [50_000, MS, 20 * MS])
def test_inference_beside_training(node: Node, kernels: int) -> None:
    """For the README's table: by the library, and by the driver's time slices alone."""
    boxes(node, high={"share_class": "high"}, low={"share_class": "low"})
    took: dict[str, Any] = {}
    for how, limited in (("library", True), ("time slices", False)):
        programs = [
            node.start("high", "measure", "serve", "--seconds", RUN_S, "--load", 20, limited=limited),
            node.start("low", "measure", "run", "--seconds", RUN_S, "--ns", kernels, limited=limited),
        ]
        took[how] = node.together(programs)[0]["took_p99_ns"] / MS
    alone = node.together([node.start("high", "measure", "serve", "--seconds", RUN_S, "--load", 20)])
    print({"kernel_ns": kernels, "p99_ms": took, "alone_ms": alone[0]["took_p99_ns"] / MS})


# --- block 9: hardware queues ---


def test_one_hardware_queue(node: Node) -> None:
    boxes(node, a={"cores": 50})
    for connections in ("1", "8"):
        one = rude(node, "a", "events", RUN_S, 200_000, CUDA_DEVICE_MAX_CONNECTIONS=connections)
        print({"connections": connections, "percent": one.result(60)["percent"]})


# --- block 10: signals ---


def test_a_held_program_handles_its_signal(node: Node) -> None:
    boxes(node, a={"share_class": "low"}, h={"share_class": "high"})
    high = node.start("h", "measure", "run", "--seconds", 20, "--depth", 1000, "--ns", MS)
    high.begin()
    low = rude(node, "a", "term", 30, 200_000)
    time.sleep(2)
    sent_ns = time.monotonic_ns()
    os.kill(low.process.pid, signal.SIGTERM)
    assert low.result(30)["at_ns"] - sent_ns < (4_000 if ON_FAKE else 1_000) * MS
