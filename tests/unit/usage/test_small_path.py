"""From a Prometheus to a report: the scene's known answers, and a Prometheus that does not behave."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from unit.usage.fake_prometheus import Fake, fake_prometheus
from unit.usage.scene import SERVICES, scene
from vc_egpu.usage.main import main
from vc_egpu.usage.table.series import SERIES

DAYS = ["--since", "2026-11-02", "--until", "2026-11-04"]
HALF_DAY = ["--since", "2026-11-02T00:00", "--until", "2026-11-02T12:00"]
TOO_MANY = (
    b'{"status":"error","errorType":"execution","error":"query processing would load too many samples"}'
)
HOUR_S = 3600


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A server with a few services: a report of it is quick."""
    with fake_prometheus(scene(SERVICES[3:5])) as served:
        yield served


class Run:
    """``vc-egpu report`` on a server, with a store of its own, in JSON."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = folder / "store"
        self.slept: list[float] = []
        self.error = ""
        self._capsys = capsys

    def status(self, url: str, *flags: str) -> int:
        argv = ["--prometheus", url, "--store", str(self.store), "--format", "json", "--cluster", "c", *flags]
        return main(argv, self.slept.append)

    def told(self, url: str, *flags: str) -> dict[str, Any]:
        status = self.status(url, *flags)
        said = self._capsys.readouterr()
        self.error = said.err
        assert status == 0, said.err
        found: dict[str, Any] = json.loads(said.out)
        return found

    def refused(self, url: str, *flags: str) -> tuple[int, str]:
        status = self.status(url, *flags)
        return status, self._capsys.readouterr().err


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(tmp_path, capsys)


@pytest.fixture(scope="module")
def report_of_the_scene(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("scene")
    output = folder / "report.json"
    with fake_prometheus(scene()) as served:
        argv = ["--prometheus", served.url, "--store", str(folder / "store"), "--format", "json", *DAYS]
        assert main([*argv, "--cluster", "c", "--output", str(output)]) == 0
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def row(report: dict[str, Any], table: str, **fields: str) -> dict[str, Any]:
    (found,) = (r for r in report["tables"][table] if all(r[name] == value for name, value in fields.items()))
    assert isinstance(found, dict)
    return found


# --- the scene ------------------------------------------------------------------------------------


def test_the_idle_service_is_named_with_its_owner_and_since_when(report_of_the_scene: dict[str, Any]) -> None:
    idle = row(report_of_the_scene, "idle_services", service="sleeper")
    assert (idle["tenant"], idle["idle_ratio"]) == ("lab", 1.0)
    assert idle["idle_card_hours"] == pytest.approx(48.0, abs=1 / 60 + 1e-9), (
        "a counter's first minute has no step"
    )
    assert idle["idle_since"] == "2026-11-02T00:00Z"
    # Its memory moves in the hours in which work begins and ends.
    assert row(report_of_the_scene, "idle_services", service="batch")["idle_card_hours"] == 30.0
    names = {one["service"] for one in report_of_the_scene["tables"]["idle_services"]}
    assert names == {"sleeper", "batch"}


def test_the_card_that_nobody_holds_is_named(report_of_the_scene: dict[str, Any]) -> None:
    card = row(report_of_the_scene, "idle_cards", uuid="GPU-6")
    assert (card["free_hours"], card["card_hours"], card["node"]) == (48.0, 48.0, "node-6")


@pytest.mark.parametrize(
    ("service", "advice", "gib"),
    [
        ("sleeper", "shrink", 3),
        ("wide", "shrink", 11),
        ("fast", "shrink", 29),
        ("chat", "shrink", 35),
        ("holey", "shrink", 10),
        ("young", "too little seen", None),
        ("gone", "ended", None),
    ],
)
def test_right_sizes_are_as_counted_by_hand(
    report_of_the_scene: dict[str, Any], service: str, advice: str, gib: int | None
) -> None:
    size = row(report_of_the_scene, "right_sizes", service=service)
    assert size["advice"] == advice
    assert size["memory_proposed_bytes"] == (None if gib is None else gib * (1 << 30))
    assert size["hours_exceeded"] == 0


def test_cores_are_sized_where_they_were_asked_for(report_of_the_scene: dict[str, Any]) -> None:
    assert row(report_of_the_scene, "right_sizes", service="wide")["cores_proposed_ratio"] == 0.58
    assert row(report_of_the_scene, "right_sizes", service="chat")["cores_proposed_ratio"] is None


def test_the_off_peak_pair_is_found(report_of_the_scene: dict[str, Any]) -> None:
    (pair,) = report_of_the_scene["tables"]["pairs"]
    assert {pair["service_one"], pair["service_other"]} == {"chat", "batch"}
    assert (pair["method"], pair["conflict_hours"]) == ("share", 0)


def test_charges_and_idle_time_are_all_card_hours(report_of_the_scene: dict[str, Any]) -> None:
    charged = sum(one["charged_card_hours"] for one in report_of_the_scene["tables"]["showback"])
    assert charged == pytest.approx(6 * 48)


def test_low_pays_what_high_leaves(report_of_the_scene: dict[str, Any]) -> None:
    """They hold 0.8 and 0.5 of one card: 0.5 is left for low."""
    low = row(report_of_the_scene, "showback", service="wide")
    assert low["requested_card_hours"] == pytest.approx(0.8 * 48, rel=1e-3)
    assert low["charged_card_hours"] == pytest.approx(0.5 * 48, rel=1e-3)


def test_a_counter_that_begins_again_loses_nothing(report_of_the_scene: dict[str, Any]) -> None:
    wide = row(report_of_the_scene, "showback", service="wide")
    assert wide["compute_used_card_hours"] == pytest.approx(24.0, abs=2 * 0.5 / 60)


def test_queues_tell_waiting_and_evictions(report_of_the_scene: dict[str, Any]) -> None:
    queue = row(report_of_the_scene, "queue_waits", queue="train")
    assert (queue["admitted"], queue["mean_wait_seconds"], queue["evicted_priority"]) == (3.0, 90.0, 4.0)
    assert (queue["tenant"], queue["most_waiting_gangs"]) == ("lab", 2.0)
    assert row(report_of_the_scene, "queue_shares", queue="train")["used_of_deserved_ratio"] == 1.5


def test_minutes_that_are_missing_are_counted(report_of_the_scene: dict[str, Any]) -> None:
    holey = row(report_of_the_scene, "right_sizes", service="holey")
    assert holey["hours_seen"] == pytest.approx(48 - 3 / 60)


# --- reading --------------------------------------------------------------------------------------


def test_what_was_read_is_not_asked_for_again(fake: Fake, run: Run) -> None:
    first = run.told(fake.url, *HALF_DAY)
    asked = len(fake.asked)
    assert run.told(fake.url, *HALF_DAY)["tables"] == first["tables"]
    assert len(fake.asked) == asked
    run.told(fake.url, *HALF_DAY, "--refresh")
    assert len(fake.asked) == 2 * asked


def test_a_report_that_was_killed_goes_on_where_it_was(fake: Fake, run: Run) -> None:
    """Killed while it waits for an answer of the second piece."""
    reached, go_on = threading.Event(), threading.Event()

    def holds(_fields: dict[str, str], number: int) -> None:
        if number == len(SERIES) + 3:
            reached.set()
            go_on.wait(60)

    fake.fault = holds
    argv = ["--prometheus", fake.url, "--store", str(run.store), "--cluster", "c", *HALF_DAY]
    process = subprocess.Popen([sys.executable, "-m", "vc_egpu.usage.main", *argv], env=paths_of_python())
    try:
        assert reached.wait(60)
    finally:
        process.kill()
        process.wait()
        go_on.set()
    assert [path.name for path in run.store.rglob("*.parquet")] == ["hours-00-06.parquet"] * 2
    asked = len(fake.asked)
    report = run.told(fake.url, *HALF_DAY)
    assert len(fake.asked) - asked == len(SERIES), "the first piece is there"
    assert not any("nothing is known" in note for note in report["notes"])


def paths_of_python() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}


def test_too_many_samples_are_asked_for_in_smaller_pieces(fake: Fake, run: Run) -> None:
    def fault(fields: dict[str, str], _number: int) -> tuple[int, bytes] | None:
        span = int(fields["end"]) - int(fields["start"])
        return (422, TOO_MANY) if span > 2 * HOUR_S else None

    whole = run.told(fake.url, *HALF_DAY)
    fake.fault = fault
    assert run.told(fake.url, *HALF_DAY, "--refresh")["tables"] == whole["tables"]


def test_a_server_that_is_busy_for_a_while_is_asked_again(fake: Fake, run: Run) -> None:
    fake.fault = lambda _fields, number: (503, b"busy") if number in {2, 3} else None
    assert run.told(fake.url, *HALF_DAY)["tables"]["right_sizes"]
    assert run.slept == [1.0, 2.0]


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>log in</html>",
        b"{}",
        b"[]",
        b'{"status":"success","data":{"resultType":"vector","result":[]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"x"]]}]}}',
        b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"pod":7},"values":[[1,"1"]]}]}}',
    ],
)
def test_an_answer_that_is_none_is_told(fake: Fake, run: Run, answer: bytes) -> None:
    fake.fault = lambda _fields, _number: (200, answer)
    status, said = run.refused(fake.url, *HALF_DAY)
    assert status == 3
    assert said.count("\n") < 5
    assert "Traceback" not in said


def test_one_bad_piece_is_noted_and_read_the_next_time(fake: Fake, run: Run) -> None:
    bad = str(int(_epoch("2026-11-02T06:00")))
    fake.fault = lambda fields, _number: (400, b'{"error":"broken block"}') if fields["end"] == bad else None
    report = run.told(fake.url, *HALF_DAY)
    assert any("missing" in note and "broken block" in note for note in report["notes"])
    assert any(
        note.startswith("nothing is known from 2026-11-02T00:00Z to 2026-11-02T06:00Z")
        for note in report["notes"]
    )
    fake.fault = lambda _fields, _number: None
    assert not any("nothing is known" in note for note in run.told(fake.url, *HALF_DAY)["notes"])


def test_no_server_is_no_report(run: Run) -> None:
    status, said = run.refused("http://127.0.0.1:1", *HALF_DAY)
    assert status == 3
    assert "does not answer" in said
    assert run.slept == [1.0, 2.0, 4.0]


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "http://", "http://[::1"])
def test_an_address_that_is_none_is_told(run: Run, url: str) -> None:
    status, said = run.refused(url, *HALF_DAY)
    assert status == 3
    assert "no address" in said


def test_a_store_keeps_to_one_server(fake: Fake, run: Run) -> None:
    run.told(fake.url, *HALF_DAY)
    with fake_prometheus(scene(SERVICES[3:4])) as other:
        status, said = run.refused(other.url, *HALF_DAY)
    assert status == 1
    assert "--store" in said


def test_a_token_is_sent_and_is_nowhere_told(fake: Fake, run: Run, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    run.told(fake.url, *HALF_DAY, "--token-file", str(tmp_path / "token"))
    assert fake.headers[0]["Authorization"] == "Bearer s3cret"
    fake.fault = lambda _fields, _number: (401, b"no")
    flags = (*HALF_DAY, "--refresh", "--token-file", str(tmp_path / "token"))
    status, said = run.refused(fake.url, *flags)
    assert status == 3
    assert "s3cret" not in said


def test_hours_without_data_are_not_kept(run: Run) -> None:
    with fake_prometheus([]) as empty:
        status, said = run.refused(empty.url, *HALF_DAY)
    assert status == 1
    assert "usage_hourly" in said
    assert not list(run.store.rglob("*.parquet"))


def test_a_tenant_sees_its_own(fake: Fake, run: Run) -> None:
    report = run.told(fake.url, *HALF_DAY, "--tenant", "serve")
    assert {one["service"] for one in report["tables"]["right_sizes"]} == {"fast"}
    assert {one["tenant"] for one in report["tables"]["showback"]} == {"serve"}
    assert not {"summary", "idle_cards", "gains"} & report["tables"].keys()
    status, said = run.refused(fake.url, *HALF_DAY, "--tenant", "nobody")
    assert status == 2
    assert "nobody" in said


def _epoch(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
