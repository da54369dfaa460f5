"""Shares of time and classes on a real card, by the stamps that the kernels themselves write."""

import pytest
from children import rest_of
from gpu.judge import gaps_of, holds_of, kept_of, percentile
from gpu.standalone import MS, ON_FAKE, SECOND, Node, busy_ns

RUN_S = 3 if ON_FAKE else 10
POINTS = 20.0 if ON_FAKE else 2.0
"""On the fake driver the commands are tried, on a machine that does something else meanwhile."""
MEMORY_MIB = 2048
WARM_NS = 500 * MS


def _shares(node: Node, kernels: object, boxes: dict[str, int]) -> dict[str, float]:
    programs = {
        name: node.start(name, "measure", "run", "--seconds", RUN_S, "--ns", kernels, stamps=True)
        for name in boxes
    }
    says = dict(zip(programs, node.together(programs.values()), strict=True))
    begin = max(said["from_ns"] for said in says.values()) + WARM_NS
    end = min(said["to_ns"] for said in says.values()) - 100 * MS
    return {
        name: 100 * busy_ns(node.rows(programs[name], said), begin, end) / (end - begin)
        for name, said in says.items()
    }


@pytest.mark.parametrize("kernels", [50_000, MS, 20 * MS])
@pytest.mark.parametrize("cores", [30, 80])
def test_a_hard_share_is_met(node: Node, kernels: int, cores: int) -> None:
    node.add("a", MEMORY_MIB, cores)
    share = _shares(node, kernels, {"a": cores})["a"]
    assert share == pytest.approx(cores, abs=POINTS)


def test_two_hard_shares_beside_each_other(node: Node) -> None:
    boxes = {"a": 30, "b": 60}
    for name, cores in boxes.items():
        node.add(name, MEMORY_MIB, cores)
    shares = _shares(node, MS, boxes)
    # A card that turns from one to the other in slices counts a kernel's pauses into its own stamps.
    for name, cores in boxes.items():
        assert shares[name] > (1 if ON_FAKE else cores / 2)


def test_soft_shares_have_all_when_alone(node: Node) -> None:
    node.add("a", MEMORY_MIB, 25, core_policy="soft")
    node.add("b", MEMORY_MIB, 75, core_policy="soft")
    assert _shares(node, MS, {"a": 25})["a"] > (50 if ON_FAKE else 90)


def test_low_waits_for_high_and_runs_in_its_gaps(node: Node) -> None:
    node.add("high", MEMORY_MIB, share_class="high")
    node.add("low", MEMORY_MIB, share_class="low")
    programs = [
        node.start("high", "measure", "serve", "--seconds", RUN_S, "--load", 20, stamps=True),
        node.start("low", "measure", "run", "--seconds", RUN_S, "--depth", 100, "--ns", MS, stamps=True),
    ]
    high, low = (node.rows(one, said) for one, said in zip(programs, node.together(programs), strict=True))
    gaps = gaps_of(high)
    assert len(gaps) > 5
    holds = percentile(holds_of(high, low, gaps), 50)
    assert holds is not None
    assert holds < (50 if ON_FAKE else 2.5) * MS
    kept = kept_of(low, gaps)
    assert kept is not None
    assert kept > (0.3 if ON_FAKE else 0.8)


@pytest.mark.parametrize("share_class", ["unset", "low"])
def test_kernels_that_meet_never_get_stuck(node: Node, share_class: str) -> None:
    node.add("a", MEMORY_MIB, 50, share_class=share_class)
    node.add("high", MEMORY_MIB, share_class="high")
    meet = node.start("a", "meet", "--rounds", 50, "--ns", 100_000)
    _, out, errors = rest_of(meet.process, 120)
    assert out.endswith("done 50\n"), (out, errors)


def test_the_librarys_books_agree_with_the_card(node: Node) -> None:
    node.add("a", MEMORY_MIB, 50)
    program = node.start("a", "measure", "run", "--seconds", RUN_S, "--ns", MS, stamps=True)
    (said,) = node.together([program])
    rows = node.rows(program, said)
    ran = busy_ns(rows, int(rows[0, 1]), int(rows[-1, 2]))
    assert node.charged_ns("a") == pytest.approx(ran, rel=0.25 if ON_FAKE else 0.03, abs=0.05 * SECOND)
