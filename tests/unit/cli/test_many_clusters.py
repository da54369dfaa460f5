"""One question to many clusters: one table, one document, and what is missing is said."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.cli import documents as docs
from unit.kube.tiny_api import TinyApi, status, tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.sites import last_answers
from vc_egpu.cli.sites.catalogue import CatalogueError, Site, of_file
from vc_egpu.cli.sites.fan_out import ask
from vc_egpu.cli.sites.overview import ModelRow, Overview, sums
from vc_egpu.cli.views.table import Table

NODES = "/api/v1/nodes/"


class Clusters:
    """Some API servers, and the files that lead to them."""

    def __init__(self, folder: Path, servers: dict[str, TinyApi]) -> None:
        self.folder = folder
        self.servers = servers
        sites = []
        for name, server in servers.items():
            (folder / name).mkdir()
            server.kubeconfig(folder / name)
            sites.append({"name": name, "city": name.title(), "kubeconfig": f"{name}/kubeconfig"})
        self.file = folder / "clusters.yaml"
        self.file.write_text(yaml.safe_dump({"clusters": sites}))

    def run(self, *words: str) -> int:
        return kubectl.main([*words, "--clusters", str(self.file)])


@pytest.fixture
def clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clusters]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with ExitStack() as stack:
        servers = {name: stack.enter_context(tiny_api()) for name in ("hangzhou", "shanghai", "xian")}
        for number, server in enumerate(servers.values(), 1):
            cards = [docs.card(f"GPU-{i}", i) for i in range(number)]
            server.put(f"{NODES}n1", docs.node("n1", *cards))
        yield Clusters(tmp_path, servers)


def test_all_clusters_make_one_table(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    assert clusters.run("cards") == exit_status.EXIT_OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["CLUSTER", "NODE", "CARD"]
    assert [line.split()[0] for line in lines[1:7]] == [
        "hangzhou", "shanghai", "shanghai", "xian", "xian", "xian",
    ]  # fmt: skip
    assert sum(line.startswith("CLUSTER") for line in lines) == 1


def test_programs_get_each_answer_with_its_cluster(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clusters.run("cards", "-o", "json") == exit_status.EXIT_OK
    told = json.loads(capsys.readouterr().out)
    assert (told["asked"], told["answered"], told["unreachable"]) == (3, 3, [])
    assert [(one["cluster"], len(one["answer"]["cards"])) for one in told["clusters"]] == [
        ("hangzhou", 1), ("shanghai", 2), ("xian", 3),
    ]  # fmt: skip
    assert clusters.run("cards", "-o", "name") == exit_status.EXIT_OK
    assert capsys.readouterr().out.splitlines()[:2] == ["hangzhou/GPU-0", "shanghai/GPU-0"]


def test_what_is_missing_is_said_and_the_rest_is_right(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    """One hangs, one does not know the user; the third is shown within the time for one."""
    clusters.run("cards")
    capsys.readouterr()
    clusters.servers["hangzhou"].answers.clear()
    clusters.servers["shanghai"].refuses = lambda *_: (401, status(401, "Unauthorized"))
    assert clusters.run("cards", "--cluster-timeout", "1") == exit_status.EXIT_NO_CLUSTER
    out = capsys.readouterr().out
    assert out.count("GPU-") == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["xian"] * 3
    assert "shanghai is missing: the cluster does not accept who you are" in out
    assert "hangzhou is missing: " in out
    assert "it answered last at 20" in out
    assert "this is of 1 of 3 clusters" in out
    clusters.servers["hangzhou"].answers.set()


def test_a_cluster_that_is_gone_is_a_row_with_its_reason(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    (clusters.folder / "xian" / "kubeconfig").unlink()
    assert clusters.run("queues", "-o", "json") == exit_status.EXIT_NO_CLUSTER
    told = json.loads(capsys.readouterr().out)
    (silent,) = told["unreachable"]
    assert silent["cluster"] == "xian"
    assert silent["city"] == "Xian"
    assert silent["answered_last"] == ""
    assert "configuration" in silent["reason"]


def test_clusters_shows_each_in_a_line_and_adds_up_by_model(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    assert clusters.run("clusters") == exit_status.EXIT_OK
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["CLUSTER", "CITY", "MODEL", "CARDS", "CLOSED", "USED", "GiB", "OF", "GiB", "WAITING"]
    assert rows[3] == ["xian", "Xian", "h20", "3", "0", "0", "288", "0"]
    assert "3 of 3 clusters have 6 h20 (0 closed, 0% of memory used)" in out


def test_different_models_are_never_added_up() -> None:
    one = Overview((ModelRow("h20", 8, 1, 1024, 4096), ModelRow("t4", 2, 0, 0, 100)), 3, ())
    two = Overview((ModelRow("h20", 8, 0, 3072, 4096), ModelRow("", 0, 0, 0, 0)), None, ())
    text = str(sums([one, two], 2, 3))
    assert (
        text
        == "2 of 3 clusters have 16 h20 (1 closed, 50% of memory used), 2 t4 (0 closed, 0% of memory used)"
    )


def test_a_job_is_shown_where_it_is_and_refused_where_it_is_nowhere(
    clusters: Clusters, capsys: pytest.CaptureFixture[str]
) -> None:
    said = docs.verdict("WaitingForCards", "no card is free")
    clusters.servers["shanghai"].put(
        "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups/g",
        docs.group("g", "research", job="chat", said=said),
    )
    assert clusters.run("why", "chat", "-n", "ml") == exit_status.EXIT_OK
    out = capsys.readouterr().out
    assert out.startswith("shanghai:\nchat: WaitingForCards")
    assert "xian: " in out
    assert clusters.run("why", "chit", "-n", "ml") == exit_status.EXIT_FOUND
    assert "chit" in capsys.readouterr().err


def test_all_contexts_are_asked(
    clusters: Clusters, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [],
        "users": [],
        "contexts": [],
    }
    for name, server in clusters.servers.items():
        whole["clusters"].append({"name": name, "cluster": {"server": server.url}})
        whole["users"].append({"name": name, "user": {"token": "t"}})
        whole["contexts"].append({"name": f"admin@{name}", "context": {"cluster": name, "user": name}})
    file = tmp_path / "whole"
    file.write_text(yaml.safe_dump(whole))
    assert kubectl.main(["cards", "--kubeconfig", str(file), "--all-contexts"]) == exit_status.EXIT_OK
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]}
    assert shown == {"admin@hangzhou", "admin@shanghai", "admin@xian"}


def test_rows_are_ordered_in_each_cluster(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    assert clusters.run("cards", "--sort-by", "index:desc", "-o", "json") == exit_status.EXIT_OK
    told = json.loads(capsys.readouterr().out)["clusters"]
    assert [[card["index"] for card in one["answer"]["cards"]] for one in told] == [[0], [1, 0], [2, 1, 0]]
    assert clusters.run("cards", "--sort-by", "nothing") == exit_status.EXIT_FOUND
    assert "there is no 'nothing' to sort by" in capsys.readouterr().err


# --- the time that each has -------------------------------------------------------------------------


def test_a_cluster_that_hangs_holds_nothing_up() -> None:
    hangs = threading.Event()
    sites = [Site(name="a"), Site(name="b"), Site(name="c")]

    def question(site: Site) -> str:
        if site.name == "b":
            hangs.wait(60)
        if site.name == "c":
            raise ValueError("broken")
        return site.name.upper()

    try:
        heard = ask(sites, question, within_s=0.5)
    finally:
        hangs.set()
    assert [(one.site.name, one.answer, str(one.error)) for one in heard] == [
        ("a", "A", "None"), ("b", None, "None"), ("c", None, "broken"),
    ]  # fmt: skip


def test_all_are_asked_at_the_same_time() -> None:
    together = threading.Barrier(20, timeout=30)
    heard = ask([Site(name=f"c{i}") for i in range(20)], lambda _: together.wait(), within_s=30)
    assert sorted(one.answer for one in heard if one.answer is not None) == list(range(20))


# --- the file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("clusters: []", "clusters"),
        ("", "clusters"),
        ("clusters: [{name: a}, {name: a}]", "'a' stands there twice"),
        ("clusters: [{name: 'a b'}]", "clusters.0.name"),
        ("clusters: [{name: a, contex: b}]", "clusters.0.contex"),
        ("clusters: [{name: a}]\nlinks: [{between: [a, b], mbitPerS: 1}]", "'b', which is not in the file"),
        ("clusters: [{name: a}]\nlinks: [{between: [a, a], mbitPerS: 1}]", "'a' to itself"),
        ("clusters: [{name: a}]\nlinks: [{between: [a], mbitPerS: 1}]", "links.0.between"),
        ("clusters: [", "is not YAML"),
    ],
)
def test_a_bad_file_names_the_field(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(CatalogueError) as refused:
        of_file(str(tmp_path / "f"))
    assert says in str(refused.value)


def test_links_are_the_same_both_ways(tmp_path: Path) -> None:
    (tmp_path / "f").write_text(
        "clusters: [{name: a}, {name: b}, {name: c}]\nlinks: [{between: [a, b], mbitPerS: 40000}]"
    )
    found = of_file(str(tmp_path / "f"))
    assert found.mbit_per_s("b", "a") == found.mbit_per_s("a", "b") == 40000
    assert found.mbit_per_s("a", "c") is None


def test_no_file_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert kubectl.main(["cards", "--clusters", "/none/clusters.yaml"]) == exit_status.EXIT_FOUND
    assert "/none/clusters.yaml cannot be read: No such file" in capsys.readouterr().err
    assert kubectl.main(["cards", "--clusters", ""]) == exit_status.EXIT_FOUND
    assert "VC_EGPU_CLUSTERS" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", '{"a": "x"}', '{"a": null}', "{" * 9999])
def test_a_damaged_memory_of_answers_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / last_answers.FILE).write_text(text)
    assert last_answers.read(tmp_path) == {}
    last_answers.keep(tmp_path, ["a"], 1_800_000_000.0)
    assert last_answers.since(last_answers.read(tmp_path), "a") == "2027-01-15T08:00:00Z"


def test_tables_of_other_columns_are_not_mixed() -> None:
    first, second = Table("A"), Table("A")
    first.add_row("1")
    second.add_row("2")
    joined = Table.joined("C", [("x", first), ("y", second)])
    assert joined.columns == ("C", "A")
