"""Every setting, metric, path and policy stands in docs/webhook.md."""

from pathlib import Path

import pytest
from vc_egpu.webhook.policies.checks import admission_policies
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.options import SettingsFile
from vc_egpu.webhook.serving.reviewer import PATHS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "webhook.md").read_text()
WORDS = [
    *(field.alias or name for name, field in SettingsFile.model_fields.items()),
    *(line.split()[2] for line in Metrics.create().text().decode().splitlines() if line.startswith("# TYPE")),
    *PATHS,
    *(document["metadata"]["name"] for document in admission_policies()),
]


@pytest.mark.parametrize("word", sorted({w for w in WORDS if not w.endswith("_created")}))
def test_it_is_documented(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_the_table_of_metrics_has_their_types() -> None:
    for family in Metrics.create().registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` | {family.type} |" in PAGE
