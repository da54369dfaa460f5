"""The queries on a real Prometheus: the same rows as counted from the samples, and a whole report."""

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from localcluster import toolchain
from localcluster.errors import LocalClusterError
from localcluster.net import free_ports
from unit.usage.fake_prometheus import fake_prometheus
from unit.usage.scene import openmetrics, scene
from vc_egpu.usage.main import main
from vc_egpu.usage.table.database import database, quoted

pytestmark = pytest.mark.long
DAYS = ["--since", "2026-11-02", "--until", "2026-11-04"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with the scene as blocks on its disk."""
    folder = tmp_path_factory.mktemp("prometheus")
    try:
        server, promtool = toolchain.program("prometheus"), toolchain.program("promtool")
    except LocalClusterError as error:
        pytest.skip(str(error))
    (folder / "scene.txt").write_text("".join(openmetrics(scene())))
    blocks = [str(promtool), "tsdb", "create-blocks-from", "openmetrics"]
    blocks += [str(folder / "scene.txt"), str(folder / "data")]
    subprocess.run(blocks, check=True, capture_output=True, timeout=240)
    (folder / "prometheus.yml").write_text("{}")
    (port,) = free_ports(1, set())
    argv = [
        str(server),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=20y",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stderr=log, stdout=log)
        try:
            _wait(f"http://127.0.0.1:{port}/-/ready", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


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
