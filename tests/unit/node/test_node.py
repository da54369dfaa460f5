"""What is read from the Node, and what is written on it."""

import pytest
from vc_egpu.volcano.words.annotations import NodeCards
from vc_egpu_node.api.node import (
    FIELD_MANAGER,
    facts,
    metadata_patch,
    previous_cards,
    removal_patches,
    slim,
    status_patch,
)


def node(**metadata: object) -> dict[str, object]:
    return slim(
        {
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "1", **metadata},
            "status": {
                "allocatable": {"cpu": "4", "nvidia.com/gpu": "0", "volcano.sh/vgpu-old-cores": "1"},
                "capacity": {"cpu": "4", "volcano.sh/vgpu-h20-cores": "40k"},
            },
        }
    )


def managed(*labels: str) -> list[dict[str, object]]:
    fields: dict[str, object] = {"f:metadata": {"f:labels": {f"f:{label}": {} for label in labels}}}
    return [{"manager": FIELD_MANAGER, "fieldsV1": fields}, {"manager": "kubelet", "fieldsV1": {}}]


def test_facts() -> None:
    document = node(
        labels={"egpu.volcano.sh/card-mode": "native"},
        annotations={"egpu.volcano.sh/cordoned-cards": " GPU-1, GPU-2,"},
    )
    found = facts(document)
    assert (found.mode_label, found.cordoned) == ("native", frozenset({"GPU-1", "GPU-2"}))


def test_labels_of_another_labeller_are_left_alone() -> None:
    wanted = {"nvidia.com/gpu.count": "4", "nvidia.com/gpu.present": "true", "model.egpu.volcano.sh/h20": "4"}
    document = node(
        labels={
            "nvidia.com/gpu.count": "3",
            "nvidia.com/gpu.present": "false",
            "model.egpu.volcano.sh/t4": "1",
        },
        managedFields=managed("nvidia.com/gpu.present"),
    )
    patch = metadata_patch(document, NodeCards(), wanted)
    assert patch["metadata"]["labels"] == {
        "nvidia.com/gpu.present": "true",
        "model.egpu.volcano.sh/h20": "4",
        "model.egpu.volcano.sh/t4": None,
    }


@pytest.mark.parametrize("instance", ["", "gpu."])
def test_a_label_that_node_feature_discovery_wants_as_well_is_its_own(instance: str) -> None:
    """It found the value that it would have written: the last writer is us, and its list names the label. Of
    the operator's GPU feature discovery, say, which came after us."""
    shared = {"nvidia.com/gpu.count": "3", "nvidia.com/gpu.product": "NVIDIA-H20"}
    document = node(
        labels={**shared, "nvidia.com/gpu.present": "true"},
        annotations={f"{instance}nfd.node.kubernetes.io/feature-labels": f"cpu-x,{','.join(shared)}"},
        managedFields=managed("nvidia.com/gpu.present", *shared),
    )
    assert removal_patches(document)[0] == {"metadata": {"labels": {"nvidia.com/gpu.present": None}}}
    wanted = {**shared, "nvidia.com/gpu.present": "true", "nvidia.com/gpu.count": "4"}
    assert "labels" not in metadata_patch(document, NodeCards(), wanted)["metadata"]


def test_nothing_is_written_twice() -> None:
    cards = NodeCards(agent_version="1")
    document = node(annotations={"egpu.volcano.sh/node-cards": cards.encode()}, labels={"a": "b"})
    assert metadata_patch(document, cards, {}) == {}
    assert previous_cards(document) == cards


def test_a_malformed_inventory_is_written_anew() -> None:
    assert previous_cards(node(annotations={"egpu.volcano.sh/node-cards": "{"})) is None


def test_counters_are_compared_as_numbers_and_old_ones_removed() -> None:
    patch = status_patch(node(), {"volcano.sh/vgpu-h20-cores": 40000})
    assert patch == {
        "status": {"allocatable": {"volcano.sh/vgpu-h20-cores": "40000", "volcano.sh/vgpu-old-cores": None}}
    }


def test_removal_takes_back_what_is_ours_and_nothing_else() -> None:
    document = node(
        labels={
            "nvidia.com/gpu.count": "3",
            "nvidia.com/gpu.present": "true",
            "model.egpu.volcano.sh/t4": "1",
        },
        annotations={"egpu.volcano.sh/node-cards": "{}", "egpu.volcano.sh/cordoned-cards": "GPU-1"},
        managedFields=managed("nvidia.com/gpu.present"),
    )
    patch, status = removal_patches(document)
    assert patch == {
        "metadata": {
            "annotations": {"egpu.volcano.sh/node-cards": None},
            "labels": {"nvidia.com/gpu.present": None, "model.egpu.volcano.sh/t4": None},
        }
    }
    assert status == {
        "status": {
            "capacity": {"volcano.sh/vgpu-h20-cores": None},
            "allocatable": {"volcano.sh/vgpu-old-cores": None},
        }
    }
    bare = {"metadata": {"ownedByUs": [], "labels": {}}, "status": {"capacity": {}, "allocatable": {}}}
    assert removal_patches(bare) == ({}, {})
