"""Nodes without a cluster, and cards without hardware."""

import ctypes
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from contract.node.collecting import Cgroups
from contract.node.fake_kubelet import FakeKubelet
from contract.node.node_world import PodBook, World
from fakes.nvml_state import FakeNode
from vc_egpu.volcano.words.annotations import NodeCard, NodeCards
from vc_egpu_node.containers.identity import Stock
from vc_egpu_node.vendors.base import CardReading

NATIVE = Path(__file__).resolve().parents[3] / "device-plugin" / "native"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    folder = tmp_path / "dp"
    folder.mkdir()
    kubelet = FakeKubelet(folder)
    kubelet.start()
    cards = tuple(
        NodeCard(uuid=f"GPU-{n}", index=n, model="h20", product="NVIDIA H20", memory_mib=98304)
        for n in range(4)
    )
    readings = {
        card.uuid: CardReading(
            card.uuid, card.index, card.product, card.memory_mib, numbers={"minor": card.index}
        )
        for card in cards
    }
    stock = Stock(NodeCards(cards=cards), {"h20": 98304}, readings, ready=True)
    world = World(kubelet, PodBook(), stock, tmp_path)
    yield world
    world.close()
    kubelet.stop()


@pytest.fixture(scope="session")
def fake_nvml() -> None:
    """The fake library, loaded before pynvml asks the loader for its name."""
    subprocess.run(["make", "-s", "-C", str(NATIVE), "native"], check=True)
    ctypes.CDLL(str(NATIVE / "build" / "libnvidia-ml.so.1"))


@pytest.fixture
def nvml_node(fake_nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], FakeNode]:
    """Makes a node with so many H20; a later one takes its place."""

    def make(count: int) -> FakeNode:
        node = FakeNode.of_h20(tmp_path / "nvml.state", count)
        node.write()
        return node

    monkeypatch.setitem(os.environ, "FAKE_NVML_STATE", str(tmp_path / "nvml.state"))
    return make


@pytest.fixture
def cgroups() -> Cgroups:
    return Cgroups()
