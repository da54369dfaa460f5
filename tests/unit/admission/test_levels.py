"""Levels of the network, from labels of nodes and PodGroups into the decision."""

import pytest
from unit.admission.build import TABLE
from vc_egpu.admission import settings
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.model.cluster import NodeName
from vc_egpu.volcano.codec import cluster_codec

LEVELS = ("rack", "topology.example.com/block", "zone")


@pytest.mark.parametrize(
    ("labels", "domains"),
    [
        (
            {"rack": "r1", "topology.example.com/block": "b1", "zone": "z"},
            ("zone z, block b1, rack r1", "zone z, block b1", "zone z"),
        ),
        ({"rack": "r1", "zone": "z"}, ("zone z, rack r1", "", "zone z")),
        ({"zone": "z"}, ("", "", "zone z")),
        ({"rack": ""}, ()),
        ({}, ()),
    ],
)
def test_labels_name_the_domains_of_a_node(labels: dict[str, str], domains: tuple[str, ...]) -> None:
    assert cluster_codec.domains_in(labels, LEVELS) == domains


@pytest.mark.parametrize(
    ("topology", "tier"),
    [
        ({"mode": "hard", "highestTierAllowed": 2}, 2),
        ({"highestTierAllowed": 1}, 1),
        ({"highestTierAllowed": 0}, 1),
        ({"mode": "soft", "highestTierAllowed": 1}, None),
        ({"mode": "hard"}, None),
        ({"mode": "hard", "highestTierAllowed": "1"}, None),
        ("hard", None),
        (None, None),
    ],
)
def test_a_must_has_a_mode_and_a_tier(topology: object, tier: int | None) -> None:
    group = {
        "metadata": {"name": "g", "namespace": "ml", "uid": "u", "resourceVersion": "1"},
        "spec": {"minMember": 2, "networkTopology": topology},
    }
    assert cluster_codec.group(group).gang.highest_tier == tier


def test_a_node_that_changes_its_rack_is_seen() -> None:
    mirror = Mirror(TABLE, ("rack",))
    for rack in ("r1", "r2"):
        mirror.inventory.put({"metadata": {"name": "n1", "labels": {"rack": rack}}, "status": {}})
        assert mirror.nodes[NodeName("n1")].domains == (f"rack {rack}",)


def test_levels_are_a_flag() -> None:
    assert settings.parse([]).network_levels == ()
    assert settings.parse(["--network-levels", "rack, block,zone"]).network_levels == (
        "rack",
        "block",
        "zone",
    )


@pytest.mark.parametrize("text", ["rack,rack", "a rack", "x" * 400])
def test_what_is_no_list_of_labels_is_refused(text: str) -> None:
    with pytest.raises(SystemExit):
        settings.parse(["--network-levels", text])
