"""Alert rules and dashboard ask for metrics that exist."""

import json
import re
from typing import Any

import yaml
from unit.manifests.kustomize import MANIFESTS, REPOSITORY, overlay
from vc_egpu.metrics.vocabulary import ALL, node
from vc_egpu.volcano.words.annotations import NodeCards
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.vendors.base import CardReading, CardSample, NodeReading

NAME = re.compile(r"\b(?:vc_egpu|egpu|DCGM)_[A-Za-z_]+")
ENDS = ("_bucket", "_sum", "_count")
KNOWN = {family.name for family in ALL} | {
    f"{family.name}{end}" for family in ALL if family.kind == "histogram" for end in ENDS
}
"""All names of series that a process shows."""


def jobs() -> dict[str, dict[str, Any]]:
    """The scrape jobs by name."""
    found = yaml.safe_load((MANIFESTS / "monitoring/scrape.yaml").read_text())["scrape_configs"]
    return {job["job_name"]: job for job in found}


def test_rules_ask_for_metrics_that_exist() -> None:
    groups = yaml.safe_load((MANIFESTS / "monitoring/rules.yaml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        names = NAME.findall(rule["expr"])
        assert names or rule["expr"].startswith("up{"), rule["alert"]
        for name in names:
            assert name in KNOWN, f"{rule['alert']}: {name}"


def test_a_process_that_does_not_answer_raises_an_alert_that_names_pod_and_node() -> None:
    groups = yaml.safe_load((MANIFESTS / "monitoring/rules.yaml").read_text())["groups"]
    job = jobs()["vc-egpu"]
    (rule,) = [one for group in groups for one in group["rules"] if one["expr"].startswith("up{")]
    assert rule["expr"] == f'up{{job="{job["job_name"]}"}} == 0'
    given = {one["target_label"] for one in job["relabel_configs"] if "target_label" in one}
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) == given


def test_of_every_alert_the_page_for_day_two_says_what_to_do() -> None:
    groups = yaml.safe_load((MANIFESTS / "monitoring/rules.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    page = (REPOSITORY / "docs/operator-day-two.md").read_text()
    table = page.partition("\n## Alerts, and what to do\n")[2].partition("\n## ")[0]
    first_cells = "\n".join(row.partition(" | ")[0] for row in table.split("\n"))
    told = set(re.findall(r"`(VcEgpu\w+)`", first_cells))
    assert told == alerts


def test_rows_that_wait_for_a_reset_raise_an_alert_that_names_the_card() -> None:
    """Where pages are set aside the card stays well, and no other alert would tell of it."""
    card = CardReading("GPU-0", 0, "NVIDIA H100", 81559)
    samples = {"GPU-0": CardSample(row_remap_pending=1)}
    view = View("n1", Observation(NodeReading((card,)), samples=samples), NodeCards())
    families = {one.name: one for one in Metrics(lambda: view).collect()}
    (sample,) = families["DCGM_FI_DEV_ROW_REMAP_PENDING"].samples
    assert sample.value > 0
    groups = yaml.safe_load((MANIFESTS / "monitoring/rules.yaml").read_text())["groups"]
    (rule,) = [rule for group in groups for rule in group["rules"] if sample.name in rule["expr"]]
    assert rule["expr"].endswith("> 0")
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert shown == {"uuid", "node", "index"} <= set(node.CARD_HEALTHY.labels)


def test_no_rule_or_board_goes_by_a_label_that_dcgm_exporter_renamed() -> None:
    for path in sorted((MANIFESTS / "monitoring").rglob("*")):
        assert path.is_dir() or not re.search(r"\bHostname\b|\bhostname\b", path.read_text()), path


def test_cards_and_shares_are_scraped_from_the_admission_controller_only() -> None:
    for page in ("cards", "shares"):
        job = jobs()[f"vc-egpu-{page}"]
        assert job["metrics_path"] == f"/metrics/{page}"
        assert job["relabel_configs"][0]["regex"] == "vc-egpu-admission"
    assert all(job["honor_labels"] for job in jobs().values())


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    dashboard = json.loads((MANIFESTS / "monitoring/dashboard.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            names = NAME.findall(target["expr"])
            assert names, panel["title"]
            for name in names:
                assert name in KNOWN, f"{panel['title']}: {name}"


def test_pages_name_metrics_that_exist() -> None:
    pages = [*(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "device-plugin/README.md"]
    named = {name.rstrip("_") for page in pages for name in NAME.findall(page.read_text())}
    named -= {"vc_egpu", "vc_egpu_node", "DCGM_FI_DEV", "egpu_node_container"}  # packages, and beginnings
    named.discard("DCGM_FI_DRIVER_VERSION")  # a label
    assert len(named) > 40
    assert sorted(named - KNOWN) == []


def test_every_process_has_the_port_that_the_scrape_job_looks_for() -> None:
    job = jobs()["vc-egpu"]
    rules = job["relabel_configs"]
    kept = {rule["source_labels"][0]: rule["regex"] for rule in rules if rule.get("action") == "keep"}
    assert kept["__meta_kubernetes_pod_annotation_prometheus_io_scrape"] == "true"
    wanted = kept["__meta_kubernetes_pod_container_port_name"]
    found = 0
    for document in overlay("standalone"):
        if document["kind"] not in {"Deployment", "DaemonSet"}:
            continue
        template = document["spec"]["template"]
        asked = template["metadata"]["annotations"]["prometheus.io/port"]
        (container,) = template["spec"]["containers"]
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        assert ports[wanted] == asked, document["metadata"]["name"]
        found += 1
    assert found == 4


def test_pods_that_are_over_are_not_asked() -> None:
    """One that its node evicted stays for days; nobody answers there, and nothing is down."""
    job = jobs()["vc-egpu"]
    dropped = [rule for rule in job["relabel_configs"] if rule.get("action") == "drop"]
    (regex,) = (r["regex"] for r in dropped if r["source_labels"] == ["__meta_kubernetes_pod_phase"])
    over = {phase for phase in ("Pending", "Running", "Succeeded", "Failed") if re.fullmatch(regex, phase)}
    assert over == {"Succeeded", "Failed"}
