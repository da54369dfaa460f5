"""What the driver sees, held against grants: judgement, the pages' doubtful figures, and who is killed."""

import ctypes
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from vc_egpu.volcano.annotations import CardShare
from vc_egpu_node import abi
from vc_egpu_node.accounts import (
    MAX_BYTES,
    Activity,
    Slot,
    Usage,
    context_cost,
    read_activity,
    read_usage,
)
from vc_egpu_node.cdi import Grant, GrantFolder
from vc_egpu_node.control import Timings
from vc_egpu_node.isolation import Isolation
from vc_egpu_node.library import LIBRARY_NAME, install
from vc_egpu_node.monitor import Observation
from vc_egpu_node.pages import ACTIVITY, USAGE, SharedPages
from vc_egpu_node.pods import PodView
from vc_egpu_node.processes import ContainerOfProcess, own_pid, place, start_ticks
from vc_egpu_node.secondwall import (
    Allowance,
    Finding,
    Offence,
    Seen,
    held_through,
    judge,
    lowered,
    strike,
)
from vc_egpu_node.toolkit import Edits
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.wall import Account, SecondWall, container_of

CARD = "GPU-0"
MIB = 1 << 20


def one(pid: int = 1, mib: int = 100, percent: int = 0, owner: str = "a", **changes: Any) -> Seen:
    values: dict[str, Any] = {"uuid": CARD, "registered": True, **changes}
    return Seen(pid=pid, start_ticks=5, memory_mib=mib, sm_percent=percent, owner=owner, **values)


def allowed(mib: int = 1000, **changes: Any) -> dict[str, Allowance]:
    return {"a": Allowance({CARD: mib}, **changes)}


# --- judgement ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "allowances", "offences"),
    [
        ([one(1, 600), one(2, 464)], allowed(), []),
        ([one(1, 600), one(2, 465)], allowed(), [Offence.OVER_GRANT]),
        ([one(1, 90_000)], allowed(whole=True), []),
        ([one(uuid="GPU-9")], allowed(), [Offence.NOT_GRANTED]),
        ([one(owner="ns/p/c/u")], allowed(), [Offence.NOT_GRANTED]),
        ([one(registered=False)], allowed(), [Offence.UNREGISTERED]),
        ([one(registered=None)], allowed(), []),
        ([one(percent=60)], allowed(), []),
        ([one(percent=20)], allowed(held=frozenset({CARD})), []),
        ([one(1, percent=20), one(2, percent=20)], allowed(held=frozenset({CARD})), [Offence.WHILE_HELD]),
        ([one(1, 2000, 90, registered=False)], allowed(held=frozenset({CARD})),
         [Offence.OVER_GRANT, Offence.UNREGISTERED, Offence.WHILE_HELD]),
        ([], allowed(), []),
    ],
)  # fmt: skip
def test_one_look(seen: list[Seen], allowances: dict[str, Allowance], offences: list[Offence]) -> None:
    assert [finding.offence for finding in judge(seen, allowances)] == offences


def test_only_those_that_did_it_are_named() -> None:
    (finding,) = judge([one(1), one(7, registered=False), one(2)], allowed())
    assert finding.processes == ((7, 5),)
    assert finding.text == "process 7 on card GPU-0 past the isolation library"


def test_two_looks_in_a_row_prove_it() -> None:
    findings = judge([one(registered=False)], allowed())
    counts, proven = strike({}, findings)
    assert proven == []
    counts, proven = strike(counts, findings)
    assert proven == findings
    counts, proven = strike(counts, [])
    assert (counts, proven) == ({}, [])
    other = [Finding(Offence.OVER_GRANT, "a", CARD, "", ())]
    assert strike(strike({}, findings)[0], other)[1] == []


def test_a_lowered_grant_is_not_held_against_running_work() -> None:
    ceiling, granted = 1000, 600
    for used, wanted in ((1000, 1000), (900, 900), (950, 900), (500, 600), (1000, 600)):
        ceiling = lowered(ceiling, granted, used)
        assert ceiling == wanted


def test_held_only_if_somebody_had_work_all_the_time() -> None:
    assert not held_through([], 100)
    assert not held_through([None, 101], 100)
    assert held_through([None, 99], 100)


# --- pages -------------------------------------------------------------------------------------------


def usage_page(*slots: tuple[int, int, int, int, int], magic: int = abi.USAGE_MAGIC) -> bytearray:
    """(pid, start, contexts, device MiB, managed MiB) on card 0."""
    page = abi.UsagePage(magic=magic, abi_major=1, bytes=abi.USAGE_BYTES, slots_used=len(slots))
    for target, (pid, start, contexts, device, managed) in zip(page.slots, slots, strict=False):
        target.owner, target.contexts = pid | start << 32, contexts
        target.cards[0].device, target.cards[0].managed = device * MIB, managed * MIB
    return bytearray(bytes(page))


def test_usage_is_read() -> None:
    data = usage_page((7, 5, 1, 100, 3), (8, 6, 0, 0, 0))
    page = abi.UsagePage.from_buffer(data)
    page.shared_used = 1
    page.shared[0].key, page.shared[0].bytes_card, page.shared[0].holders[3] = 1, 4096 * 256 | 1, 1
    usage = read_usage(bytes(data), 2)
    assert usage is not None
    assert (usage.charged_bytes(0), usage.charged_bytes(1), usage.managed_bytes(0)) == (
        100 * MIB,
        MIB,
        3 * MIB,
    )
    first = usage.slot_of(7, 5 + (1 << 32))
    assert first is not None
    assert first.uses(0)
    assert not first.uses(1)
    second = usage.slot_of(8, 6)
    assert second is not None
    assert not second.uses(0)
    assert usage.slot_of(7, 6) is None


@pytest.mark.parametrize(
    "data", [None, b"", bytes(abi.USAGE_BYTES), bytes(usage_page(magic=1)), bytes(usage_page())[:-1]]
)
def test_usage_that_says_nothing(data: bytes | None) -> None:
    assert read_usage(data, 1) is None


def test_nonsense_stays_within_bounds() -> None:
    chance = random.Random(4)
    for size in (abi.USAGE_BYTES, abi.ACTIVITY_BYTES):
        for _ in range(20):
            data = bytearray(chance.randbytes(size))
            data[:8] = struct.pack("<II", abi.USAGE_MAGIC, 1)
            usage = read_usage(bytes(data), 16)
            if usage is not None:
                assert all(0 <= usage.charged_bytes(card) <= MAX_BYTES for card in range(16))
                assert all(0 <= usage.managed_bytes(card) <= MAX_BYTES for card in range(16))
            data[:4] = struct.pack("<I", abi.ACTIVITY_MAGIC)
            times = {"age_s": 10.0, "now_ns": 1 << 40, "lease_ms": 100, "hang_ms": 30_000}
            for card in read_activity(bytes(data), 16, **times):  # type: ignore[arg-type]
                assert max(card.busy_s, card.longest_s, card.held_s, card.capped_s) <= 10.0
                assert card.units <= 1 << 53
    full = read_usage(b"\xff" * abi.USAGE_BYTES, 16)
    assert full is None


def activity_page(**fields: int) -> bytes:
    data = bytearray(abi.ACTIVITY_BYTES)
    page = abi.ActivityPage.from_buffer(data)
    page.magic = abi.ACTIVITY_MAGIC
    for name, value in fields.items():
        setattr(page.cards[0], name, value)
    return bytes(data)


NOW = 50_000_000_000


@pytest.mark.parametrize(
    ("fields", "since"),
    [
        ({}, 10_000_000_000),
        ({"word": 2}, None),
        ({"beat_ns": NOW - 101_000_000}, None),
        ({"beat_ns": NOW + 1}, None),
        ({"progress_ns": NOW - 31_000_000_000}, None),
        ({"started_ns": 0}, None),
        ({"started_ns": NOW + 1}, None),
    ],
)
def test_who_is_active(fields: dict[str, int], since: int | None) -> None:
    good = {"word": 3, "beat_ns": NOW - 50_000_000, "progress_ns": NOW - 1, "started_ns": 10_000_000_000}
    data = activity_page(**{**good, **fields})
    (card,) = read_activity(data, 1, age_s=60, now_ns=NOW, lease_ms=100, hang_ms=30_000)
    assert card.active_since_ns == since
    assert read_activity(data[:100], 1, age_s=60, now_ns=NOW, lease_ms=100, hang_ms=30_000) == (Activity(),)


@pytest.mark.parametrize(
    ("slots", "used", "cost"),
    [
        ([(7, 5, 1, 100, 0)], {(7, 5): 515 * MIB}, 416 * MIB),
        ([(7, 5, 1, 100, 0), (8, 5, 1, 0, 0)], {(7, 5): 515 * MIB, (8, 5): 300 * MIB}, 300 * MIB),
        ([(7, 5, 1, 100, 1)], {(7, 5): 515 * MIB}, 0),  # managed memory may lie on the card or not
        ([(7, 5, 0, 100, 0)], {(7, 5): 515 * MIB}, 0),
        ([(7, 5, 1, 100, 0)], {(7, 6): 515 * MIB}, 0),
        ([(7, 5, 1, 100, 0)], {(7, 5): 50 * MIB}, 0),
        ([(7, 5, 1, 0, 0)], {(7, 5): 60_000 * MIB}, 0),  # it lies about its allocations
    ],
)
def test_what_a_context_costs(slots: list[Any], used: dict[tuple[int, int], int], cost: int) -> None:
    usage = read_usage(bytes(usage_page(*slots)), 1)
    assert usage is not None
    assert context_cost(usage, 0, used) == cost
    shared = Usage(usage.slots, (MIB,))
    assert context_cost(shared, 0, used) == 0


def test_a_slot_without_a_start_time_counts_by_its_pid() -> None:
    usage = Usage((Slot(7, 0, (MIB,), (0,), 1),), (0,))
    assert usage.slot_of(7, 99) is not None


# --- processes -----------------------------------------------------------------------------------------

UID = "0bd41001-1111-2222-3333-444444444444"
IN_POD = "c" * 64


@pytest.mark.parametrize(
    ("cgroup", "expected"),
    [
        (f"4:memory:/kubepods/besteffort/pod{UID}/{IN_POD}\n", (UID, IN_POD)),
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice/"
         f"cri-containerd-{IN_POD}.scope\n", (UID, IN_POD)),
        (f"0::/../../kubepods-pod{UID.replace('-', '_')}.slice/crio-{IN_POD}.scope\n", (UID, IN_POD)),
        (f"5:cpu:/\n4:memory:/vc/n1/kubepods/pod{UID}/{IN_POD}/docker/{'d' * 64}\n", (UID, IN_POD)),
        (f"0::/kubepods/pod{UID}\n", (UID, "")),
        (f"0::/system.slice/docker-{IN_POD}.scope\n", ("", IN_POD)),
        ("0::/init.scope\n", ("", "")),
        ("", ("", "")),
    ],
)  # fmt: skip
def test_where_a_process_runs(cgroup: str, expected: tuple[str, str]) -> None:
    assert place(cgroup) == expected


def test_odd_files_of_processes() -> None:
    fields = " ".join(str(n) for n in range(4, 53))
    assert start_ticks(f"7 (a) b) ( c) S {fields}") == 22
    assert start_ticks("7 (a) S 1") is None
    assert start_ticks("") is None
    assert own_pid("Name:\tx\nNSpid:\t700\t12\t3\n") == 3
    assert own_pid("NSpid:\t700\n") == 700
    assert own_pid("Name:\tx\n") is None
    assert start_ticks(Path("/proc/self/stat").read_text()) is not None


class Proc:
    """A host's /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pid: int, uid: str, container: str, *, own: int | None = None, start: int = 5) -> None:
        target = self.folder / str(pid)
        target.mkdir(exist_ok=True)
        (target / "cgroup").write_text(f"0::/kubepods/pod{uid}/{container}\n" if uid else "0::/\n")
        (target / "stat").write_text(f"{pid} (x) S {'0 ' * 18}{start} 0")
        (target / "status").write_text(f"NSpid:\t{pid}\t{own or pid}\n")


def test_pids_of_the_processs_own_namespace_are_found(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(700, UID, IN_POD, own=12)
    proc.put(12, "", "")
    (tmp_path / "self").mkdir()
    found = ContainerOfProcess(tmp_path).hosts([700, 12, 99])
    assert (found[700].pod_uid, found[700].own_pid, found[12].pid) == (UID, 12, 700)
    assert 99 not in found
    proc.put(701, UID, IN_POD, own=12)
    assert ContainerOfProcess(tmp_path).hosts([12])[12].pod_uid == ""


def test_a_container_that_the_status_does_not_name_yet(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(700, UID, IN_POD)
    host = ContainerOfProcess(tmp_path).host(700)
    assert host is not None
    pod = PodView(UID, "ns", "p", "n", "Running", None, {"d" * 64: "side"})
    assert container_of(host, pod, [(UID, "main"), (UID, "side")]) == "main"
    assert container_of(host, pod, [(UID, "main"), (UID, "other")]) is None
    assert container_of(host, pod, []) is None


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_that_very_process_is_killed(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    hosts = ContainerOfProcess(Path("/proc"))
    host = hosts.host(sleeper.pid)
    assert host is not None
    assert hosts.kill(sleeper.pid, host.start_ticks + 1) == ""  # it has ended; another has its number
    assert sleeper.poll() is None
    other = Proc(tmp_path)
    other.put(sleeper.pid, "", "", start=1)
    assert "not in the host's PID namespace" in ContainerOfProcess(tmp_path).kill(sleeper.pid, 1)
    assert sleeper.poll() is None
    assert hosts.kill(sleeper.pid, host.start_ticks) == ""
    assert sleeper.wait(10) == -9
    assert hosts.kill(sleeper.pid, host.start_ticks) == ""


# --- the wall as a whole -------------------------------------------------------------------------------


class Hosts(ContainerOfProcess):
    """Kills nobody, but notes whom."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.killed: list[tuple[int, int]] = []
        self.refuse = ""

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
        self.policy: Any = "report"
        self.told: list[tuple[str, ...]] = []
        self.counted: list[tuple[str, str]] = []
        self.observation = Observation()
        self.wall = SecondWall(
            grants=self.grants.all,
            pods=lambda: self.pods,
            isolation=self.isolation,
            hosts=self.hosts,
            observation=lambda: self.observation,
            policy=lambda: self.policy,
            timings=Timings,
            tell=lambda *event: self.told.append(event),
            count=lambda *pair: self.counted.append(pair),
        )

    def uid(self, number: int) -> str:
        return f"0bd41001-1111-2222-3333-{number:012}"

    def let_in(self, number: int, mib: int, share_class: Any = "unset") -> Grant:
        grant = Grant(
            name=f"g{number}", resource="r", ids=(f"s{number}",), pod_uid=self.uid(number), namespace="ns",
            pod=f"p{number}", container="main", plan_id="1-1", epoch=1, share_class=share_class,
            core_policy="hard", native=False, shares=(CardShare(uuid=CARD, memory_mib=mib, cores=10),), granted_at_s=0.0,
        )  # fmt: skip
        self.grants.reserve(grant)
        self.grants.write(grant, Edits(), {})
        self.add_pod(number)
        return grant

    def add_pod(self, number: int) -> None:
        ids = {f"{number:064x}": "main"}
        self.pods.append(PodView(self.uid(number), "ns", f"p{number}", "n", "Running", None, ids))

    def process(self, pid: int, number: int) -> None:
        self.proc.put(pid, self.uid(number), f"{number:064x}", own=pid - 100)

    def usage(self, number: int, *slots: tuple[int, int, int, int, int]) -> None:
        self.isolation.pages.path(USAGE, f"g{number}").write_bytes(usage_page(*slots))

    def look(self, *samples: ProcessSample, card: str = CARD) -> list[Offence]:
        self.observation = Observation(processes={card: samples}, looks=self.observation.looks + 1)
        return [finding.offence for finding in self.wall.look()]


@pytest.fixture
def wall(tmp_path: Path) -> Wall:
    return Wall(tmp_path)


def test_a_container_that_keeps_to_its_grant(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 20))
    for _ in range(3):
        assert wall.look(ProcessSample(501, 900, 50)) == []
    assert (wall.told, wall.counted) == ([], [])
    assert wall.wall.accounts == (Account("ns", "p1", "main", CARD, 500, 20, Activity()),)


def test_a_process_past_the_library_is_told_of_once_and_left_alone(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.process(502, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    samples = (ProcessSample(501, 500, 0), ProcessSample(502, 100, 0))
    assert wall.look(*samples) == []
    assert wall.look(*samples) == [Offence.UNREGISTERED]
    assert wall.wall.look() == []  # nothing new was observed
    wall.look(*samples)
    assert wall.told == [
        (
            "ns",
            "p1",
            wall.uid(1),
            "Unregistered",
            "main: process 502 on card GPU-0 past the isolation library",
        )
    ]
    assert wall.counted == [("Unregistered", "reported")]
    assert wall.hosts.killed == []


def test_kill_where_the_policy_says_so(wall: Wall) -> None:
    wall.policy = "kill"
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    wall.look(ProcessSample(501, 1100, 0))
    wall.look(ProcessSample(501, 1100, 0))
    assert wall.hosts.killed == [(501, 5)]
    assert wall.counted == [("OverGrant", "killed")]
    wall.hosts.refuse = "Operation not permitted"
    wall.look(ProcessSample(501, 1100, 0))
    assert wall.counted[1] == ("OverGrant", "failed")
    assert "not killed: Operation not permitted" in wall.told[1][4]


def test_who_has_no_cards_is_told_of_and_never_killed(wall: Wall) -> None:
    wall.policy = "kill"
    wall.add_pod(3)
    wall.process(503, 3)
    wall.look(ProcessSample(503, 10, 0))
    assert wall.look(ProcessSample(503, 10, 0)) == [Offence.NOT_GRANTED]
    wall.look(ProcessSample(503, 10, 0))
    assert [event[1:4] for event in wall.told] == [("p3", wall.uid(3), "NotGranted")]
    assert wall.hosts.killed == []


def test_processes_of_the_host_are_none_of_ours(wall: Wall) -> None:
    wall.proc.put(700, "", "")
    assert wall.look(ProcessSample(700, 5000, 90)) == wall.look(ProcessSample(700, 5000, 90)) == []


def test_a_garbled_page_hurts_its_owner_only(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.let_in(2, 1000)
    wall.process(501, 1)
    wall.process(502, 2)
    wall.usage(2, (402, 5, 1, 500, 0))
    wall.isolation.pages.path(USAGE, "g1").write_bytes(os.urandom(USAGE.size))
    wall.isolation.pages.path(ACTIVITY, "g1").write_bytes(b"\xff" * 10)
    samples = (ProcessSample(501, 100, 0), ProcessSample(502, 500, 0))
    wall.look(*samples)
    wall.look(*samples)
    assert {event[1] for event in wall.told} == {"p1"}
    assert [event[3] for event in wall.told] == ["PagesPutRight", "Unregistered"]
    assert wall.isolation.pages.path(ACTIVITY, "g1").stat().st_size == ACTIVITY.size
    assert wall.wall.accounts[1].charged_mib == 500


def test_working_while_held(wall: Wall, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000_000_000_000]
    monkeypatch.setattr("vc_egpu_node.wall.time.monotonic_ns", lambda: clock[0])
    wall.wall._looked_ns = clock[0]
    wall.let_in(1, 1000, "low")
    wall.let_in(2, 1000, "high")
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    busy = ProcessSample(501, 500, 80)

    def look(*, since_ns: int) -> list[Offence]:
        clock[0] += 2_000_000_000
        page = activity_page(word=1, beat_ns=clock[0], progress_ns=clock[0], started_ns=since_ns)
        wall.isolation.pages.path(ACTIVITY, "g2").write_bytes(page)
        return wall.look(busy)

    began = clock[0] - 1
    assert look(since_ns=began) == []
    assert look(since_ns=clock[0] + 1_000_000_000) == []  # it paused, low ran in the gap
    assert look(since_ns=began) == []
    assert look(since_ns=began) == [Offence.WHILE_HELD]
    assert look(since_ns=0) == []


def test_a_grant_lowered_below_use_is_no_offence(wall: Wall) -> None:
    before = wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 900, 0))
    after = Grant(**{name: getattr(before, name) for name in Grant.__slots__ if name != "shares"},
                  shares=(CardShare(uuid=CARD, memory_mib=400, cores=10),))  # fmt: skip
    wall.grants.reserve(after)
    wall.isolation.lower(before, after)
    assert [wall.look(ProcessSample(501, mib, 0)) for mib in (1000, 1000, 700, 700)] == [[], [], [], []]
    assert wall.isolation.ceilings("g1") == {CARD: 700}
    assert [wall.look(ProcessSample(501, mib, 0)) for mib in (800, 800)] == [[], [Offence.OVER_GRANT]]
    wall.look(ProcessSample(501, 300, 0))
    assert wall.isolation.ceilings("g1") == {}


def test_a_contexts_cost_is_learnt_and_goes_onto_the_page(wall: Wall) -> None:
    wall.let_in(1, 2000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    for mib in (950, 920, 1200):
        wall.look(ProcessSample(501, mib, 0))
    page = wall.isolation.file("g1").read()
    assert page is not None
    assert page.limits[0].context_bytes == 420 * MIB
    wall.let_in(2, 1000)
    other = wall.isolation.file("g2").read()
    assert other is not None
    assert other.limits[0].context_bytes == 420 * MIB


def test_mirrors_are_as_large_as_files() -> None:
    assert ctypes.sizeof(abi.ActivityPage) <= abi.ACTIVITY_BYTES
