"""The published protocol: each place is the one that the published rule gives."""

import csv
import gzip
import io
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest
from unit.sim.published import Machine, Published, Row, typical
from vc_egpu.core.model.policy import BEST_FIT, BINPACK_RULES, FGD
from vc_egpu.sim.openb import POINTS, Trace, measure, mix_of, names_in
from vc_egpu.sim.replay import Replay, Terms
from vc_egpu.sim.table import TableError

Place = tuple[int, tuple[int, ...]] | None
_MODELS = ("T4", "P100", "G2")


def folder_of(tmp_path: Path, dice: random.Random, nodes: int = 12, pods: int = 160) -> Path:
    """A small trace called ``tiny`` in the form of the published ones."""
    tables = {
        "nodes.csv.gz": "sn,cpu_milli,memory_mib,gpu,model\n"
        + "".join(
            f"n{i:03},{dice.choice([8000, 32000])},65536,{dice.choice([1, 2, 4, 8])},{dice.choice(_MODELS)}\n"
            for i in range(nodes)
        ),
        "pods-tiny.csv.gz": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,"
        + "creation_time,deletion_time\n"
        + "".join(pod_row(i, dice) for i in range(pods)),
    }
    for name, text in tables.items():
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    order = {
        "arrivals": [dice.randrange(pods) for _ in range(2 * pods)],
        "nodeTieOrder": dice.sample(range(nodes), nodes),
    }
    document = json.dumps({"trace": "tiny", "seeds": {"42": order}})
    (tmp_path / "arrivals-tiny.json.gz").write_bytes(gzip.compress(document.encode()))
    return tmp_path


def pod_row(number: int, dice: random.Random) -> str:
    cards, milli = dice.choice(
        [(0, 0), (1, 470), (1, 470), (1, 810), (1, 230), (1, 1000), (2, 1000), (8, 1000)]
    )
    models = dice.choice(["", "", "", "T4", "P100|G2"]) if cards else ""
    cpu, came = dice.choice([500, 2000, 4000]), 60 * number
    return f"p{number:04},{cpu},1024,{cards},{milli},{models},{came},{came + dice.randrange(60, 9000)}\n"


def rows_of(path: Path) -> list[Row]:
    return list(csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))


def published(folder: Path, name: str, seed: int, arrivals: int) -> list[Place]:
    order = json.loads(gzip.decompress((folder / f"arrivals-{name}.json.gz").read_bytes()))["seeds"][
        str(seed)
    ]
    nodes = sorted(rows_of(folder / "nodes.csv.gz"), key=lambda row: row["sn"])
    pods = sorted(rows_of(folder / f"pods-{name}.csv.gz"), key=lambda row: row["name"])
    machines = [
        Machine(node["model"], int(node["cpu_milli"]), int(node["memory_mib"]), [1000] * int(node["gpu"]))
        for node in (nodes[number] for number in order["nodeTieOrder"])
    ]
    rule = Published(typical(pods), machines)
    return [rule.place(pods[number]) for number in order["arrivals"][:arrivals]]


def ours(folder: Path, name: str, seed: int, arrivals: int) -> list[Place]:
    trace = Trace.of(folder, name)
    load = trace.load(seed)
    load = replace(load, works=load.works[:arrivals])
    found: list[Place] = []

    def watch(replay: Replay) -> None:
        pods = replay.world.pods_of(load.works[len(found)].key)
        if not pods:
            found.append(None)
            return
        cards = sorted(int(share.card.rpartition("/")[2]) for _, share in pods[0].shares)
        found.append((int(str(pods[0].node).partition(".")[0]), tuple(cards)))

    Replay(load, Terms(FGD, waits=False, mix=mix_of(trace.pod_rows()))).run(watch)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_fgd_places_each_pod_as_published(tmp_path: Path, seed: int) -> None:
    folder = folder_of(tmp_path, random.Random(seed))
    expected = published(folder, "tiny", 42, 320)
    assert ours(folder, "tiny", 42, 320) == expected
    assert None in expected, "some pod has to fit nowhere"


@pytest.mark.parametrize("name", ["default", "gpuspec33"])
def test_fgd_places_each_pod_of_the_real_trace_as_published(name: str) -> None:
    folder = Path(os.environ.get("OPENB_DIR", ""))
    if not os.environ.get("OPENB_DIR"):
        pytest.skip("OPENB_DIR names no folder with the openb traces")
    assert ours(folder, name, 42, 400) == published(folder, name, 42, 400)


def test_each_rule_has_its_figures_and_fgd_beats_chance(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, random.Random(5), nodes=30, pods=300)
    found = {policy: measure(folder, "tiny", 42, policy) for policy in BINPACK_RULES}
    for figures in found.values():
        assert set(figures) == {*map(str, POINTS), "frag130"}
    assert found[FGD]["100"] > found["random"]["100"]
    assert found[FGD]["100"] >= found[BEST_FIT]["100"] - 1


def test_equal_runs_are_equal(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, random.Random(6))
    for policy in BINPACK_RULES:
        assert measure(folder, "tiny", 42, policy) == measure(folder, "tiny", 42, policy), policy


def test_what_a_folder_lacks_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, random.Random(7), nodes=2, pods=3)
    assert names_in(folder) == ["tiny"]
    with pytest.raises(TableError, match="pods-other"):
        Trace.of(folder, "other")
    with pytest.raises(TableError, match="there is no seed 7, only 42"):
        Trace.of(folder, "tiny").load(7)
