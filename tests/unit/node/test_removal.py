"""Removal: what the agent wrote on Node and host comes off, what others wrote and what runs stays."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.kube.tiny_api import TinyApi, tiny_api
from unit.node.built import ELF
from unit.node.granted import grant
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire.errors import NotFound
from vc_egpu.volcano.words import names
from vc_egpu_node import removal
from vc_egpu_node.api.node import FIELD_MANAGER
from vc_egpu_node.containers.allocations import AllocationStore
from vc_egpu_node.containers.cdi import FILE_PREFIX, GrantFolder
from vc_egpu_node.deviceplugin.plugin import SOCKET_PREFIX
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.pages import ACTIVITY, USAGE, SharedPages
from vc_egpu_node.settings.config import Settings
from vc_egpu_node.vendors.base import Edits
from vc_egpu_node.vendors.nvidia.preload import LIBRARY_NAME, install

MANIFESTS = Path(__file__).resolve().parents[3] / "manifests"
NODE_PATH = "/api/v1/nodes/n1"
Run = Callable[[Settings, TinyApi, Path], None]


def flags(settings: Settings, api: TinyApi, folder: Path) -> list[str]:
    return [
        f"--node-name={settings.node_name}",
        f"--kubeconfig={api.kubeconfig(folder)}",
        f"--cdi-dir={settings.cdi_dir}",
        f"--kubelet-dir={settings.kubelet_dir}",
        f"--state-dir={settings.state_dir}",
        f"--run-dir={settings.run_dir}",
    ]


def node_clean(settings: Settings, api: TinyApi, folder: Path) -> None:
    """``vc-egpu node-clean``."""
    assert removal.main(flags(settings, api, folder)) == 0


def action(settings: Settings, api: TinyApi, folder: Path) -> None:
    """The agent's ``--action=remove``."""
    removal.remove(settings, ApiConnection.connect(api.kubeconfig(folder)), force=False)


both_ways = pytest.mark.parametrize("run", [node_clean, action])


@pytest.fixture
def api() -> Iterator[TinyApi]:
    with tiny_api() as server:
        server.put(NODE_PATH, node())
        yield server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A node on which an agent ran that let one container in."""
    host = Settings(
        node_name="n1",
        cdi_dir=tmp_path / "cdi",
        kubelet_dir=tmp_path / "kubelet",
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
    )
    for folder in (host.cdi_dir, host.kubelet_dir, host.state_dir):
        folder.mkdir()
    (tmp_path / LIBRARY_NAME).write_bytes(ELF)
    isolation = Isolation(
        install(tmp_path / LIBRARY_NAME, host.state_dir / "library", "x86_64"),
        host.state_dir / "containers",
        SharedPages(host.run_dir),
        pci_bus_ids=dict,
        timings=Timings,
    )
    grants = GrantFolder(host.cdi_dir, host.state_dir / "containers", isolation)
    here = grant("a", ("GPU-0", 1000, 20))
    grants.reserve(here)
    grants.write(here, Edits(), {})
    AllocationStore(host.state_dir / "allocations").promise(here.resource, here.ids)
    (host.kubelet_dir / f"{SOCKET_PREFIX}h20.sock").touch()
    (host.cdi_dir / f".{FILE_PREFIX}b.json.0.tmp").touch()  # the agent died while it wrote it
    return host


def node() -> dict[str, Any]:
    owned: dict[str, dict[str, object]] = {f"f:{names.NVIDIA_PRODUCT_LABEL}": {}}
    return {
        "metadata": {
            "name": "n1",
            "labels": {
                f"{names.MODEL_LABEL_PREFIX}h20": "4",
                "egpu.volcano.sh/driver": "550.54.14",
                names.NVIDIA_PRODUCT_LABEL: "NVIDIA-H20",
                names.NVIDIA_COUNT_LABEL: "4",
                "zone": "a",
            },
            "annotations": {names.NODE_CARDS: "{}", names.NODE_SUSPENSION: "{}", "other": "1"},
            "managedFields": [
                {"manager": FIELD_MANAGER, "fieldsV1": {"f:metadata": {"f:labels": owned}}},
            ],
        },
        "status": {
            "capacity": {"cpu": "4", "volcano.sh/vgpu-h20-memory": "1", "volcano.sh/vgpu-h20-cores": "1"},
            "allocatable": {"cpu": "4", "volcano.sh/vgpu-h20-memory": "1"},
        },
    }


def holder(phase: str = "Running") -> dict[str, Any]:
    """A pod that holds cards of this node."""
    return {
        "metadata": {"name": "p", "namespace": "ns", "annotations": {names.CARDS: "{}"}},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": phase},
    }


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@both_ways
def test_the_host_loses_our_files_only(settings: Settings, api: TinyApi, tmp_path: Path, run: Run) -> None:
    theirs = [
        settings.cdi_dir / "nvidia.json",
        settings.kubelet_dir / "kubelet.sock",
        settings.kubelet_dir / "kubelet_internal_checkpoint",
    ]
    for path in theirs:
        path.touch()
    for _ in range(2):  # a second run finds nothing to do
        run(settings, api, tmp_path)
        assert files(settings.cdi_dir) == ["nvidia.json"]
        assert files(settings.kubelet_dir) == ["kubelet.sock", "kubelet_internal_checkpoint"]
        assert not [name for name in files(settings.state_dir) if name != "lock"]
        assert files(settings.run_dir) == []


@both_ways
def test_a_running_container_keeps_what_it_mapped(
    settings: Settings, api: TinyApi, tmp_path: Path, run: Run
) -> None:
    paths = [settings.run_dir / kind.name / "a" for kind in (USAGE, ACTIVITY)]
    opened = [path.open("r+b") for path in paths]
    maps = [mmap.mmap(file.fileno(), 0) for file in opened]
    run(settings, api, tmp_path)
    assert not any(path.exists() for path in paths)
    for view, file, kind in zip(maps, opened, (USAGE, ACTIVITY), strict=True):
        view[:4] = b"mine"
        assert file.read(4) == b"mine"
        assert len(view) == kind.size
        view.close()
        file.close()


@both_ways
def test_a_node_loses_what_the_agent_wrote_and_nothing_else(
    settings: Settings, api: TinyApi, tmp_path: Path, run: Run
) -> None:
    run(settings, api, tmp_path)
    left = api.objects[NODE_PATH]
    assert left["metadata"]["labels"] == {names.NVIDIA_COUNT_LABEL: "4", "zone": "a"}
    assert left["metadata"]["annotations"] == {"other": "1"}
    assert left["status"] == {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
    asked = len(api.requests)
    run(settings, api, tmp_path)
    assert {method for method, *_ in api.requests[asked:]} == {"GET"}, "a clean node is not written"


def test_only_node_clean_goes_past_pods_that_hold_cards(
    settings: Settings, api: TinyApi, tmp_path: Path
) -> None:
    api.put("/api/v1/pods/p", holder())
    before = files(settings.state_dir)
    with pytest.raises(removal.StillUsedError, match=r"1 pods hold cards of n1: ns/p$"):
        action(settings, api, tmp_path)
    assert files(settings.state_dir) == before
    assert names.NODE_CARDS in api.objects[NODE_PATH]["metadata"]["annotations"]
    node_clean(settings, api, tmp_path)
    assert names.NODE_CARDS not in api.objects[NODE_PATH]["metadata"]["annotations"]


def test_pods_that_ended_hold_nothing(settings: Settings, api: TinyApi, tmp_path: Path) -> None:
    api.put("/api/v1/pods/p", holder("Succeeded"))
    action(settings, api, tmp_path)
    assert files(settings.run_dir) == []


def test_a_node_that_is_gone_is_no_hindrance_and_a_misspelt_one_is(
    settings: Settings, api: TinyApi, tmp_path: Path
) -> None:
    api.remove(NODE_PATH)
    before = files(settings.state_dir)
    with pytest.raises(NotFound):
        action(settings, api, tmp_path)
    assert files(settings.state_dir) == before
    node_clean(settings, api, tmp_path)
    assert files(settings.run_dir) == []


def test_what_cannot_be_removed_is_not_called_removed(
    settings: Settings, api: TinyApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api.script = [(403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}, {})]
    assert removal.main(flags(settings, api, tmp_path)) == 1
    assert "n1: " in caplog.text


def test_the_daemon_set_has_all_of_the_agent_s_folders_where_the_agent_has_them() -> None:
    (document,) = yaml.safe_load_all((MANIFESTS / "removal/node-clean.yaml").read_text())
    pod = document["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    volumes = [volume for volume in pod["volumes"] if "hostPath" in volume]
    on_host = {volume["name"]: volume["hostPath"]["path"] for volume in volumes}
    here = Settings(node_name="n1")
    folders = {str(path) for path in (here.cdi_dir, here.kubelet_dir, here.state_dir, here.run_dir)}
    assert {path for name, path in mounts.items() if on_host.get(name) == path} == folders


def test_node_clean_looks_where_the_agent_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    assert removal.parse_flags(["--stay"]) == (Settings(node_name="n1"), True)
