"""Removal: what the agent wrote on Node and host comes off, what others wrote stays."""

from pathlib import Path

from vc_egpu.volcano import names
from vc_egpu_node import removal
from vc_egpu_node.cdi import FILE_PREFIX
from vc_egpu_node.node import FIELD_MANAGER
from vc_egpu_node.plugin import SOCKET_PREFIX


def test_a_node_loses_what_the_agent_wrote_and_nothing_else() -> None:
    owned: dict[str, dict[str, object]] = {f"f:{names.NVIDIA_PRODUCT_LABEL}": {}}
    node = {
        "metadata": {
            "name": "n1",
            "labels": {
                f"{names.MODEL_LABEL_PREFIX}h20": "4",
                names.NVIDIA_PRODUCT_LABEL: "NVIDIA-H20",
                names.NVIDIA_COUNT_LABEL: "4",
                "zone": "a",
            },
            "annotations": {names.NODE_CARDS: "{}", "other": "1"},
            "managedFields": [
                {"manager": FIELD_MANAGER, "fieldsV1": {"f:metadata": {"f:labels": owned}}},
            ],
        },
        "status": {
            "capacity": {"cpu": "4", "volcano.sh/vgpu-h20-memory": "1", "volcano.sh/vgpu-h20-cores": "1"},
            "allocatable": {"cpu": "4", "volcano.sh/vgpu-h20-memory": "1"},
        },
    }
    metadata, status = removal.node_patches(node)
    assert metadata["metadata"]["annotations"] == {names.NODE_CARDS: None}
    assert metadata["metadata"]["labels"] == {
        f"{names.MODEL_LABEL_PREFIX}h20": None,
        names.NVIDIA_PRODUCT_LABEL: None,
    }
    assert status["status"] == {
        "capacity": {"volcano.sh/vgpu-h20-memory": None, "volcano.sh/vgpu-h20-cores": None},
        "allocatable": {"volcano.sh/vgpu-h20-memory": None},
    }


def test_a_clean_node_needs_no_patch() -> None:
    node = {"metadata": {"name": "n1", "labels": {"zone": "a"}}, "status": {"capacity": {"cpu": "4"}}}
    assert removal.node_patches(node) == ({}, {})


def test_the_host_loses_our_files_only(tmp_path: Path) -> None:
    cdi, kubelet, state = (tmp_path / name for name in ("cdi", "kubelet", "state"))
    for folder in (cdi, kubelet, state / "containers"):
        folder.mkdir(parents=True)
    ours = [cdi / f"{FILE_PREFIX}a.json", cdi / f".{FILE_PREFIX}b.tmp", kubelet / f"{SOCKET_PREFIX}h20.sock"]
    theirs = [cdi / "nvidia.json", kubelet / "kubelet.sock", kubelet / "kubelet_internal_checkpoint"]
    for path in (*ours, *theirs, state / "lock"):
        path.write_text("")
    assert removal.clean_host(cdi, kubelet, state) == 5
    assert all(path.exists() for path in theirs)
    assert not any(path.exists() for path in ours)
    assert list(state.iterdir()) == []
    assert removal.clean_host(cdi, kubelet, state) == 0
