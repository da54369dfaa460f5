"""Agent and library on the same pages: what is granted holds in a program, and what is seen is true."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.native.memory_worlds import (
    BUILD,
    CONTEXT_MIB,
    LIBRARY,
    MIB,
    OK,
    OUT_OF_MEMORY,
    UUIDS,
    Actor,
    Share,
    World,
)
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.driver_limits import DriverLimits
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.pages import ACTIVITY, SharedPages
from vc_egpu_node.vendors.base import Edits, ProcessSample
from vc_egpu_node.vendors.nvidia.preload import install
from vc_egpu_node.wall.offences import Offence
from vc_egpu_node.wall.wall import Account, SecondWall

DRIVER = """
import json, sys
from vc_egpu_node.vendors.nvidia.readings import NvidiaReadings
vendor = NvidiaReadings()
assert not vendor.scan().problem
for _ in sys.stdin:
    seen = [[one.pid, one.memory_mib, one.sm_percent] for one in vendor.processes(sys.argv[1])]
    print(json.dumps(seen), flush=True)
"""
"""A process of its own for each test: the fake library keeps to the cards that it has seen first."""
CARD = UUIDS[0]
SAMPLES, SAMPLE_S = 60, 0.02
"""From look to look: longer than the second over which the driver's percentages go, as with the agent."""


class Container:
    """One container whose pages are the agent's own files."""

    def __init__(self, node: "Node", name: str, share_class: Any, backend: str = "library") -> None:
        self.node = node
        self.name = name
        self.uid = f"0bd41001-1111-2222-3333-{len(node.pods):012}"
        self.inside = f"{len(node.pods):064x}"
        self.group = node.root / "cgroup" / "kubepods" / f"pod{self.uid}" / self.inside
        self.group.mkdir(parents=True)
        node.pods.append(PodView(self.uid, "ns", name, "n", "Running", None, {self.inside: "main"}))
        self.world = World(node.root / name, [Share(CARD, MIB)])
        (self.world.root / "cards").unlink()
        (self.world.root / "cards").symlink_to(node.cards)
        self.world.control.unlink()
        self.world.control.parent.rmdir()
        self.grant = Grant(
            name=name, resource="r", ids=(name,), pod_uid=self.uid, namespace="ns", pod=name,
            container="main", plan_id="1-1", epoch=1, share_class=share_class, core_policy="hard",
            native=False, granted_at_s=0.0, shares=(CardShare(uuid=CARD, memory_mib=1000, cores=0),),
            backend=backend,
        )  # fmt: skip
        node.grants.reserve(self.grant)
        node.grants.write(self.grant, Edits(), {})
        run = self.world.usage.parent
        self.world.control.parent.symlink_to(node.root / "containers" / name)
        (run / "usage").hardlink_to(node.root / "run" / "usage" / name)
        (run / "activity").hardlink_to(node.root / "run" / "activity" / name)
        (run / "peers").symlink_to(node.root / "run" / "activity")

    @property
    def variables(self) -> dict[str, str]:
        """By which the fake libraries know their cards, and the container's control group."""
        return {"FAKE_NVML_STATE": str(self.node.cards), "FAKE_CUDA_CGROUP": str(self.group)}

    def environment(self, *, preload: str | None = LIBRARY) -> dict[str, str]:
        """What programs in it run with; all of the node share one set of fake cards."""
        return self.world.environment(preload=preload, **self.variables)

    def own(self, pid: int) -> None:
        """The host sees that process as one of the pod's."""
        folder = self.node.proc / str(pid)
        folder.mkdir()
        (folder / "cgroup").write_text(f"0::/kubepods/pod{self.uid}/{self.inside}\n")
        (folder / "status").write_text(f"NSpid:\t{pid}\n")
        (folder / "stat").write_text(Path(f"/proc/{pid}/stat").read_text())

    def program(self, preload: str | None = LIBRARY) -> Actor:
        """A program that allocates as it is told."""
        actor = self.world.actor(preload=preload, **self.variables).start()
        self.own(actor.process.pid)
        return actor

    def train(self, preload: str | None = LIBRARY) -> "subprocess.Popen[str]":
        """A program that keeps the card busy until it is ended."""
        process = subprocess.Popen(
            [BUILD / "programs" / "train", "--every", "100000", "--kernels", "10", "--ns", "1000000"],
            stdout=subprocess.PIPE, text=True, env=self.environment(preload=preload),
        )  # fmt: skip
        self.node.training.append(process)
        self.own(process.pid)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def limit(self, mib: int) -> None:
        """Another limit while it runs."""
        before = self.grant
        share = CardShare(uuid=CARD, memory_mib=mib, cores=0)
        self.grant = dataclasses.replace(before, shares=(share,))
        self.node.grants.reserve(self.grant)
        self.node.isolation.refresh(self.node.grants.all(), [self.grant])
        if self.node.isolation.driver is not None:
            self.node.isolation.driver.change(self.grant)
        self.node.isolation.lower(before, self.grant)


class Node:
    """The agent's parts, a fake card, and containers on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cards = root / "cards"
        World(root / "unused", [Share(CARD, MIB)])
        (root / "unused" / "cards").rename(self.cards)
        self.pods: list[PodView] = []
        self.containers: list[Container] = []
        self.training: list[subprocess.Popen[str]] = []
        self.isolation = self._isolation()
        self.grants = GrantFolder(root / "cdi", root / "containers", self.isolation)
        self.proc = root / "proc"
        self.proc.mkdir()
        self.driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, CARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={
                **os.environ,
                "LD_LIBRARY_PATH": str(BUILD),
                "FAKE_NVML_STATE": str(self.cards),
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
        self.observation = Observation()
        self.told: list[str] = []
        self.wall = self._wall()

    def _isolation(self) -> Isolation:
        return Isolation(
            install(BUILD / "libvgpu-egpu.so", self.root / "library"),
            self.root / "containers",
            SharedPages(self.root / "run"),
            pci_bus_ids=lambda: {CARD: "00000000:01:00.0"},
            timings=Timings,
            driver=self._driver(),
        )

    def _driver(self) -> DriverLimits | None:
        """What holds limits besides the library."""
        return None

    def _wall(self) -> SecondWall:
        return SecondWall(
            grants=self.grants.all,
            pods=lambda: self.pods,
            isolation=self.isolation,
            hosts=ContainerOfProcess(self.proc),
            observation=lambda: self.observation,
            policy=lambda: "report",
            timings=Timings,
            tell=lambda *event: self.told.append(event[3]),
        )

    def restart(self) -> None:
        """The agent's parts anew, as after its death."""
        self.isolation = self._isolation()
        self.grants = GrantFolder(self.root / "cdi", self.root / "containers", self.isolation)
        self.wall = self._wall()

    def container(self, name: str = "g", share_class: Any = "unset", backend: str = "library") -> Container:
        """One more."""
        self.containers.append(Container(self, name, share_class, backend))
        return self.containers[-1]

    def look(self) -> list[Offence]:
        """One look of the second wall at what NVML says now."""
        assert self.driver.stdin is not None
        assert self.driver.stdout is not None
        self.driver.stdin.write("\n")
        seen = json.loads(self.driver.stdout.readline())
        processes = {CARD: tuple(ProcessSample(*one) for one in seen)}
        self.observation = Observation(processes=processes, looks=self.observation.looks + 1)
        return [finding.offence for finding in self.wall.look()]

    def account(self, name: str) -> Account:
        """As of the last look."""
        return next(one for one in self.wall.accounts if one.pod == name)

    def close(self) -> None:
        """End everything in it."""
        self.driver.communicate(timeout=30)
        for process in self.training:
            process.kill()
            process.communicate(timeout=30)
        for container in self.containers:
            container.world.close()


@pytest.fixture
def node(fake_nvml: None, tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.close()


def test_the_grant_holds_and_follows_changes(node: Node) -> None:
    container = node.container()
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
        assert node.look() == []  # lowered below what it uses: no offence
    (account,) = node.wall.accounts
    assert account.charged_mib >= 1100


def test_a_program_that_ended_is_not_charged_any_more(node: Node) -> None:
    """No other comes that would clear its slot: it was run by ``kubectl exec``."""
    container = node.container()
    container.own(os.getpid())  # what holds the container
    actor = container.program()
    assert actor.do("alloc", 1, 500 * MIB) == OK
    node.look()
    assert node.account("g").charged_mib >= 500
    actor.kill()
    shutil.rmtree(node.proc / str(actor.process.pid))
    node.look()
    assert node.account("g").charged_mib == 0


def test_a_program_past_the_library_is_seen(node: Node) -> None:
    container = node.container()
    good = container.program()
    assert good.do("alloc", 1, 100 * MIB) == OK
    assert [node.look() for _ in range(3)] == [[], [], []]
    rogue = container.program(preload=None)
    assert rogue.do("alloc", 1, 100 * MIB) == OK
    assert [node.look(), node.look()] == [[], [Offence.UNREGISTERED]]
    assert rogue.do("alloc", 2, 1000 * MIB) == OK
    node.look()
    assert node.look() == [Offence.OVER_GRANT, Offence.UNREGISTERED]
    assert node.told == ["Unregistered", "OverGrant"]


def test_what_a_context_costs_is_learnt_from_the_driver(node: Node) -> None:
    container = node.container()
    first = container.program()
    assert first.do("alloc", 1, 100 * MIB) == OK
    node.look()
    node.look()
    page = node.isolation.file("g").read()
    assert page is not None
    learnt = page.limits[0].context_bytes
    assert 0 < learnt <= CONTEXT_MIB * MIB
    free = first.info()[0]
    second = container.program()
    assert second.info()[0] == free - learnt
    assert [node.look(), node.look()] == [[], []]


def test_low_waits_for_high_and_whoever_does_not_is_seen(node: Node) -> None:
    low, high = node.container("low", "low"), node.container("high", "high")

    def look_until(done: Callable[[], bool]) -> list[Offence]:
        found, deadline = [], time.monotonic() + 90
        while not done():
            assert time.monotonic() < deadline
            for _ in range(SAMPLES):
                time.sleep(SAMPLE_S)
                node.wall.sample()
            found += node.look()
            if Offence.WHILE_HELD in found:
                break
        return found

    low.train()
    node.look()
    assert look_until(lambda: node.account("low").activity.units > 50) == []
    assert node.account("low").activity.held_s == 0
    assert node.account("low").activity.busy_s > 0
    high.train()
    node.look()
    held_s = node.account("low").activity.held_s + 0.5
    assert look_until(lambda: node.account("low").activity.held_s > held_s) == []
    low.train(preload=None)
    found = look_until(lambda: False)
    assert {Offence.UNREGISTERED, Offence.WHILE_HELD} == set(found)
    assert node.told == ["Unregistered", "WhileHeld"]


def test_an_activity_page_cut_short_hurts_no_neighbour(node: Node) -> None:
    low, high = node.container("low", "low"), node.container("high", "high")
    neighbour = low.train()
    high.train()
    deadline = time.monotonic() + 30
    while not (node.wall.accounts and node.account("low").activity.held_s > 0.1):
        assert time.monotonic() < deadline
        time.sleep(0.05)
        node.look()
    os.truncate(node.isolation.pages.path(ACTIVITY, "high"), 0)
    with pytest.raises(subprocess.TimeoutExpired):
        neighbour.wait(1.0)
