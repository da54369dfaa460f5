"""Settings: what is wrong is named."""

from pathlib import Path

import pytest
from vc_egpu.volcano.words.node_policy import Policy, PolicyError, check_policy, parse_policy
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


POOLS = """
defaults: {coreRatio: 2.0, isolation: library}
pools:
  - {name: a100, labels: {pool: a100}, settings: {isolation: driver, slotsPerCard: 10}}
  - {name: trial, labels: {pool: a100, trial: "yes"}, settings: {isolation: none}}
nodes: {b: {slotsPerCard: 20}}
"""


def test_pools_choose_by_labels_between_defaults_and_nodes() -> None:
    def chosen(node: str, **labels: str) -> tuple[str, int, float]:
        policy = parse_policy(POOLS, node, labels)
        return policy.isolation, policy.slots_per_card, policy.core_ratio

    assert chosen("a") == ("library", 100, 2.0)
    assert chosen("a", pool="a100") == ("driver", 10, 2.0)
    assert chosen("a", pool="a100", trial="yes") == ("none", 10, 2.0), "of several the last"
    assert chosen("a", pool="h20", trial="yes") == ("library", 100, 2.0), "all labels of a pool"
    assert chosen("b", pool="a100") == ("driver", 20, 2.0), "a node's own come last"
    check_policy(POOLS)


def test_a_node_of_unknown_labels_goes_by_no_file_with_pools() -> None:
    with pytest.raises(PolicyError, match="labels of this node are not known"):
        parse_policy(POOLS, "a")
    assert parse_policy("defaults: {slotsPerCard: 3}", "a").slots_per_card == 3


@pytest.mark.parametrize(
    "pool",
    [
        "{name: a, labels: {}, settings: {}}",
        "{name: a, settings: {}}",
        "{name: '', labels: {a: b}, settings: {}}",
        "{name: a, labels: {a: b}, settings: {}, isolation: none}",
        "{name: a, labels: {a: b}, settings: {isolation: mps}}",
        "{name: a, labels: {a: 7}, settings: {}}",
    ],
)
def test_pools_that_mean_nothing_are_refused(pool: str) -> None:
    with pytest.raises(PolicyError):
        check_policy(f"pools: [{pool}]")
