"""Containers that a runtime started without what their CDI specs say, told from outside."""

from collections.abc import Collection
from pathlib import Path

import pytest
from unit.node.granted import grant
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.containers.start_checks import LOOKS, StartChecks

UID = "0bd41001-1111-2222-3333-44444444444{}"
OLD = "containerd://1.7.35"
ROOT = "601 540 0:45 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/containerd/1/fs\n"
EDITED = ROOT + "644 601 254:1 /var/lib/vc-egpu/containers/0c/limits /etc/egpu ro,nosuid - ext4 /dev/vda rw\n"


class Told:
    """Takes events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def warn(self, namespace: str, pod: str, uid: str, reason: str, text: str) -> None:
        self.events.append((pod, f"Warning/{reason}", text))


class Counting(ContainerOfProcess):
    """Counts how often it looked."""

    walks = 0

    def mounted(self, container_ids: Collection[str]) -> dict[str, frozenset[str]]:
        self.walks += 1
        return super().mounted(container_ids)


class Node:
    """A host with containers."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.told = Told()
        self.pods: dict[int, PodView] = {}
        self.grants: list[Grant] = []
        self.configs: tuple[Path, ...] = ()
        self.restart()

    def restart(self) -> None:
        """Another agent."""
        self.hosts = Counting(self.proc)
        self.started = StartChecks(self.hosts, self.told, self.configs)  # type: ignore[arg-type]

    def run(self, number: int, mountinfo: str | None, container: str = "") -> str:
        """A pod whose container runs; ``mountinfo`` of its process, if it can be seen. Its container id."""
        identity = container or f"{number:x}" * 64
        uid, name = UID.format(number), f"p{number}"
        if mountinfo is not None:
            self.process(100 + number, f"/kubepods/pod{uid}/{identity}", mountinfo)
        self.pods[number] = PodView(
            uid, "ns", name, "n", "Running", None, {identity: "main"}, frozenset({"main"})
        )
        self.grants.append(grant(name, ("GPU-0", 1000, 10), pod_uid=uid))
        return identity

    def process(self, pid: int, cgroup: str, mountinfo: str) -> None:
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "stat").write_text(f"{pid} (a) S {'0 ' * 18}5 0")
        (folder / "status").write_text(f"NSpid:\t{pid}\t1\n")
        (folder / "mountinfo").write_text(mountinfo)

    def look(self, runtime: str = OLD) -> str:
        return self.started.look(self.grants, self.pods.values(), runtime)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_containers_with_their_edits_close_nothing(node: Node) -> None:
    node.run(1, EDITED)
    assert node.look() == ""
    assert node.told.events == []


def test_a_container_without_its_edits_closes_the_node_until_it_is_gone(node: Node) -> None:
    node.run(1, EDITED)
    node.run(2, ROOT)
    said = node.look()
    assert said.startswith(f"{OLD} starts containers without their cards and limits: CDI is off there")
    assert said.endswith("delete these pods: ns/p2")
    assert [(name, kind) for name, kind, _ in node.told.events] == [("p2", "Warning/StartedWithoutCards")]
    assert node.look() == said
    assert len(node.told.events) == 1
    node.restart()
    assert node.look() == said
    del node.pods[2]
    assert node.look() == ""


def test_of_a_process_that_ends_while_it_is_looked_at_nothing_is_said(node: Node) -> None:
    node.run(1, "")
    assert (node.look(), node.told.events) == ("", [])


@pytest.mark.parametrize("runtime", ["containerd://2.1.4", "cri-o://1.34.0"])
def test_where_cdi_is_on_nobodys_own_mounts_close_the_node(node: Node, runtime: str) -> None:
    """A sandbox in a container (Apptainer, bubblewrap) shows no process that has not mounts of its own; a
    hostile one need not either. What one pod can bring about must not keep all others off."""
    node.run(1, ROOT)
    assert node.look(runtime) == ""
    assert node.told.events == []


def test_where_a_configuration_switches_cdi_on_likewise(node: Node, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    node.configs = (config,)
    node.restart()
    node.run(1, ROOT)
    table = '[plugins."io.containerd.grpc.v1.cri"]\n'
    config.write_text(f"{table}enable_cdi = true\n")
    assert node.look() == ""
    config.write_text(f"{table}enable_cdi = false\n")
    node.run(2, ROOT)
    assert node.look("containerd://2.1.4").endswith("delete these pods: ns/p2")
    config.write_text(f"{table}enable_cdi = true\n")
    assert node.look("containerd://2.1.4"), "it has still to be restarted, and the pod to go"


def test_a_container_is_judged_by_how_it_began(node: Node) -> None:
    """What its programs unmount later, with rights that they should not have, is theirs."""
    node.run(1, EDITED)
    assert node.look() == ""
    node.run(1, ROOT)
    assert node.look() == ""


def test_one_process_that_shows_them_is_enough(node: Node) -> None:
    """A program may have a mount namespace of its own; CRI-O's monitor has the host's."""
    identity = node.run(1, EDITED)
    folder = f"/kubepods/pod{UID.format(1)}"
    node.process(50, f"{folder}/{identity}/inner", ROOT)
    node.process(200, f"{folder}/{identity}", ROOT)
    assert node.look() == ""
    other = node.run(2, None)
    node.process(300, f"/kubepods/pod{UID.format(2)}/crio-conmon-{other}", ROOT)
    assert node.look() == ""


def test_what_cannot_be_seen_is_not_judged_and_not_looked_for_for_ever(node: Node) -> None:
    identity = node.run(1, None)
    for _ in range(LOOKS + 2):
        assert node.look() == ""
    assert node.hosts.walks == LOOKS
    node.run(1, None, container="f" * 64)  # it began anew
    assert identity != "f" * 64
    node.look()
    assert node.hosts.walks == LOOKS + 1


def test_containers_that_hold_no_cards_and_those_that_do_not_run_are_left_out(node: Node) -> None:
    node.run(1, ROOT)
    node.grants.clear()
    assert node.look() == ""
    node.run(2, ROOT)
    waiting = node.pods[2]
    node.pods[2] = PodView(waiting.uid, "ns", "p2", "n", "Running", None, waiting.containers)
    assert node.look() == ""


def test_many_are_named_by_the_first(node: Node) -> None:
    for number in range(1, 6):
        node.run(number, ROOT)
    assert node.look().endswith("delete these pods: ns/p1, ns/p2, ns/p3 and 2 more")
