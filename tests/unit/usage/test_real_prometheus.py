"""The queries on a real Prometheus: the same rows as counted from the samples, and a whole report."""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from localcluster import toolchain
from localcluster.errors import LocalClusterError
from localcluster.net import free_ports
from unit.usage.fake_prometheus import fake_prometheus
from unit.usage.scene import openmetrics, scene
from vc_egpu.cli import exit_status
from vc_egpu.cli.sites.usage import main as of_many
from vc_egpu.usage.main import main
from vc_egpu.usage.table.database import database, quoted

pytestmark = pytest.mark.long
DAYS = ["--since", "2026-11-02", "--until", "2026-11-04"]


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Prometheus' own with the scene as blocks."""
    folder = tmp_path_factory.mktemp("blocks")
    try:
        promtool = toolchain.program("promtool")
        toolchain.program("prometheus")
    except LocalClusterError as error:
        pytest.skip(str(error))
    (folder / "scene.txt").write_text("".join(openmetrics(scene())))
    argv = [str(promtool), "tsdb", "create-blocks-from", "openmetrics"]
    argv += [str(folder / "scene.txt"), str(folder / "data")]
    subprocess.run(argv, check=True, capture_output=True, timeout=240)
    return folder / "data"


@contextmanager
def served(blocks: Path, folder: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A Prometheus with a copy of these blocks: its address, and its process. ``folder`` is new."""
    shutil.copytree(blocks, folder / "data")
    (folder / "prometheus.yml").write_text("{}")
    (port,) = free_ports(1, set())
    argv = [
        str(toolchain.program("prometheus")),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stderr=log, stdout=log)
        try:
            _wait(f"http://127.0.0.1:{port}/-/ready", process)
            yield f"http://127.0.0.1:{port}", process
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def url(blocks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with the scene."""
    with served(blocks, tmp_path_factory.mktemp("prometheus")) as (address, _):
        yield address


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        assert process.poll() is None, "Prometheus ended"
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("Prometheus is not ready")


def rows(store: Path, table: str) -> list[dict[str, Any]]:
    with database() as db:
        files = quoted(str(store / table / "dt=*" / "*.parquet"))
        return db.rows(f"SELECT * FROM read_parquet({files}) ORDER BY ALL")


def test_a_real_prometheus_gives_the_rows_that_the_samples_are(url: str, tmp_path: Path) -> None:
    with fake_prometheus(scene()) as fake:
        for name, address in (("real", url), ("fake", fake.url)):
            argv = ["--prometheus", address, "--store", str(tmp_path / name), "--cluster", "c", *DAYS]
            assert main([*argv, "--format", "json", "--output", str(tmp_path / f"{name}.json")]) == 0
    for table in ("usage_hourly", "queue_hourly"):
        real, by_hand = rows(tmp_path / "real", table), rows(tmp_path / "fake", table)
        assert len(real) == len(by_hand) > 100
        assert real == by_hand


def test_one_report_over_three_of_them_one_of_which_is_killed(blocks: Path, tmp_path: Path) -> None:
    """The sums are three times those of one; after the kill they are twice, and say what is missing."""
    cities = ("hangzhou", "shanghai", "xian")
    file = tmp_path / "clusters.yaml"
    half_day = ["--since", "2026-11-02T00:00", "--until", "2026-11-02T12:00"]

    def told(name: str) -> tuple[int, dict[str, Any]]:
        argv = ["--clusters", str(file), "--store", str(tmp_path / "store"), *half_day]
        status = of_many([*argv, "--format", "json", "--output", str(tmp_path / name)])
        found: dict[str, Any] = json.loads((tmp_path / name).read_text())
        return status, found

    with ExitStack() as stack:
        servers = {}
        for city in cities:
            (tmp_path / city).mkdir()
            servers[city] = stack.enter_context(served(blocks, tmp_path / city))
        sites = [{"name": city, "prometheus": {"url": url}} for city, (url, _) in servers.items()]
        file.write_text(yaml.safe_dump({"clusters": sites}))
        status, whole = told("whole")
        (sums,), parts = whole["tables"]["summary"], whole["tables"]["clusters"]
        assert (status, whole["answered"], whole["unreachable"]) == (0, 3, [])
        assert [part["cluster"] for part in parts] == list(cities)
        assert sums["card_hours"] == pytest.approx(3 * parts[0]["card_hours"])
        assert sums["card_hours"] > 0
        servers["shanghai"][1].kill()
        servers["shanghai"][1].wait(30)
        status, left = told("left")
        assert (status, left["answered"]) == (exit_status.EXIT_NO_CLUSTER, 2)
        assert [one["cluster"] for one in left["unreachable"]] == ["shanghai"]
        (fewer,) = left["tables"]["summary"]
        assert fewer["card_hours"] == pytest.approx(2 * parts[0]["card_hours"])
        assert fewer["clusters_missing"] == "shanghai"
