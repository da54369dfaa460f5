"""Placement on the live path: pods of a published trace end where the simulator puts them."""

from dataclasses import replace
from pathlib import Path

import pytest
from rigs.traced import simulated, traced
from vc_egpu.core.model.policy import FULLEST, OURS
from vc_egpu.sim.load import Load, Work
from vc_egpu.sim.openb import Trace

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
TRACES = Path(__file__).parents[2] / "shared" / "traces" / "openb"
NODES, PODS, SEED = 76, 500, 42


def part_of(load: Load) -> Load:
    """The first pods that ask for cards, on a part of the nodes that they just about fill."""
    with_cards = [work for work in load.works if work.gpu_milli][:PODS]
    every = len(load.nodes) // NODES
    return Load(load.nodes[::every][:NODES], tuple(map(renamed, with_cards, range(PODS))))


def renamed(work: Work, number: int) -> Work:
    """The work under a name that an object may have."""
    return replace(work, key=f"pod{number}", arrival_s=float(number))


@pytest.mark.parametrize("binpack", [FULLEST, OURS])
def test_pods_of_a_trace_end_where_the_simulator_puts_them(binpack: str, tmp_path: Path) -> None:
    """One after another. What fits nowhere there says here that it waits, and is taken away."""
    if not TRACES.is_dir():
        pytest.skip(f"the trace is not at {TRACES}")
    load = part_of(Trace.of(TRACES, "default").load(SEED))
    told = simulated(load, binpack)
    assert len(told) < PODS, "no pod finds the cluster full"
    with traced(f"placement-{binpack}", load.nodes, tmp_path, "--binpack", binpack) as here:
        for work in load.works:
            ((_, _, shape),) = work.tasks
            here.submit(work.key, shape)
            if work.key in told:
                assert here.place(work.key) == told[work.key], f"{work.key}, {shape}"
            else:
                here.drop(work.key)
        here.check_invariants()
