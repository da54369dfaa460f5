"""Agent and library on the same pages: what is granted holds in a program, and what is seen is true."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.native.memory_worlds import BUILD, CONTEXT_MIB, MIB, OK, OUT_OF_MEMORY, UUIDS, Actor, Share, World
from vc_egpu.volcano.annotations import CardShare
from vc_egpu_node.cdi import Grant, GrantFolder
from vc_egpu_node.control import Timings
from vc_egpu_node.isolation import Isolation
from vc_egpu_node.library import install
from vc_egpu_node.monitor import Observation
from vc_egpu_node.pages import SharedPages
from vc_egpu_node.pods import PodView
from vc_egpu_node.processes import ContainerOfProcess, start_ticks
from vc_egpu_node.secondwall import Offence
from vc_egpu_node.toolkit import Edits
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.wall import SecondWall

DRIVER = """
import json, sys
from vc_egpu_node.vendors.nvidia import NvidiaVendor
vendor = NvidiaVendor()
assert not vendor.scan().problem
for _ in sys.stdin:
    seen = [[one.pid, one.memory_mib, one.sm_percent] for one in vendor.processes(sys.argv[1])]
    print(json.dumps(seen), flush=True)
"""
"""A process of its own for each test: the fake library keeps to the cards that it has seen first."""
UID = "0bd41001-1111-2222-3333-444444444444"
INSIDE = "c" * 64
CARD = UUIDS[0]


class Container:
    """One container whose pages are the agent's own files."""

    def __init__(self, root: Path) -> None:
        self.world = World(root / "inside", [Share(CARD, MIB)])
        self.world.control.unlink()
        self.world.control.parent.rmdir()
        self.isolation = Isolation(
            install(BUILD / "libvgpu-egpu.so", root / "library"),
            root / "containers",
            SharedPages(root / "run"),
            pci_bus_ids=lambda: {CARD: "00000000:01:00.0"},
            timings=Timings,
        )
        self.grants = GrantFolder(root / "cdi", root / "containers", self.isolation)
        self.grant = Grant(
            name="g", resource="r", ids=("s1",), pod_uid=UID, namespace="ns", pod="p", container="main",
            plan_id="1-1", epoch=1, share_class="unset", core_policy="hard", native=False, granted_at_s=0.0,
            shares=(CardShare(uuid=CARD, memory_mib=1000, cores=0),),
        )  # fmt: skip
        self.grants.reserve(self.grant)
        self.grants.write(self.grant, Edits(), {})
        run = self.world.usage.parent
        self.world.control.parent.symlink_to(root / "containers" / "g")
        (run / "usage").hardlink_to(root / "run" / "usage" / "g")
        (run / "activity").hardlink_to(root / "run" / "activity" / "g")
        (run / "peers").symlink_to(root / "run" / "activity")
        self.proc = root / "proc"
        self.proc.mkdir()
        self.driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, CARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=self.world.environment(preload=None, PYTHONPATH=os.pathsep.join(sys.path)),
        )
        self.observation = Observation()
        self.told: list[str] = []
        self.wall = SecondWall(
            grants=self.grants.all,
            pods=lambda: [PodView(UID, "ns", "p", "n", "Running", None, {INSIDE: "main"})],
            isolation=self.isolation,
            hosts=ContainerOfProcess(self.proc),
            observation=lambda: self.observation,
            policy=lambda: "report",
            timings=Timings,
            tell=lambda *event: self.told.append(event[3]),
        )

    def program(self, **changes: Any) -> Actor:
        """A program in it, seen by the host as one of the pod's."""
        actor = self.world.actor(**changes).start()
        pid = actor.process.pid
        (self.proc / str(pid)).mkdir()
        (self.proc / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{UID}/{INSIDE}\n")
        (self.proc / str(pid) / "status").write_text(f"NSpid:\t{pid}\n")
        (self.proc / str(pid) / "stat").write_text(Path(f"/proc/{pid}/stat").read_text())
        assert start_ticks(Path(f"/proc/{pid}/stat").read_text())
        return actor

    def limit(self, mib: int) -> None:
        """Another limit while it runs."""
        before = self.grant
        share = CardShare(uuid=CARD, memory_mib=mib, cores=0)
        self.grant = dataclasses.replace(before, shares=(share,))
        self.grants.reserve(self.grant)
        self.isolation.refresh(self.grants.all(), [self.grant])
        self.isolation.lower(before, self.grant)

    def look(self) -> list[Offence]:
        """One look of the second wall at what NVML says now."""
        assert self.driver.stdin is not None
        assert self.driver.stdout is not None
        self.driver.stdin.write("\n")
        seen = json.loads(self.driver.stdout.readline())
        processes = {CARD: tuple(ProcessSample(*one) for one in seen)}
        self.observation = Observation(processes=processes, looks=self.observation.looks + 1)
        return [finding.offence for finding in self.wall.look()]

    def close(self) -> None:
        """End everything in it."""
        self.driver.communicate(timeout=10)
        self.world.close()


@pytest.fixture
def container(fake_nvml: None, tmp_path: Path) -> Iterator[Container]:
    made = Container(tmp_path)
    yield made
    made.close()


def test_the_grant_holds_and_follows_changes(container: Container) -> None:
    actor = container.program()
    assert actor.info()[1] == 1000 * MIB
    assert actor.do("alloc", 1, 500 * MIB) == OK
    assert actor.do("alloc", 2, 600 * MIB) == OUT_OF_MEMORY
    container.limit(1200)
    assert actor.do("alloc", 2, 600 * MIB) == OK
    container.limit(400)
    assert actor.info() == (0, 400 * MIB)
    assert actor.do("alloc", 3, 2 * MIB) == OUT_OF_MEMORY
    for _ in range(3):
        assert container.look() == []  # lowered below what it uses: no offence
    (account,) = container.wall.accounts
    assert account.charged_mib >= 1100


def test_a_program_past_the_library_is_seen(container: Container) -> None:
    good = container.program()
    assert good.do("alloc", 1, 100 * MIB) == OK
    assert [container.look() for _ in range(3)] == [[], [], []]
    rogue = container.program(preload=None)
    assert rogue.do("alloc", 1, 100 * MIB) == OK
    assert [container.look(), container.look()] == [[], [Offence.UNREGISTERED]]
    assert rogue.do("alloc", 2, 1000 * MIB) == OK
    container.look()
    assert container.look() == [Offence.OVER_GRANT, Offence.UNREGISTERED]
    assert container.told == ["Unregistered", "OverGrant"]


def test_what_a_context_costs_is_learnt_from_the_driver(container: Container) -> None:
    first = container.program()
    assert first.do("alloc", 1, 100 * MIB) == OK
    container.look()
    container.look()
    page = container.isolation.file("g").read()
    assert page is not None
    learnt = page.limits[0].context_bytes
    assert 0 < learnt <= CONTEXT_MIB * MIB
    free = first.info()[0]
    second = container.program()
    assert second.info()[0] == free - learnt
    assert [container.look(), container.look()] == [[], []]
