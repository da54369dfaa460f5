"""CDI specs, and the grants in them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu_node.containers.admission import HeldShare
from vc_egpu_node.containers.cdi import Grant, GrantFolder, read_grant, spec_of
from vc_egpu_node.vendors.base import CardReading, Edits, EditsError
from vc_egpu_node.vendors.nvidia.toolkit import Toolkit

FIXTURE = Path(__file__).parent / "nvidia-cdi.yaml"
NO_DRIVER = Path("/nonexistent/nvidiactl")
CARD_1 = "GPU-aaaaaaaa-0000-4000-8000-000000000001"
CARD_2 = "GPU-aaaaaaaa-0000-4000-8000-000000000002"


def grant(name: str = "abc-def", **changes: object) -> Grant:
    values = {
        "name": name,
        "resource": "volcano.sh/vgpu-h20",
        "ids": ("s1",),
        "pod_uid": "uid-1",
        "namespace": "ns",
        "pod": "p",
        "container": "main",
        "plan_id": "3-4",
        "epoch": 3,
        "share_class": "low",
        "core_policy": "hard",
        "native": False,
        "shares": (CardShare(uuid=CARD_1, memory_mib=4000, cores=25),),
        "granted_at_s": 1000.5,
        **changes,
    }
    return Grant(**values)  # type: ignore[arg-type]


def reading(uuid: str, index: int, minor: int = -1) -> CardReading:
    return CardReading(uuid, index, "NVIDIA H20", 98304, numbers={"minor": minor})


def test_the_container_sees_its_entry_of_the_annotation(tmp_path: Path) -> None:
    edits = spec_of(grant(), Edits(), tmp_path)["devices"][0]["containerEdits"]
    assert edits["env"] == [
        f'EGPU_CARDS=[{{"uuid":"{CARD_1}","memoryMiB":4000,"cores":25}}]',
        "NVIDIA_VISIBLE_DEVICES=void",
        "ASCEND_VISIBLE_DEVICES=void",
    ]
    assert edits["mounts"][0]["containerPath"] == "/etc/egpu"
    assert "ro" in edits["mounts"][0]["options"]


def test_what_the_toolkit_says_of_the_same_variables_is_overruled(tmp_path: Path) -> None:
    """A runtime takes one of two values for a variable, and not every one the last."""
    said = ["NVIDIA_VISIBLE_DEVICES=all", "EGPU_CARDS=[]", "NVIDIA_VISIBLE_DEVICES_X=a=b", "OTHER=1"]
    edits = spec_of(grant(), Edits(parts=({"env": said},)), tmp_path)["devices"][0]["containerEdits"]
    assert edits["env"][:2] == ["NVIDIA_VISIBLE_DEVICES_X=a=b", "OTHER=1"]
    hidden = ["NVIDIA_VISIBLE_DEVICES=void", "ASCEND_VISIBLE_DEVICES=void"]
    assert edits["env"][2].startswith("EGPU_CARDS=") and edits["env"][3:] == hidden


@pytest.mark.parametrize(
    ("toolkit", "says"), [("0.3.0", "0.6.0"), ("0.6.0", "0.6.0"), ("0.10.0", "0.10.0"), ("1.0.0", "1.0.0")]
)
def test_a_spec_says_the_newer_of_the_toolkits_version_and_ours(
    tmp_path: Path, toolkit: str, says: str
) -> None:
    assert spec_of(grant(), Edits(cdi_version=toolkit), tmp_path)["cdiVersion"] == says


def test_the_room_check_sees_all_that_was_granted() -> None:
    spilled = CardShare(uuid=CARD_2, memory_mib=4000, cores=25, physical_mib=3000)
    first, second = grant(shares=(*grant().shares, spilled), share_class="high", epoch=7).held
    assert first == HeldShare("uid-1", "main", CARD_1, 4000, 25, share_class="high", epoch=7)
    assert second == replace(first, uuid=CARD_2, physical_mib=3000)
    assert [share.native for share in grant(native=True).held] == [True]


def test_grants_are_found_again_and_collected(tmp_path: Path) -> None:
    folder = GrantFolder(tmp_path / "cdi", tmp_path / "limits")
    one, two = (
        grant("one"),
        grant("two", native=True, shares=(CardShare(uuid=CARD_2, memory_mib=1, cores=0),)),
    )
    for each in (one, two):
        folder.reserve(each)
        folder.write(each, Edits(), {CARD_1: {"index": 0}})
    again = GrantFolder(tmp_path / "cdi", tmp_path / "limits")
    assert again.all() == [one, two]
    limits = json.loads((tmp_path / "limits" / "one" / "limits.json").read_text())
    assert limits["cards"] == [{"uuid": CARD_1, "memoryMiB": 4000, "cores": 25, "index": 0}]
    again.release("one")
    assert again.all() == [two]
    assert [path.name for path in (tmp_path / "cdi").iterdir()] == ["egpu.volcano.sh-vgpu-two.json"]
    assert [path.name for path in (tmp_path / "limits").iterdir()] == ["two"]


def test_a_folder_is_nobodys_once_neither_grant_nor_spec_tells_of_it(tmp_path: Path) -> None:
    """A container that is about to start has a grant before its spec is written."""
    folder = GrantFolder(tmp_path / "cdi", tmp_path / "limits")
    for name in ("starts", "runs", "left"):
        folder.reserve(grant(name))
        folder.write(grant(name), Edits(), {})
    folder.path("starts").unlink()
    folder.path("left").unlink()
    (tmp_path / "limits" / "begun").mkdir()
    again = GrantFolder(tmp_path / "cdi", tmp_path / "limits")
    again.reserve(grant("starts"))
    assert again.leftovers() == {"left": "uid-1", "begun": ""}


def test_equal_specs_are_not_written_again(tmp_path: Path) -> None:
    folder = GrantFolder(tmp_path / "cdi", tmp_path / "limits")
    folder.write(grant(), Edits(), {})
    inode = folder.path("abc-def").stat().st_ino
    folder.write(grant(), Edits(), {})
    assert folder.path("abc-def").stat().st_ino == inode
    folder.write(grant(), Edits(parts=({"env": ["A=1"]},)), {})
    assert folder.path("abc-def").stat().st_ino != inode


@pytest.mark.parametrize(
    "text", ["", "{}", '{"devices": []}', '{"devices": [{"annotations": {}}]}', "[1]", "null"]
)
def test_files_that_are_not_ours_are_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "egpu.volcano.sh-vgpu-x.json"
    path.write_text(text)
    assert read_grant(path) is None
    assert GrantFolder(tmp_path, tmp_path / "l").all() == []
    assert path.exists()


def test_a_copied_file_is_no_grant(tmp_path: Path) -> None:
    folder = GrantFolder(tmp_path, tmp_path / "l")
    folder.write(grant("one"), Edits(), {})
    copy = folder.path("two")
    copy.write_text(folder.path("one").read_text())
    assert read_grant(copy) is None


def test_a_grant_in_another_version_s_words_is_none(tmp_path: Path) -> None:
    folder = GrantFolder(tmp_path, tmp_path / "l")
    folder.write(grant("one"), Edits(), {})
    path = folder.path("one")
    assert read_grant(path) == grant("one")
    path.write_text(path.read_text().replace(r"{\"version\":1,", r"{\"version\":2,"))
    assert read_grant(path) is None


def test_exactly_the_chosen_cards_are_merged(tmp_path: Path) -> None:
    toolkit = Toolkit([FIXTURE], "required", NO_DRIVER)
    spec = spec_of(grant(), toolkit.edits([reading(CARD_1, 0)]), tmp_path)
    edits = spec["devices"][0]["containerEdits"]
    nodes = [node["path"] for node in edits["deviceNodes"]]
    assert nodes == ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0"]
    assert len(edits["hooks"]) == 2
    assert "/usr/bin/nvidia-smi" in [mount["containerPath"] for mount in edits["mounts"]]
    values = dict(entry.split("=", 1) for entry in edits["env"])
    assert values["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert values["NVIDIA_CTK_LIBCUDA_DIR"] == "/usr/lib/x86_64-linux-gnu"
    assert spec["cdiVersion"] == "0.6.0"
    both = toolkit.edits([reading(CARD_1, 0), reading(CARD_2, 1)]).merged()
    assert [node["path"] for node in both["deviceNodes"]][2:] == ["/dev/nvidia0", "/dev/nvidia1"]
    assert len(both["hooks"]) == 2


def _newer(tmp_path: Path) -> Toolkit:
    """As later toolkits write it: hooks of single cards, device numbers, lists that we know nothing of."""
    hook = {
        "hookName": "createRuntime",
        "path": "/usr/bin/nvidia-cdi-hook",
        "env": ["NVIDIA_CTK_DEBUG=false"],
    }
    document = yaml.safe_load(FIXTURE.read_text())
    document["cdiVersion"] = "1.1.0"
    document["containerEdits"]["additionalGids"] = [44]
    for minor, device in enumerate(document["devices"][2:4]):
        limits = ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--gpu-id", device["name"]]
        chmod = ["nvidia-cdi-hook", "chmod", "--mode", "755", "--path", f"/dev/dri{minor}"]
        device["containerEdits"] = {
            "deviceNodes": [{"path": f"/dev/nvidia{minor}", "major": 195, "minor": minor, "fileMode": 438}],
            "hooks": [{**hook, "args": limits}, {**hook, "hookName": "createContainer", "args": chmod}],
            "netDevices": [{"hostInterfaceName": f"eth{minor}", "name": f"eth{minor}"}],
            "mounts": None,
        }
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(document))
    return Toolkit([tmp_path], "required", NO_DRIVER)


def test_every_list_of_every_card_is_merged_whatever_it_is_called(tmp_path: Path) -> None:
    both = _newer(tmp_path).edits([reading(CARD_1, 0), reading(CARD_2, 1)])
    edits = spec_of(grant(native=True), both, tmp_path)["devices"][0]["containerEdits"]
    assert [node.get("minor") for node in edits["deviceNodes"]] == [None, None, 0, 1]
    assert [one["name"] for one in edits["netDevices"]] == ["eth0", "eth1"]
    assert edits["additionalGids"] == [44]
    assert [one["args"][1] for one in edits["hooks"]] == [
        "create-symlinks", "update-ldcache", *["apply-cuda-memory-limits", "chmod"] * 2,
    ]  # fmt: skip
    assert both.cdi_version == "1.1.0"


def test_a_share_is_not_what_the_container_s_environment_says(tmp_path: Path) -> None:
    """That hook sets, as root, what the driver guarantees and allows the container on the card, as the tenant
    wrote it into the environment. Who has the card alone may."""
    toolkit, cards = _newer(tmp_path), [reading(CARD_1, 0)]
    shared, again, whole = (
        spec_of(grant(), edits, tmp_path)["devices"][0]["containerEdits"]["hooks"]
        for edits in (
            toolkit.edits(cards, shared=True),
            toolkit.record(cards, shared=True),
            toolkit.edits(cards, shared=False),
        )
    )
    assert again == shared
    assert [one["args"][1] for one in shared] == ["create-symlinks", "update-ldcache", "chmod"]
    assert len(whole) == 4


def test_a_card_that_the_spec_does_not_know_is_refused() -> None:
    toolkit = Toolkit([FIXTURE], "required", NO_DRIVER)
    with pytest.raises(EditsError, match="knows neither GPU-zzz nor card 0"):
        toolkit.edits([reading("GPU-zzz", 0)])


def test_a_spec_of_another_driver_is_not_used(tmp_path: Path) -> None:
    """The libraries that it names are gone: no container would start, and the runtime would not say why."""
    old, new = "570.124.06", "580.65.06"
    fresh, stale = tmp_path / "fresh", tmp_path / "stale"
    for folder, version in ((fresh, new), (stale, old)):
        folder.mkdir()
        (folder / "nvidia.yaml").write_text(FIXTURE.read_text().replace(old, version))
    card = reading(CARD_1, 0)
    reason = f"was made for driver {old}, and {new} is loaded: run nvidia-ctk cdi generate again"
    with pytest.raises(EditsError, match=reason):
        Toolkit([stale], "required", NO_DRIVER).edits([card], new)
    assert reason in Toolkit([stale], "auto", NO_DRIVER).unusable([card], new)[CARD_1]
    both = Toolkit([stale, fresh], "required", NO_DRIVER)
    assert new in str(both.edits([card], new))
    assert old in str(both.edits([card], old))
    with pytest.raises(EditsError, match="knows neither GPU-zzz"):
        both.edits([reading("GPU-zzz", 7)], new)


@pytest.mark.parametrize("library", ["libcuda.so.1.1", "libcuda.so", "libother.so.570.124.06"])
def test_a_spec_that_does_not_say_its_driver_is_one_of_any(tmp_path: Path, library: str) -> None:
    spec = tmp_path / "nvidia.yaml"
    spec.write_text(FIXTURE.read_text().replace("libcuda.so.570.124.06", library))
    assert Toolkit([tmp_path], "required", NO_DRIVER).unusable([reading(CARD_1, 0)], "580.65.06") == {}
    assert Toolkit([FIXTURE], "required", NO_DRIVER).unusable([reading(CARD_1, 0)], "") == {}


def test_positions_count_only_where_no_card_has_a_uuid(tmp_path: Path) -> None:
    document = yaml.safe_load(FIXTURE.read_text())
    document["devices"] = [device for device in document["devices"] if not device["name"].startswith("GPU-")]
    (tmp_path / "nvidia.json").write_text(json.dumps(document))
    edits = Toolkit([tmp_path], "auto", NO_DRIVER).edits([reading("GPU-zzz", 1)]).merged()
    assert "/dev/nvidia1" in [node["path"] for node in edits["deviceNodes"]]


@pytest.mark.parametrize("by", ["uuid", "index"])
def test_a_spec_by_which_another_card_would_be_opened_is_not_used(tmp_path: Path, by: str) -> None:
    """One in /etc/cdi outlives boots, and the driver numbers cards as it finds them: with the first one gone
    the second is /dev/nvidia0, and what was planned on it went to the third."""
    document = yaml.safe_load(FIXTURE.read_text())
    if by == "index":
        document["devices"] = [one for one in document["devices"] if not one["name"].startswith("GPU-")]
    (tmp_path / "nvidia.yaml").write_text(yaml.safe_dump(document))
    toolkit = Toolkit([tmp_path], "required", NO_DRIVER)
    toolkit.edits([reading(CARD_1, 0, minor=0), reading(CARD_2, 1, minor=1)])
    moved = reading(CARD_2, 0 if by == "uuid" else 1, minor=0)
    reason = f"opens another card for {CARD_2}, which is /dev/nvidia0 now: run nvidia-ctk cdi generate again"
    with pytest.raises(EditsError, match=reason):
        toolkit.edits([moved])
    assert reason in toolkit.unusable([moved])[CARD_2]
    fresh = FIXTURE.read_text().replace("nvidia1}", "nvidia7}").replace("nvidia0}", "nvidia1}")
    (tmp_path / "nvidia-new.yaml").write_text(fresh.replace("nvidia7}", "nvidia0}"))
    if by == "uuid":
        assert "/dev/nvidia0" in str(toolkit.edits([moved]))


def test_without_a_spec(tmp_path: Path) -> None:
    device = tmp_path / "nvidiactl"
    toolkit = Toolkit([tmp_path / "cdi"], "auto", device)
    assert toolkit.edits([reading(CARD_1, 0)]).merged() == {}
    device.touch()  # a driver was loaded
    for needed in (toolkit, Toolkit([tmp_path / "cdi"], "required", NO_DRIVER)):
        with pytest.raises(EditsError, match="run nvidia-ctk cdi generate"):
            needed.edits([reading(CARD_1, 0)])


def test_a_spec_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "nvidia.yaml"
    path.write_text("kind: nvidia.com/gpu\ndevices: [{name: x}]\n")
    toolkit = Toolkit([tmp_path], "auto", NO_DRIVER)
    assert list(toolkit.unusable([reading(CARD_1, 0)])) == [CARD_1]
    fresh = tmp_path / "new"
    fresh.write_text(FIXTURE.read_text())
    fresh.replace(path)
    assert toolkit.unusable([reading(CARD_1, 0)]) == {}


def test_each_file_is_read_once_whatever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The GPU operator's spec for its own pods lies beside it, as long as this one; every look at every card
    asks."""
    read: list[str] = []

    def note(path: Path, encoding: str) -> str:
        read.append(path.name)
        return path.read_bytes().decode(encoding)

    text = FIXTURE.read_text()
    monkeypatch.setattr(Path, "read_text", note)
    document = yaml.safe_load(text)
    (tmp_path / "nvidia.yaml").write_text(text)
    (tmp_path / "management.nvidia.com-gpu.yaml").write_text(
        yaml.safe_dump({**document, "kind": "management.nvidia.com/gpu"})
    )
    (tmp_path / "nvidia-old.yaml").write_text("devices: [")
    toolkit = Toolkit([tmp_path], "required", NO_DRIVER)
    cards = [reading(CARD_1, 0), reading(CARD_2, 1)]
    for _ in range(3):
        assert toolkit.unusable(cards) == {}
    assert sorted(read) == ["management.nvidia.com-gpu.yaml", "nvidia-old.yaml", "nvidia.yaml"]
    assert caplog.text.count("nvidia-old.yaml was not read") == 1
    (tmp_path / "nvidia-old.yaml").write_text("devices: {")
    toolkit.unusable(cards)
    assert caplog.text.count("nvidia-old.yaml was not read") == 2
    (tmp_path / "nvidia-old.yaml").unlink()
    assert toolkit.unusable(cards) == {}


def test_a_file_that_is_being_written_is_read_again(tmp_path: Path) -> None:
    """Within one tick of the file system's clock: its time alone does not tell the halves apart."""
    path = tmp_path / "nvidia.yaml"
    text = FIXTURE.read_text()
    path.write_text(text[: len(text) // 2])
    then = path.stat().st_mtime_ns
    toolkit = Toolkit([tmp_path], "required", NO_DRIVER)
    assert toolkit.unusable([reading(CARD_1, 0)])
    path.write_text(text)
    os.utime(path, ns=(then, then))
    assert toolkit.unusable([reading(CARD_1, 0)]) == {}
