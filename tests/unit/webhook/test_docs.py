"""Every setting, path and policy stands in docs/webhook.md."""

from pathlib import Path

import pytest
from vc_egpu.webhook.policies.checks import admission_policies
from vc_egpu.webhook.serving.options import SettingsFile
from vc_egpu.webhook.serving.reviewer import PATHS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "webhook.md").read_text()
WORDS = [
    *(field.alias or name for name, field in SettingsFile.model_fields.items()),
    *PATHS,
    *(document["metadata"]["name"] for document in admission_policies()),
]


@pytest.mark.parametrize("word", sorted(WORDS))
def test_it_is_documented(word: str) -> None:
    assert f"`{word}`" in PAGE
