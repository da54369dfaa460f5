"""One report over several clusters: each part named, and what is missing named where the sums are."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("duckdb", reason="the extra `report` is not installed")

from unit.usage.fake_prometheus import Fake, fake_prometheus
from unit.usage.scene import SERVICES, scene
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.sites.usage import main
from vc_egpu.cli.sizing.proposals import proposals
from vc_egpu.cli.sizing.source import CannotApplyError, read
from vc_egpu.usage.main import main as of_one

HALF_DAY = ["--since", "2026-11-02T00:00", "--until", "2026-11-02T12:00"]
UNAUTHORIZED = (401, b"the token has expired")


class Sites:
    """Three clusters with the same services on cards of the same names, and the file that leads to them."""

    def __init__(self, folder: Path, servers: dict[str, Fake]) -> None:
        self.folder = folder
        self.servers = servers
        self.file = folder / "clusters.yaml"
        self.write({name: {"url": server.url} for name, server in servers.items()})

    def write(self, prometheus: dict[str, dict[str, str]]) -> None:
        sites = [{"name": name, "prometheus": found} for name, found in prometheus.items()]
        self.file.write_text(yaml.safe_dump({"clusters": sites}))

    def status(self, *flags: str) -> int:
        store = ["--store", str(self.folder / "store"), "--cluster-timeout", "5"]
        return main(["--clusters", str(self.file), *store, *HALF_DAY, *flags], lambda _s: None)

    def told(self, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
        status = self.status("--format", "json")
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return status, found


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with ExitStack() as stack:
        names = ("hangzhou", "shanghai", "xian")
        servers = {name: stack.enter_context(fake_prometheus(scene(SERVICES[3:5]))) for name in names}
        yield Sites(tmp_path, servers)


def test_sums_are_over_all_and_each_part_is_named(sites: Sites, capsys: pytest.CaptureFixture[str]) -> None:
    alone = of_one(
        ["--prometheus", sites.servers["xian"].url, "--store", str(sites.folder / "one"), *HALF_DAY,
         "--format", "json"],
    )  # fmt: skip
    one = json.loads(capsys.readouterr().out)["tables"]["summary"][0]
    assert alone == 0
    status, told = sites.told(capsys)
    assert (status, told["asked"], told["answered"], told["unreachable"]) == (0, 3, 3, [])
    (whole,) = told["tables"]["summary"]
    parts = told["tables"]["clusters"]
    assert [part["cluster"] for part in parts] == ["hangzhou", "shanghai", "xian"]
    for column in ("cards", "card_hours", "granted_card_hours", "compute_used_card_hours"):
        assert whole[column] == pytest.approx(3 * one[column])
        assert [part[column] for part in parts] == [pytest.approx(one[column])] * 3
    assert {row["cluster"] for row in told["tables"]["right_sizes"]} == {"hangzhou", "shanghai", "xian"}


def test_a_missing_cluster_is_named_where_the_sums_are(
    sites: Sites, capsys: pytest.CaptureFixture[str]
) -> None:
    """One does not answer in time, one does not take the token any more, one is not told of."""
    ends = threading.Event()
    sites.servers["hangzhou"].fault = lambda _fields, _number: (ends.wait(20), UNAUTHORIZED)[1]
    sites.servers["shanghai"].fault = lambda _fields, _number: UNAUTHORIZED
    began = time.monotonic()
    status, told = sites.told(capsys)
    assert time.monotonic() - began < 18, "the slow one holds nobody up"
    ends.set()
    assert status == exit_status.EXIT_NO_CLUSTER
    slow, expired = told["unreachable"]
    assert (slow["cluster"], slow["reason"]) == ("hangzhou", "no answer within 5 s")
    assert expired["cluster"] == "shanghai"
    assert "401: the token has expired" in expired["reason"]
    (whole,) = told["tables"]["summary"]
    assert (whole["clusters_asked"], whole["clusters_answered"]) == (3, 1)
    assert whole["clusters_missing"] == "hangzhou, shanghai"
    rows = {row["cluster"]: row for row in told["tables"]["clusters"]}
    assert rows["shanghai"]["card_hours"] is None
    assert whole["card_hours"] == rows["xian"]["card_hours"] > 0


@pytest.mark.parametrize("form", ["table", "html"])
@pytest.mark.parametrize("language", ["en", "zh-Hans"])
def test_people_read_it_before_the_numbers(
    sites: Sites, capsys: pytest.CaptureFixture[str], form: str, language: str
) -> None:
    sites.servers["xian"].fault = lambda _fields, _number: UNAUTHORIZED
    assert sites.status("--format", form, "--lang", language) == exit_status.EXIT_NO_CLUSTER
    out = capsys.readouterr().out
    said = {"en": "All sums are of 2 of 3 clusters.", "zh-Hans": "3 个集群中的 2 个"}[language]
    first = {"en": "In short", "zh-Hans": "概要"}[language]
    assert out.index("xian") < out.index(said) < out.rindex(first)
    assert "hangzhou" in out


def test_files_have_the_table_of_clusters(sites: Sites) -> None:
    sites.servers["hangzhou"].fault = lambda _fields, _number: UNAUTHORIZED
    for form in ("csv", "parquet"):
        folder = sites.folder / form
        assert sites.status("--format", form, "--output", str(folder)) == exit_status.EXIT_NO_CLUSTER
        assert (folder / f"clusters.{form}").is_file()


def test_hours_that_were_read_before_do_not_stand_in_for_a_silent_cluster(
    sites: Sites, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its newest hours would be missing and nobody could tell: it is left out whole."""
    assert sites.told(capsys)[0] == 0
    sites.servers["xian"].fault = lambda _fields, _number: UNAUTHORIZED
    status, told = sites.told(capsys)
    assert (status, told["answered"]) == (exit_status.EXIT_NO_CLUSTER, 2)
    assert {row["cluster"] for row in told["tables"]["right_sizes"]} == {"hangzhou", "shanghai"}


def test_where_no_cluster_answers_there_is_no_report(
    sites: Sites, capsys: pytest.CaptureFixture[str]
) -> None:
    for server in sites.servers.values():
        server.fault = lambda _fields, _number: UNAUTHORIZED
    assert sites.status() == exit_status.EXIT_NO_CLUSTER
    said = capsys.readouterr()
    assert not said.out
    assert "hangzhou is missing" in said.err


def test_a_cluster_without_a_prometheus_is_missing(sites: Sites, capsys: pytest.CaptureFixture[str]) -> None:
    named = [{"name": name, "prometheus": {"url": sites.servers[name].url}} for name in ("hangzhou", "xian")]
    sites.file.write_text(yaml.safe_dump({"clusters": [*named, {"name": "lab"}]}))
    status, told = sites.told(capsys)
    assert status == exit_status.EXIT_NO_CLUSTER
    assert told["unreachable"] == [{"cluster": "lab", "reason": "the file names no Prometheus for it"}]
    sites.file.write_text(yaml.safe_dump({"clusters": [{"name": "lab"}]}))
    assert sites.status() == 2
    assert "no cluster of the file names a Prometheus" in capsys.readouterr().err


def test_each_cluster_has_its_own_token(sites: Sites, capsys: pytest.CaptureFixture[str]) -> None:
    (sites.folder / "token").write_text("of-xian\n")
    urls = {name: {"url": server.url} for name, server in sites.servers.items()}
    sites.write({**urls, "xian": {**urls["xian"], "tokenFile": "token"}})
    assert sites.told(capsys)[0] == 0
    sent = {name: server.headers[0].get("Authorization") for name, server in sites.servers.items()}
    assert sent == {"hangzhou": None, "shanghai": None, "xian": "Bearer of-xian"}


def test_the_quick_look_knows_it_too(
    sites: Sites, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(sites.folder / "cache"))
    sites.servers["xian"].fault = lambda _fields, _number: UNAUTHORIZED
    words = ["report", "--clusters", str(sites.file), *HALF_DAY, "-o", "json"]
    status = kubectl.main([*words, "--cluster-timeout", "5"])
    told = json.loads(capsys.readouterr().out)
    assert (status, told["answered"]) == (exit_status.EXIT_NO_CLUSTER, 2)
    assert len(list((sites.folder / "cache" / "vc-egpu" / "usage").iterdir())) == 2


def test_a_report_of_several_clusters_resizes_nothing(sites: Sites) -> None:
    """A service of the same name in another cluster would get the size of this one."""
    assert sites.status("--format", "json", "--output", str(sites.folder / "report.json")) == 0
    with pytest.raises(CannotApplyError, match="the report is of hangzhou, shanghai, xian"):
        proposals(read(sites.folder / "report.json"))
