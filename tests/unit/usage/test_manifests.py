"""The CronJob of the report: flags and prices that the command takes, and a pod without rights."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from vc_egpu.usage.flags import parser
from vc_egpu.usage.reports.prices import parse

FOLDER = Path(__file__).parents[3] / "manifests/usage-report"
DOCS = Path(__file__).parents[3] / "docs/usage-reports.md"


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {
        document["kind"]: document for document in yaml.safe_load_all((FOLDER / "report.yaml").read_text())
    }


def test_the_command_takes_the_flags(objects: dict[str, Any]) -> None:
    pod = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    process, *flags = container["args"]
    assert process == "report"
    options = parser().parse_args(flags)
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    for path in (options.store, options.output, options.prices, "/tmp/x"):
        assert any(path.startswith(f"{mount}/") for mount in mounts), path


def test_the_pod_may_nothing_and_reaches_prometheus(objects: dict[str, Any]) -> None:
    template = objects["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
    pod = template["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    policy = objects["NetworkPolicy"]["spec"]
    assert policy["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    port = parser().parse_args(container["args"][1:]).prometheus.rpartition(":")[2]
    assert policy["egress"] == [{"ports": [{"protocol": "TCP", "port": int(port)}]}]


def test_prices_can_be_read() -> None:
    assert parse(yaml.safe_load((FOLDER / "prices.yaml").read_text())).currency == "USD"


def test_the_prices_that_the_page_shows_can_be_read() -> None:
    shown = DOCS.read_text().partition("## Prices")[2].partition("```yaml\n")[2].partition("```")[0]
    prices = parse(yaml.safe_load(shown))
    assert (prices.currency, prices.billing("spot-1"), prices.rate("h20", "low")) == ("EUR", "spot", 0.5)


def test_every_flag_is_in_the_page() -> None:
    text = DOCS.read_text()
    flags = set(re.findall(r"--[a-z][a-z-]+", parser().format_help())) - {"--help"}
    assert len(flags) > 15
    assert sorted(flag for flag in flags if flag not in text) == []
