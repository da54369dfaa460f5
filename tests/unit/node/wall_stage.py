"""The second wall with a driver, a process tree and pages that a test writes; nobody is killed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from unit.node.doubtful import CARD, Proc, usage_page
from vc_egpu.volcano.words.annotations import CardShare
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.containers.processes import ContainerOfProcess, Host
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.pages import USAGE, SharedPages
from vc_egpu_node.vendors.base import Edits, ProcessSample
from vc_egpu_node.vendors.nvidia.preload import LIBRARY_NAME, install
from vc_egpu_node.wall.offences import Offence
from vc_egpu_node.wall.wall import SecondWall


class Hosts(ContainerOfProcess):
    """Kills nobody, but notes whom."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.killed: list[tuple[int, int]] = []
        self.refuse = ""
        self.walks = 0
        """How often all processes of pods were read."""

    def living(self) -> list[Host]:
        """Count it."""
        self.walks += 1
        return super().living()

    def kill(self, pid: int, start: int) -> str:
        """Note it."""
        self.killed.append((pid, start))
        return self.refuse


class Wall:
    """Two containers of two pods on one card, and everything that the wall looks at."""

    def __init__(self, root: Path) -> None:
        built = root / LIBRARY_NAME
        built.write_bytes(b"\x7fELF\x02\x01" + bytes(12) + (62).to_bytes(2, "little"))
        self.isolation = Isolation(
            install(built, root / "library", "x86_64"),
            root / "containers",
            SharedPages(root / "run"),
            pci_bus_ids=dict,
            timings=Timings,
        )
        self.grants = GrantFolder(root / "cdi", root / "containers", self.isolation)
        (root / "proc").mkdir()
        self.proc, self.hosts = Proc(root / "proc"), Hosts(root / "proc")
        self.pods: list[PodView] = []
        self.pods_known = True
        """Else the first list of them has not come yet."""
        self.policy: Any = "report"
        self.told: list[tuple[str, ...]] = []
        self.counted: list[tuple[str, str]] = []
        self.observation = Observation()
        self.now_s = 3600.0
        self.now_monotonic_s = 0.0
        self.restart()

    def restart(self) -> None:
        """Another agent, as far as the wall goes: of earlier looks it knows what the pages say."""
        self.wall = SecondWall(
            grants=self.grants.all,
            pods=lambda: self.pods if self.pods_known else None,
            isolation=self.isolation,
            hosts=self.hosts,
            observation=lambda: self.observation,
            policy=lambda: self.policy,
            timings=lambda: Timings(lease_ms=60_000),
            tell=lambda *event: self.told.append(event),
            count=lambda offence, action: self.counted.append((offence.value, action)),
            clock=lambda: self.now_s,
            monotonic=lambda: self.now_monotonic_s,
        )

    def uid(self, number: int) -> str:
        return f"0bd41001-1111-2222-3333-{number:012}"

    def let_in(self, number: int, mib: int, share_class: Any = "unset", card: str = CARD) -> Grant:
        grant = Grant(
            name=f"g{number}", resource="r", ids=(f"s{number}",), pod_uid=self.uid(number), namespace="ns",
            pod=f"p{number}", container="main", plan_id="1-1", epoch=1, share_class=share_class,
            core_policy="hard", native=False, granted_at_s=0.0,
            shares=(CardShare(uuid=card, memory_mib=mib, cores=10),),
        )  # fmt: skip
        self.grants.reserve(grant)
        self.grants.write(grant, Edits(), {})
        self.add_pod(number)
        return grant

    def lowered(self, number: int, mib: int, to_mib: int, uses_mib: int, share_class: Any = "unset") -> Grant:
        """A container that uses so much, of which a part was taken back since."""
        before = self.let_in(number, mib, share_class)
        self.process(500 + number, number)
        self.usage(number, (400 + number, 5, 1, uses_mib, 0))
        return self.lower(before, to_mib)

    def lower(self, before: Grant, mib: int) -> Grant:
        """A part of what it was granted is taken back while it runs."""
        after = replace(before, shares=(CardShare(uuid=CARD, memory_mib=mib, cores=10),))
        self.grants.reserve(after)
        self.isolation.lower(before, after)
        return after

    def add_pod(self, number: int) -> None:
        ids = {f"{number:064x}": "main"}
        self.pods.append(PodView(self.uid(number), "ns", f"p{number}", "n", "Running", None, ids))

    def process(self, pid: int, number: int) -> None:
        self.proc.put(pid, self.uid(number), f"{number:064x}", own=pid - 100)

    def usage(self, number: int, *slots: tuple[int, int, int, int, int]) -> None:
        self.isolation.pages.path(USAGE, f"g{number}").write_bytes(usage_page(*slots))

    def look(self, *samples: ProcessSample, card: str = CARD, tells: bool = True) -> list[Offence]:
        """``tells``: else the driver's list could not be read, and these are of an earlier one."""
        self.observation = Observation(
            processes={card: samples},
            untold=frozenset() if tells else frozenset({card}),
            looks=self.observation.looks + 1,
        )
        return [finding.offence for finding in self.wall.look()]
