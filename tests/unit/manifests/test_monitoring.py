"""Alerts, recorded names and scrape jobs ask for what exists."""

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


def groups(name: str) -> list[dict[str, Any]]:
    """The rules of one file."""
    found = yaml.safe_load((MANIFESTS / "monitoring" / name).read_text())["groups"]
    return [rule for group in found for rule in group["rules"]]


ADAPTED = {
    rule["name"]["as"]
    for rules in yaml.safe_load((MANIFESTS / "monitoring/adapter.yaml").read_text()).values()
    for rule in rules
}
"""Names that prometheus-adapter gives to what it asks for."""
RECORDED = {rule["record"] for name in ("recording.yaml", "clusters.yaml") for rule in groups(name)}


def asked_for(expression: str) -> set[str]:
    """Names of ours in an expression, recorded ones left out."""
    plain = re.sub(r"[\w]+:[\w]+:[\w]+", lambda found: "" if found[0] in RECORDED else found[0], expression)
    assert ":" not in re.sub(r'"[^"]*"', "", plain), f"a recorded name that nobody records: {plain}"
    return set(NAME.findall(plain))


def test_rules_ask_for_metrics_that_exist() -> None:
    for rule in groups("rules.yaml"):
        assert rule["annotations"]["summary"]
        assert rule["labels"]["severity"] in {"warning", "critical"}
        names = asked_for(rule["expr"])
        others = ("up{", "max by (url) (prometheus_remote_storage")
        assert names or rule["expr"].startswith(others), rule["alert"]
        assert names <= KNOWN, rule["alert"]


def test_recorded_names_ask_for_metrics_that_exist() -> None:
    for name in ("recording.yaml", "clusters.yaml", "aliases-hami.yaml", "aliases-volcano.yaml"):
        for rule in groups(name):
            assert asked_for(rule["expr"]) <= KNOWN, rule["record"]


def test_no_alert_goes_by_a_single_sample() -> None:
    """Scrapes are 15 s apart: an alert has to hold for two of them."""
    for rule in groups("rules.yaml"):
        assert rule["for"] in {"1m", "2m", "5m", "10m", "15m", "1h", "4h"}, rule["alert"]


def test_every_alert_has_a_page_with_what_to_do() -> None:
    alerts = {rule["alert"]: rule for rule in groups("rules.yaml")}
    pages = {path.stem: path.read_text() for path in (REPOSITORY / "docs/runbooks").glob("VcEgpu*.md")}
    assert pages.keys() == alerts.keys()
    for name, page in pages.items():
        assert alerts[name]["annotations"]["runbook_url"] == f"docs/runbooks/{name}.md"
        assert alerts[name]["expr"].strip() in page, f"{name}: the page has another expression"
        assert f"holds for {alerts[name]['for']}" in page, name
        assert f"Severity: {alerts[name]['labels']['severity']}" in page, name
        for heading in ("## Look at", "## Do", "## When it is over"):
            assert heading in page, name


def test_the_operator_s_monitors_scrape_as_the_plain_jobs_do() -> None:
    documents = yaml.safe_load_all((MANIFESTS / "monitoring/monitors.yaml").read_text())
    found = {}
    for document in documents:
        for endpoint in document["spec"]["podMetricsEndpoints"]:
            labels = {one["targetLabel"]: one for one in endpoint["relabelings"] if "targetLabel" in one}
            assert labels["instance"]["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
            assert endpoint["honorLabels"]
            found[labels["job"]["replacement"]] = (endpoint["path"], endpoint["interval"])
    plain = {
        name: (job.get("metrics_path", "/metrics"), job["scrape_interval"]) for name, job in jobs().items()
    }
    assert found == plain


def test_routes_name_receivers_that_exist_and_alerts_of_ours() -> None:
    routes = yaml.safe_load((MANIFESTS / "monitoring/alertmanager.yaml").read_text())
    receivers = {one["name"] for one in routes["receivers"]}
    asked = [routes["route"], *routes["route"]["routes"]]
    assert {one["receiver"] for one in asked} == receivers
    alerts = {rule["alert"] for rule in groups("rules.yaml")}
    for one in routes["inhibit_rules"]:
        for matcher in (*one["source_matchers"], *one["target_matchers"]):
            pattern = matcher.partition("~ " if "~ " in matcher else "= ")[2].strip('"')
            assert any(re.fullmatch(pattern, alert) for alert in alerts), matcher


def test_a_process_that_does_not_answer_raises_an_alert_that_names_pod_and_node() -> None:
    job = jobs()["vc-egpu"]
    (rule,) = [one for one in groups("rules.yaml") if one["expr"].startswith("up{")]
    assert rule["expr"] == f'up{{job="{job["job_name"]}"}} == 0'
    given = {one["target_label"] for one in job["relabel_configs"] if "target_label" in one}
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) == given


def test_the_page_for_day_two_leads_to_every_alert() -> None:
    page = (REPOSITORY / "docs/operator-day-two.md").read_text()
    table = page.partition("\n## Alerts, and what to do\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"\(runbooks/(VcEgpu\w+)\.md\)", table))
    assert told == {rule["alert"] for rule in groups("rules.yaml")}


def test_rows_that_wait_for_a_reset_raise_an_alert_that_names_the_card() -> None:
    """Where pages are set aside the card stays well, and no other alert would tell of it."""
    card = CardReading("GPU-0", 0, "NVIDIA H100", 81559)
    samples = {"GPU-0": CardSample(row_remap_pending=1)}
    view = View("n1", Observation(NodeReading((card,)), samples=samples), NodeCards())
    families = {one.name: one for one in Metrics(lambda: view).collect()}
    (sample,) = families["DCGM_FI_DEV_ROW_REMAP_PENDING"].samples
    assert sample.value > 0
    (rule,) = [rule for rule in groups("rules.yaml") if sample.name in rule["expr"]]
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


def test_pages_name_metrics_that_exist() -> None:
    pages = [*(REPOSITORY / "docs").rglob("*.md"), REPOSITORY / "device-plugin/README.md"]
    plain = [re.sub(r"\w+:\w+:\w+", "", page.read_text()) for page in pages]  # without recorded names
    named = {name.rstrip("_") for page in plain for name in NAME.findall(page)}
    named -= {"vc_egpu", "vc_egpu_node", "DCGM_FI_DEV", "egpu_node_container"}  # packages, and beginnings
    named -= {"DCGM_FI_DRIVER_VERSION", *ADAPTED}  # a label, and names of an adapter
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
