"""Each alert has a story (alerts.yaml) in which it fires, and one in which it does not; promtool judges."""

import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from localcluster import toolchain
from localcluster.errors import LocalClusterError
from unit.manifests.kustomize import MANIFESTS

STORIES: Final = Path(__file__).with_name("alerts.yaml")
RECORDING: Final = Path(__file__).with_name("recording.yaml")
CLUSTERS: Final = Path(__file__).with_name("clusters.yaml")


def _checks() -> list[dict[str, Any]]:
    stories = yaml.safe_load(STORIES.read_text())["tests"]
    return [check for story in stories for check in story["alert_rule_test"]]


def test_every_alert_fires_in_a_story_and_is_silent_in_one() -> None:
    groups = yaml.safe_load((MANIFESTS / "monitoring/rules.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    assert {check["alertname"] for check in _checks() if check["exp_alerts"]} == alerts
    assert {check["alertname"] for check in _checks() if not check["exp_alerts"]} == alerts


@pytest.fixture(scope="module")
def promtool() -> Path:
    try:
        return toolchain.program("promtool")
    except LocalClusterError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("stories", [STORIES, RECORDING, CLUSTERS], ids=lambda path: path.stem)
def test_the_stories_happen_as_they_are_told(promtool: Path, stories: Path) -> None:
    run = subprocess.run(
        [promtool, "test", "rules", stories], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_prometheus_takes_rules_and_scrape_job(promtool: Path, tmp_path: Path) -> None:
    """The scrape job with a token that exists: Prometheus looks for it."""
    (tmp_path / "token").touch()
    job = (MANIFESTS / "monitoring/scrape.yaml").read_text()
    job = job.replace("/var/run/secrets/kubernetes.io/serviceaccount/token", str(tmp_path / "token"))
    files = ("rules", "recording", "clusters", "aliases-hami", "aliases-volcano")
    rules = ", ".join(f"{MANIFESTS}/monitoring/{name}.yaml" for name in files)
    (tmp_path / "prometheus.yml").write_text(f"rule_files: [{rules}]\n{job}")
    done = subprocess.run(
        [promtool, "check", "config", "--lint=all", "--lint-fatal", tmp_path / "prometheus.yml"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
