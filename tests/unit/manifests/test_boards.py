"""Boards: code and files agree, Grafana's own schema takes them, and every query asks for what there is."""

import json
import re
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from boards.every import BOARDS, texts
from boards.panels import Kind, Unit
from unit.manifests.kustomize import MANIFESTS
from unit.manifests.test_alerts import promtool
from unit.manifests.test_monitoring import KNOWN, asked_for

FOLDER = MANIFESTS / "monitoring/boards"
FILLED = {"queue": "team-a", "node": "n1", "uuid": "GPU-0", "namespace": "team-a", "gang": "train"}

__all__ = ["promtool"]


def boards() -> dict[str, dict[str, Any]]:
    return {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def expressions() -> list[tuple[str, str]]:
    """(panel, expression with each variable filled in) of all boards."""
    return [
        (f"{board.uid}: {panel.title}", filled(query.expression))
        for board in BOARDS
        for panel in board.panels
        for query in panel.queries
    ]


def filled(expression: str) -> str:
    return re.sub(r"\$(\w+)", lambda found: FILLED[found[1]], expression)


def test_the_files_are_what_the_code_says() -> None:
    found = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert found == texts(), "make boards"


def test_every_query_asks_for_metrics_that_exist() -> None:
    for title, expression in expressions():
        names = asked_for(expression)
        assert names or re.search(r"\w+:\w+:\w+", expression), title
        assert names <= KNOWN, title


def test_prometheus_can_read_every_query(promtool: Path, tmp_path: Path) -> None:
    rules = [{"record": f"x:{number}", "expr": text} for number, (_, text) in enumerate(expressions())]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "boards", "rules": rules}]}))
    run = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", sorted(texts()))
def test_the_layout_has_no_overlap_and_each_panel_says_what_it_means(name: str) -> None:
    board = boards()[name]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in get_args(Kind)
        assert panel["fieldConfig"]["defaults"]["unit"] in get_args(Unit)
        assert panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@pytest.mark.parametrize("name", sorted(texts()))
def test_each_variable_is_used_and_each_use_has_a_variable(name: str) -> None:
    board = boards()[name]
    known = {one["name"] for one in board["templating"]["list"]} - {"datasource"}
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    queries += [one["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    assert set(re.findall(r"\$(\w+)", " ".join(queries))) <= known
    assert all(any(f"${one}" in text for text in queries) for one in known)


def test_no_query_returns_a_series_for_each_card_or_share_of_the_cluster() -> None:
    """At 5,000 nodes that is 40 MB. A query sums, takes the top, or is about one card, queue or gang."""
    for title, expression in expressions():
        bounded = re.search(
            r"\btopk\(|\b(sum|max|avg|count|min)\b|(uuid|queue|gang)=\"|model:|max\(", expression
        )
        assert bounded, title


@pytest.mark.parametrize("name", sorted(texts()))
def test_grafana_s_own_schema_loses_nothing(name: str) -> None:
    dashboard = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    pytest.importorskip("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    given = boards()[name]
    read = json.loads(encoder.JSONEncoder().encode(dashboard.Dashboard.from_json(given)))
    lost = list(_lost(given, read, ""))
    assert lost == []


def _lost(given: Any, read: Any, path: str) -> list[str]:
    if isinstance(given, dict):
        found = []
        for key, value in given.items():
            if key not in read:
                found += [f"{path}.{key}"] if value not in (None, {}, [], "", False) else []
            else:
                found += _lost(value, read[key], f"{path}.{key}")
        return found
    if isinstance(given, list):
        return [
            one for index, value in enumerate(given) for one in _lost(value, read[index], f"{path}[{index}]")
        ]
    return [] if given == read else [f"{path}: {given!r} became {read!r}"]
