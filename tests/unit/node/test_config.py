"""Settings: what is wrong is named."""

from pathlib import Path

import pytest
from vc_egpu.volcano.words.node_policy import Policy, PolicyError, parse_policy
from vc_egpu_node.settings.config import parse_flags


def test_a_node_overrides_the_defaults() -> None:
    text = "defaults: {slotsPerCard: 10, coreRatio: 1.2}\nnodes: {a: {coreRatio: 2}}\n"
    assert parse_policy(text, "a") == Policy(slots_per_card=10, core_ratio=2.0)
    assert parse_policy(text, "b") == Policy(slots_per_card=10, core_ratio=1.2)
    assert parse_policy("", "b") == Policy()
    assert parse_policy("defaults: {coreRatio: 1.5, ratioClass: low}", "a").ratio_class == "low"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("defaults: {slotsPerCard: 0}", "slotsPerCard"),
        ("defaults: {memoryRatio: 10.5}", "memoryRatio"),
        ("defaults: {hostMemoryMiB: -1}", "hostMemoryMiB"),
        ("defaults: {coreRatio: .nan}", "coreRatio"),
        ("defaults: {ratioClass: unset}", "ratioClass"),
        ("defaults: {coreRatio: 0.5, ratioClass: low}", "ratioClass low.*coreRatio is 0.5"),
        ("nodes: {n: {slotPerCard: 3}}", "slotPerCard"),
        ("- 1", "got"),
        ("a: [", "not YAML"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(PolicyError, match=named):
        parse_policy(text, "n")


def test_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "gpu-1")
    settings = parse_flags(["--models", "m.yaml", "--toolkit-spec", "a.yaml", "--toolkit-spec", "b.yaml"])
    assert settings.node_name == "gpu-1"
    assert settings.toolkit_specs == (Path("a.yaml"), Path("b.yaml"))
    assert settings.cdi_dir == Path("/var/run/cdi")
