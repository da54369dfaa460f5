"""The traces with departures: as dense as asked for, and measured after the warm-up only."""

import random
from collections import Counter
from pathlib import Path

import pytest
from unit.sim.test_openb import folder_of
from vc_egpu.sim.churn import Hours, dense, measure, some_nodes
from vc_egpu.sim.table import TableError, pods_of


def test_so_much_is_asked_for_as_the_load_says(tmp_path: Path) -> None:
    pods = pods_of(folder_of(tmp_path, random.Random(1)) / "pods-tiny.csv.gz")
    works = dense(pods, 5000, 2e6, 1)
    asked = sum(work.gpu_milli * (work.lifetime_s or 0) for work in works) / 2e6
    assert asked == pytest.approx(5000, rel=0.1)
    assert [work.arrival_s for work in works] == sorted(work.arrival_s for work in works)
    assert dense(pods, 5000, 2e6, 1) == works
    assert dense(pods, 5000, 2e6, 2) != works


def test_overload_fills_the_cards_and_makes_pods_wait(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, random.Random(2), nodes=6)
    low, high = (measure(folder, ("tiny", load, 1), "fullest", hours=Hours(20, 20)) for load in (0.3, 1.5))
    assert 10 < low["allocation"] < 35
    assert low["gpu_wait"] < high["gpu_wait"]
    assert low["allocation"] < high["allocation"] <= 100
    assert high["multi_gpu_wait_p99"] > 0


def test_a_part_of_the_nodes_has_each_kind(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, random.Random(3), nodes=200)
    whole = Counter(tuple(card.model for card in node.cards) for node in some_nodes(folder, 1, 1))
    part = Counter(tuple(card.model for card in node.cards) for node in some_nodes(folder, 0.25, 1))
    assert part.keys() == whole.keys()
    assert all(count == max(1, round(whole[kind] / 4)) for kind, count in part.items())
    names = [[node.name for node in some_nodes(folder, 0.25, seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]


def test_pods_without_times_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,500\n")
    with pytest.raises(TableError, match="creation_time"):
        dense(pods_of(path), 1000, 10, 1)
