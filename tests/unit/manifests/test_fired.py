"""docs/alerts.md tells of each alert: by which fault it was fired, or why it was not."""

import yaml
from rigs.faults import NOT_MADE, WAVES
from unit.manifests.kustomize import MANIFESTS, REPOSITORY

PAGE = REPOSITORY / "docs" / "alerts.md"


def rows(columns: int) -> dict[str, list[str]]:
    """Rows of tables that are so wide, by their first cell."""
    lines = [
        line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")
    ]
    return {line[0].strip("`"): line[1:] for line in lines if len(line) == columns}


def test_each_alert_has_a_fault_or_the_reason_why_not() -> None:
    groups = yaml.safe_load((MANIFESTS / "monitoring/rules.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    made = {fault.alert for wave in WAVES.values() for fault in wave}
    assert made | NOT_MADE.keys() == alerts
    assert not made & NOT_MADE.keys()


def test_the_page_is_that_of_the_faults() -> None:
    """``VC_EGPU_ALERTS=<file>`` of e2e/test_alerts.py writes its table anew."""
    faults = {fault.alert: fault.what for wave in WAVES.values() for fault in wave}
    told = rows(4)
    assert {alert: cells[0] for alert, cells in told.items()} == faults
    assert all(cell.isdecimal() for cells in told.values() for cell in cells[1:])
    assert rows(2) == {alert: [why] for alert, why in NOT_MADE.items()}
