"""Whether a reload of systemd takes cards from running containers: links in /dev/char, makers of cgroups."""

from pathlib import Path

import pytest
from vc_egpu_node.containers.cgroups import PodCgroups
from vc_egpu_node.containers.device_links import DeviceLinks
from vc_egpu_node.vendors.base import CardReading
from vc_egpu_node.vendors.nvidia.words import FACTS

UID = "0bd41001-1111-2222-3333-444444444444"
CARDS = tuple(
    CardReading(uuid=f"GPU-{i}", index=i, product="H20", memory_mib=1, devices=(f"nvidia{i}",))
    for i in (0, 1)
)
ALL = {"195:0": "nvidia0", "195:1": "nvidia1", "195:255": "nvidiactl", "507:0": "nvidia-uvm", "1:3": "null"}
BY_SYSTEMD = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
BY_KIND = f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice"
BY_ITSELF = f"kubepods/burstable/pod{UID}"


def links(tmp_path: Path, there: dict[str, str], cgroup: str = BY_SYSTEMD) -> DeviceLinks:
    cgroups, dev_char = tmp_path / "cgroup", tmp_path / "char"
    (cgroups / cgroup).mkdir(parents=True)
    (cgroups / "cgroup.controllers").write_text("")
    (cgroups / "system.slice").mkdir()
    dev_char.mkdir()
    for number, name in there.items():
        (dev_char / number).symlink_to(f"../{name}")
    return DeviceLinks(dev_char, PodCgroups(cgroups), FACTS.shared_devices)


@pytest.mark.parametrize("cgroup", [BY_SYSTEMD, BY_KIND])
@pytest.mark.parametrize(
    ("gone", "named"),
    [
        (("195:1",), "nvidia1"),
        (("507:0",), "nvidia-uvm"),
        (("195:0", "195:1", "195:255", "507:0"), "nvidiactl, nvidia-uvm, nvidia0 and 1 more"),
    ],
)
def test_links_that_are_missing_are_named(
    tmp_path: Path, cgroup: str, gone: tuple[str, ...], named: str
) -> None:
    there = {number: name for number, name in ALL.items() if number not in gone}
    assert links(tmp_path, there, cgroup).trouble(CARDS) == (
        f"systemctl daemon-reload takes the cards from running containers: /dev/char has no link to {named}"
    )


def test_nothing_is_said_where_all_are_there_or_none_is_needed(tmp_path: Path) -> None:
    assert links(tmp_path / "all", ALL).trouble(CARDS) == ""
    assert links(tmp_path / "cgroupfs", {}, BY_ITSELF).trouble(CARDS) == "", "runc manages devices itself"
    assert links(tmp_path / "no-cards", {}).trouble(()) == ""


def test_a_folder_that_is_not_to_be_seen_tells_nothing(tmp_path: Path) -> None:
    """As with the manifests of an earlier version, which do not mount it."""
    links(tmp_path, {})
    unseen = DeviceLinks(tmp_path / "none", PodCgroups(tmp_path / "cgroup"), FACTS.shared_devices)
    assert unseen.trouble(CARDS) == ""
