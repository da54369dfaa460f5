"""The rules for prometheus-adapter ask for what exists, and promtool answers what an HPA needs."""

import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from localcluster import toolchain
from localcluster.errors import LocalClusterError
from unit.manifests.kustomize import MANIFESTS, REPOSITORY
from unit.manifests.test_monitoring import KNOWN, asked_for

Json = dict[str, Any]
RULES: Final[Json] = yaml.safe_load((MANIFESTS / "monitoring/adapter.yaml").read_text())
PODS: Final = 'namespace="t",pod=~"a|b|c"'
"""As the adapter fills in for an HPA of three pods."""


def rules() -> dict[str, Json]:
    return {rule["name"]["as"]: rule for rule in (*RULES["rules"], *RULES["externalRules"])}


def query(name: str, matchers: str) -> str:
    """What Prometheus is asked: the adapter's template with its words filled in."""
    words = {
        "Series": rules()[name]["seriesQuery"].partition("{")[0],
        "LabelMatchers": matchers,
        "GroupBy": "pod",
    }
    found = re.sub(r"<<\.(\w+)>>", lambda word: words[word[1]], rules()[name]["metricsQuery"])
    assert "<<" not in found
    return found


def test_they_ask_for_metrics_that_exist() -> None:
    for name, rule in rules().items():
        for expression in (rule["seriesQuery"], query(name, "")):
            assert asked_for(expression) <= KNOWN, name


def test_pods_are_asked_about_by_namespace_and_pod_and_no_name_of_ours_is_taken() -> None:
    for rule in RULES["rules"]:
        kinds = {label: one["resource"] for label, one in rule["resources"]["overrides"].items()}
        assert kinds == {"namespace": "namespace", "pod": "pod"}
        assert rule["name"]["as"] not in KNOWN
    for rule in RULES["externalRules"]:
        assert rule["resources"] == {"namespaced": False}, "queues and models are in no namespace"


def test_the_page_shows_an_autoscaler_by_each_of_them() -> None:
    page = (REPOSITORY / "docs/operator-with-other-plugins.md").read_text()
    assert all(f"`{name}`" in page for name in rules())
    shown = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(kind: Horiz.*?)```", page, re.DOTALL)]
    asked = {
        (metric.get("pods") or metric.get("external"))["metric"]["name"]
        for one in shown
        for metric in one["spec"]["metrics"]
    }
    assert asked
    assert asked <= rules().keys()


SERIES: Final = {
    'egpu_node_container_compute_used_seconds_total{namespace="t",pod="a",container="m",uuid="G"}': "0+15x10",
    'egpu_node_container_compute_used_seconds_total{namespace="t",pod="b",container="m",uuid="G"}': "0+3x10",
    'egpu_node_container_compute_used_seconds_total{namespace="t",pod="c",container="m",uuid="G"}': "0+3x10",
    'egpu_node_container_compute_used_seconds_total{namespace="u",pod="a",container="m",uuid="G"}': "0+60x10",
    'egpu_node_container_cores_granted_ratio{namespace="t",pod="a",container="m",uuid="G"}': "0.25x10",
    'egpu_node_container_cores_granted_ratio{namespace="t",pod="b",container="m",uuid="G"}': "0.25x10",
    'egpu_node_container_cores_granted_ratio{namespace="t",pod="c",container="m",uuid="G"}': "0x10",
    'egpu_node_container_memory_used_bytes{namespace="t",pod="a",container="m",uuid="G"}': "300x10",
    'egpu_node_container_memory_granted_bytes{namespace="t",pod="a",container="m",uuid="G"}': "400x10",
    'queue:egpu_waiting_gangs:sum{queue="q"}': "3x10",
    'queue:egpu_waiting_gangs:sum{queue="other"}': "9x10",
}  # fmt: skip
ANSWERS: Final = (
    # A quarter of a card, and 15 s of each minute: it computes all the time that it may.
    ("egpu_pod_compute_used_of_share", PODS, {'{pod="a"}': 1.0, '{pod="b"}': 0.2}),
    ("egpu_pod_memory_used_of_share", PODS, {'{pod="a"}': 0.75}),
    ("egpu_queue_waiting_gangs", 'queue="q"', {'{queue="q"}': 3.0}),
)


def test_an_autoscaler_reads_what_each_pod_makes_of_its_own_share(tmp_path: Path) -> None:
    """A pod that named no cores has no such figure, and neighbours of other namespaces do not count."""
    try:
        promtool = toolchain.program("promtool")
    except LocalClusterError as error:
        pytest.skip(str(error))
    asked = [
        {
            "expr": query(name, matchers),
            "eval_time": "8m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in wanted.items()],
        }
        for name, matchers, wanted in ANSWERS
    ]
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    story = {"interval": "1m", "input_series": series, "promql_expr_test": asked}
    (tmp_path / "story.yaml").write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [story]}))
    run = subprocess.run(
        [promtool, "test", "rules", tmp_path / "story.yaml"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
