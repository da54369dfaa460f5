"""The first minutes on a card, in the order in which what is wrong would spoil what follows.

`make test-gpu` begins with these five blocks and stops at the first red: then the library has to be mended
before anything else tells something. :mod:`gpu.test_next_minutes` goes on.
"""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from gpu.rude import RUN_S, boxes, rude, said_by
from gpu.standalone import MS, ON_FAKE, Node
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.pages import ACTIVITY

ENDS: Final = 10 if ON_FAKE else 500
CAPTURES_S: Final = 2 if ON_FAKE else 20


# --- block 1: programs that end ---


def test_programs_end_with_0(node: Node) -> None:
    """With work in flight: the driver's memory goes with its exit handler."""
    boxes(node, free={}, hard={"cores": 50})
    for name in ("free", "hard"):
        for _ in range(ENDS // 2):
            one = rude(node, name, "leave", 20_000)
            assert one.result(60) == {}
            node.running.remove(one)
            one.end()


# --- block 2: the legacy stream ---


def test_the_legacy_stream_has_no_barrier_of_ours(node: Node) -> None:
    boxes(node, free={})
    assert said_by(node, "free", "legacy", 20)["rounds"] == 20


def test_kernels_side_by_side_are_as_fast_as_without_the_library(node: Node) -> None:
    boxes(node, free={})
    plain, ours = (min(said_by(node, name, "side", 10)["ms"] for _ in range(3)) for name in (None, "free"))
    assert ours < plain * (1.5 if ON_FAKE else 1.03)


# --- block 3: captures ---


@pytest.mark.parametrize("world", ["hard", "soft", "low"])
def test_no_capture_is_spoilt(node: Node, world: str) -> None:
    shares: dict[str, Mapping[str, Any]] = {
        "hard": {"cores": 50},
        "soft": {"cores": 50, "core_policy": "soft"},
        "low": {"share_class": "low"},
    }
    boxes(node, a=shares[world], other={"share_class": "high"})
    said = said_by(node, "a", "captures", CAPTURES_S, 2 * MS)
    assert said["made"] > 10
    assert said["spoilt"] == 0


# --- block 4: what a launch costs ---


def test_a_launch_costs_little_more(node: Node) -> None:
    """Without a cap and a class; under a cap it is only told."""
    boxes(node, free={}, hard={"cores": 90})
    lengths = {
        name or "plain": min(said_by(node, name, "pace", 1, 20_000, 1000)["ns"] for _ in range(3))
        for name in (None, "free", "hard")
    }
    print({"launch_ns": lengths})
    assert lengths["free"] < lengths["plain"] * (2 if ON_FAKE else 1.1)


# --- block 5: what is charged ---


@pytest.mark.parametrize("what", ["copy", "host", "wait"])
def test_the_charge_is_the_kernels_time(node: Node, what: str) -> None:
    """20 us of kernels in each 10 ms: as fast as without a share, and charged as little."""
    boxes(node, a={"cores": 20})
    plain = said_by(node, None, "between", RUN_S, what, 10)["ms"]
    said = said_by(node, "a", "between", RUN_S, what, 10)
    assert said["ms"] < plain * (1.5 if ON_FAKE else 1.05)
    page = node.isolation.pages.read(ACTIVITY, "a")
    assert page is not None
    charged_ns = abi.ActivityPage.from_buffer_copy(page).cards[0].busy_ns
    assert charged_ns < said["kernel_ns"] * (4 if ON_FAKE else 1.1) + 5 * MS


def test_a_first_pass_over_new_kernels_is_not_held(node: Node) -> None:
    boxes(node, a={"cores": 20})
    plain, ours = (said_by(node, name, "lazy", 100, 20_000)["first_ms"] for name in (None, "a"))
    assert ours < plain * 1.5 + 20
