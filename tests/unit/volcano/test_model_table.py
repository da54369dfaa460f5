"""The operator's table of models: whatever stands in the file, what is wrong is said in words."""

import pytest
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [", "not YAML"),
        ("models: 2024-13-45", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("models: [{name: h20, memoryMiB: much}]", "models.0.memoryMiB"),
        ("models: [{name: h20, memoryMiB: 1}, {name: h20, memoryMiB: 1}]", "'h20' stands in the table twice"),
        ("- a", "model table"),
    ],
)
def test_what_is_no_table_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ModelTableError, match="model table") as refused:
        ModelTable.from_yaml(text)
    assert words in str(refused.value)


def test_an_empty_file_is_an_empty_table() -> None:
    assert ModelTable.from_yaml("").models == ()
