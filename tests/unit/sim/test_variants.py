"""The variants of a trace: shares with memory of their own, and gangs made of the same pods."""

import random
from collections import Counter
from pathlib import Path

import pytest
from unit.sim.test_openb import folder_of
from vc_egpu.core.model.policy import BEST_FIT, FGD, OURS
from vc_egpu.core.placing.learning import Kind, kind_of
from vc_egpu.sim.load import Load
from vc_egpu.sim.openb import POINTS, Trace, measure
from vc_egpu.sim.variants import FACTORS, GANGS, MEMORY, SIZES, VARIANTS, WITHIN, in_gangs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path, random.Random(5), nodes=30, pods=300)


def pods_by_kind(load: Load) -> Counter[Kind]:
    return Counter(kind_of(shape) for work in load.works for shape in work.shapes)


def test_shares_ask_for_time_as_before_and_for_memory_of_their_own(folder: Path) -> None:
    plain, derived = (Trace.of(folder, "tiny", variant).pod_rows() for variant in ("", MEMORY))
    factors = Counter[float]()
    for before, after in zip(plain, derived, strict=True):
        assert (before.name, before.gpu_milli) == (after.name, after.gpu_milli)
        if before.gpu_milli not in range(1, 1000):
            assert before == after
            continue
        (ask,) = after.shape.asks
        assert ask.cores_percent * 10 == before.gpu_milli
        assert 0 < ask.memory_mib <= 1000
        near = [each for each in FACTORS if abs(min(1000.0, before.gpu_milli * each) - ask.memory_mib) <= 5]
        assert near
        factors[near[0]] += 1
    assert set(factors) == {*FACTORS}


def test_gangs_are_of_the_same_pods_as_before(folder: Path) -> None:
    plain, derived = (Trace.of(folder, "tiny", variant).load(42) for variant in ("", GANGS))
    assert pods_by_kind(plain) == pods_by_kind(derived)
    assert sum(work.gpu_milli for work in plain.works) == sum(work.gpu_milli for work in derived.works)
    sizes = Counter(len(work.shapes) for work in derived.works)
    assert {*SIZES, 1} <= set(sizes) <= {*range(1, max(SIZES) + 1)}
    arrivals = [work.arrival_s for work in derived.works]
    assert arrivals == sorted(arrivals)
    for work in derived.works:
        assert len({kind_of(shape) for shape in work.shapes}) == 1, "members are alike"
        assert work.gpu_milli or len(work.shapes) == 1, "pods without cards stay alone"
        assert work.gpu_milli <= 32_000


def test_a_gang_takes_no_pod_that_would_come_much_later(folder: Path) -> None:
    works = Trace.of(folder, "tiny").load(42).works
    rare = next(work for work in works if work.gpu_milli)
    others = [work for work in works if work.shapes != rare.shapes]
    far = [rare, *others[:WITHIN], rare]
    assert len(far) == WITHIN + 2
    for seed in range(30):
        assert all(len(work.shapes) == 1 for work in in_gangs(far, seed) if work.shapes == rare.shapes)


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_has_its_figures(tmp_path: Path, variant: str) -> None:
    folder = folder_of(tmp_path, random.Random(5), nodes=12, pods=60)
    for policy in (FGD, BEST_FIT, OURS):
        found = measure(folder, "tiny", 42, policy, variant)
        assert set(found) == {*map(str, POINTS), "frag130"}
        assert found != measure(folder, "tiny", 42, policy)
