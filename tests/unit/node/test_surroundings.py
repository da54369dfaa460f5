"""cgroups, processes and runtime configurations, as found on hosts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.cgroups import PodCgroups
from vc_egpu_node.containers.processes import AGAIN_S, ContainerOfProcess, Host, Use
from vc_egpu_node.containers.runtime import bypasses, cdi_off
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.vendors.nvidia.words import FACTS

UID = "0bd41001-1111-2222-3333-444444444444"
UNDERSCORED = UID.replace("-", "_")
SLICE = "kubepods.slice"
OTHER = "9bd41001-1111-2222-3333-444444444444"


class Counting(ContainerOfProcess):
    """Counts how often it read the whole process tree."""

    walks = 0

    def of_pods(self) -> Iterator[Host]:
        self.walks += 1
        return super().of_pods()


@pytest.mark.parametrize(
    "paths",
    [
        [f"memory/kubepods/besteffort/pod{UID}/{'a' * 64}"],
        [f"memory/vc-egpu/node-1/kubepods/pod{UID}"],
        ["cgroup.controllers", f"vc-egpu/t1-4a856e49/t1-node-0/kubepods/burstable/pod{UID}/{'a' * 64}"],
        ["cgroup.controllers", f"{SLICE}/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"],
        ["cgroup.controllers", f"{SLICE}/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{'b' * 64}.scope"],
    ],
)  # fmt: skip
def test_pods_are_found_under_both_drivers(tmp_path: Path, paths: list[str]) -> None:
    for path in paths:
        target = tmp_path / path
        if target.suffix == ".controllers":
            target.write_text("")
        else:
            target.mkdir(parents=True)
    assert PodCgroups(tmp_path).living({UID, OTHER}) == frozenset({UID})


def test_a_tree_that_tells_nothing(tmp_path: Path) -> None:
    assert PodCgroups(tmp_path).living({UID}) is None
    (tmp_path / "memory" / "system.slice").mkdir(parents=True)
    assert PodCgroups(tmp_path).living({UID}) is None
    (tmp_path / "memory" / "kubepods" / f"pod{OTHER}").mkdir(parents=True)
    assert PodCgroups(tmp_path).living({UID}) == frozenset()


def test_what_is_only_named_like_a_pod_tells_nothing(tmp_path: Path) -> None:
    """A share is let go when its pod has no cgroup in a tree that shows others: so these must be pods."""
    for name in ("podruntime.slice", "podman.slice", "machine-podman.slice"):
        (tmp_path / "memory" / name / "x").mkdir(parents=True)
    assert PodCgroups(tmp_path).living({UID}) is None
    (tmp_path / "memory" / "kubepods.slice" / f"kubepods-pod{'3c' * 16}.slice").mkdir(parents=True)  # static
    assert PodCgroups(tmp_path).living({UID}) == frozenset()


def test_whose_a_pid_is_that_the_driver_tells(tmp_path: Path) -> None:
    """A program of the host is itself, whoever has that number inside a container."""

    def put(pid: int, cgroup: str, *, own: int, flags: int = 0) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(cgroup)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) S 1 1 1 0 -1 {flags} {'0 ' * 12}5 0")
        (tmp_path / str(pid) / "status").write_text(f"NSpid:\t{pid}\t{own}\n")

    pod = f"0::/kubepods/pod{UID}/{'c' * 64}\n"
    put(700, "0::/system.slice/xorg.service\n", own=700)
    put(701, "0::/\n", own=701, flags=0x0020_8040)  # a thread of the kernel
    for pid, own in ((9700, 700), (9701, 701), (9702, 702), (9703, 703), (9704, 703)):
        put(pid, pod, own=own)
    found = ContainerOfProcess(tmp_path).hosts([700, 701, 702, 703, 704, 9700])
    assert {pid: host.pid for pid, host in found.items()} == {700: 700, 701: 9701, 702: 9702, 9700: 9700}
    assert found[700].pod_uid == ""


def test_a_pid_that_nobody_has_is_not_looked_for_at_every_look(tmp_path: Path) -> None:
    """Some drivers go on listing what has died: the whole tree was read for it every two seconds."""
    now_s = 0.0
    hosts = Counting(tmp_path, clock=lambda: now_s)
    pod = f"0::/kubepods/pod{UID}/{'c' * 64}\n"

    def put(pid: int, own: int) -> None:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(pod)
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) S {'0 ' * 18}5 0")
        (tmp_path / str(pid) / "status").write_text(f"NSpid:\t{pid}\t{own}\n")

    put(9001, 1)
    for _ in range(5):
        assert hosts.hosts([700]) == {}
    assert hosts.walks == 1
    assert hosts.hosts([700, 1])[1].pid == 9001  # another one: that is looked for at once
    assert hosts.walks == 2
    hosts.hosts([700, 1])  # who was found is looked for each time: a second one of that number may have come
    assert hosts.walks == 3
    put(9002, 1)
    assert hosts.hosts([700, 1]) == {}
    put(9700, 700)
    now_s += AGAIN_S
    assert hosts.hosts([700])[700].pid == 9700
    walks = hosts.walks
    assert hosts.hosts([9001])[9001].own_pid == 1
    assert hosts.walks == walks


def test_processes_are_summed_by_container(tmp_path: Path) -> None:
    container = "c" * 64
    for pid, text in (
        (7, f"4:memory:/kubepods/pod{UID}/{container}"),
        (8, f"0::/x/{container}"),
        (9, "0::/"),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(text)
    pod = PodView(UID, "ns", "p", "n", "Running", None, {container: "main"})
    samples = {"GPU-0": [ProcessSample(7, 100, 10), ProcessSample(8, 50, 5), ProcessSample(9, 1, 1),
                         ProcessSample(10, 1, 1)]}  # fmt: skip
    assert ContainerOfProcess(tmp_path).uses(samples, [pod]) == (Use("ns", "p", "main", "GPU-0", 150, 15),)


@pytest.mark.parametrize(
    ("name", "text", "warns"),
    [
        (
            "config.toml",
            '[plugins."io.containerd.cri.v1.runtime".containerd]\ndefault_runtime_name = "nvidia"\n',
            True,
        ),
        ("config.toml", '[plugins."x".containerd]\ndefault_runtime_name = "runc"\n', False),
        ("daemon.json", '{"default-runtime": "nvidia"}', True),
        ("99-nvidia.conf", '[crio.runtime]\ndefault_runtime = "nvidia"\n', True),
        ("config.toml", "not toml [", False),
    ],
)
def test_a_default_runtime_that_hands_out_all_cards(
    tmp_path: Path, name: str, text: str, warns: bool
) -> None:
    (tmp_path / name).write_text(text)
    found = bypasses([tmp_path], FACTS)
    assert bool(found) is warns
    assert not warns or "nvidia" in found[0]


OLD = "containerd://1.7.35"
CRI = '[plugins."io.containerd.grpc.v1.cri"]\n'


@pytest.mark.parametrize(
    ("runtime", "files", "off"),
    [
        (OLD, {"config.toml": f'version = 2\n{CRI}sandbox_image = "pause"\n'}, True),  # as 1.7 comes
        (OLD, {"config.toml": f"version = 2\n{CRI}enable_cdi = false\n"}, True),
        (OLD, {"config.toml": f"version = 2\n{CRI}enable_cdi = true\n"}, False),
        # The toolkit's own file, imported by the first one.
        (OLD, {"config.toml": f"version = 2\n{CRI}", "conf.d/99.toml": f"{CRI}enable_cdi = true\n"}, False),
        ("containerd://2.1.4", {"config.toml": f"version = 2\n{CRI}"}, False),
        ("containerd://2.1.4", {"config.toml": f"version = 2\n{CRI}enable_cdi = false\n"}, True),
        ("cri-o://1.34.0", {"config.toml": f"version = 2\n{CRI}"}, False),
        # Docker's containerd serves no kubelet: this node's reads another file. So may one without any.
        (OLD, {"config.toml": 'disabled_plugins = ["cri"]\n'}, False),
        (OLD, {}, False),
        (OLD, {"config.toml": "not toml [", "x.conf": "[crio]\n"}, False),
        (OLD, {"config.toml": 'plugins = "none"\n'}, False),
        (OLD, {"config.toml": '[plugins]\n"io.containerd.grpc.v1.cri" = 1\n'}, False),
        ("", {"config.toml": CRI}, False),
    ],
)  # fmt: skip
def test_a_configuration_that_leaves_cdi_off(
    tmp_path: Path, runtime: str, files: dict[str, str], off: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    said = cdi_off([tmp_path], runtime)
    assert bool(said) is off
    assert not off or f"{tmp_path}/config.toml" in said
