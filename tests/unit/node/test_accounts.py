"""Figures that containers give, within bounds; processes found by the host's /proc, and killed by it."""

import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.node.doubtful import MIB, Proc, activity_page, usage_page
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.containers.processes import ContainerOfProcess, own_pid, place, start_ticks
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.accounts import (
    MAX_BYTES,
    Activity,
    ContextCost,
    Slot,
    Usage,
    context_costs,
    read_activity,
    read_usage,
)
from vc_egpu_node.wall.owners_of_processes import container_of

# --- pages -------------------------------------------------------------------------------------------


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


def test_slots_that_are_empty_or_being_emptied_say_nothing() -> None:
    page = usage_page((7, 5, 1, 100, 0), (8, 6, 1, 200, 0), (9, 7, 1, 400, 0))
    slots = abi.UsagePage.from_buffer(page).slots
    slots[0].owner |= 1 << 31
    slots[1].owner = 0
    usage = read_usage(bytes(page), 1)
    assert usage is not None
    assert [(slot.pid, slot.index) for slot in usage.slots] == [(9, 2)]


def test_memory_that_processes_share_is_on_its_card_and_theirs() -> None:
    """An entry without key, without holders or of a card that the container does not have says nothing."""
    page = usage_page(*[(pid, 5, 1, 0, 0) for pid in range(1, 67)])
    view = abi.UsagePage.from_buffer(page)
    view.shared_used = 5
    for entry, (key, card, holders) in zip(
        view.shared,
        [(1, 0, {0: 0b10}), (2, 1, {0: 0b10, 1: 0b10}), (0, 0, {0: 1}), (3, 0, {}), (4, 2, {0: 1})],
        strict=False,
    ):
        entry.key, entry.bytes_card = key, (key + 1) * MIB | card
        for word, bits in holders.items():
            entry.holders[word] = bits
    usage = read_usage(bytes(page), 2)
    assert usage is not None
    assert usage.shared_bytes == (2 * MIB, 3 * MIB)
    first, second, last = (usage.slots[place] for place in (0, 1, 65))
    assert [[usage.held_bytes(slot, card) // MIB for card in (0, 1)] for slot in (first, second, last)] == [
        [0, 0], [2, 3], [0, 3],
    ]  # fmt: skip
    assert usage.claiming() == [second, last]
    assert usage.without({1}).shared_bytes == (0, 3 * MIB)
    assert usage.without({1, 65}).shared_bytes == (0, 0)


OTHER_MAJOR = usage_page((7, 5, 1, 100, 0))
abi.UsagePage.from_buffer(OTHER_MAJOR).abi_major = 2


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        bytes(abi.USAGE_BYTES),
        bytes(usage_page(magic=1)),
        bytes(usage_page())[:-1],
        bytes(OTHER_MAJOR),
    ],
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


NOW = 50_000_000_000


@pytest.mark.parametrize(
    ("fields", "active"),
    [
        ({}, True),
        ({"word": 2}, False),
        ({"beat_ns": NOW - 101_000_000}, False),
        ({"beat_ns": NOW + 1}, True),
        ({"beat_ns": NOW + 101_000_000}, False),
        ({"progress_ns": NOW + 101_000_000}, False),
        ({"progress_ns": NOW - 31_000_000_000}, False),
    ],
)
def test_who_is_active(fields: dict[str, int], active: bool) -> None:
    good = {"word": 3, "beat_ns": NOW - 50_000_000, "progress_ns": NOW - 1}
    data = activity_page(**{**good, **fields})
    (card,) = read_activity(data, 1, age_s=60, now_ns=NOW, lease_ms=100, hang_ms=30_000)
    assert card.active is active
    assert read_activity(data[:100], 1, age_s=60, now_ns=NOW, lease_ms=100, hang_ms=30_000) == (Activity(),)


@pytest.mark.parametrize("other", [abi.USAGE_MAGIC, None])
def test_an_activity_page_that_is_none_says_nothing(other: int | None) -> None:
    page = bytearray(activity_page(word=1, busy_ns=10**9, beat_ns=NOW, progress_ns=NOW))
    page[:4] = struct.pack("<I", other or 0)
    data = bytes(page) if other is not None else None
    found = read_activity(data, 2, age_s=60, now_ns=NOW, lease_ms=100, hang_ms=30_000)
    assert found == (Activity(), Activity())


def test_the_least_of_all_programs_is_what_a_context_costs() -> None:
    """Others load more code into theirs. It holds for the first look, for two, and where all change."""
    cost = ContextCost()
    first, second = {(7, 5, 1): 420, (8, 5, 1): 600}, {(7, 5, 2): 430, (8, 5, 2): 610}
    assert [cost.look(now) for now in (first, second, second)] == [(0, False), (430, False), (430, True)]


def test_who_claims_memory_on_one_card_of_several_claims_some() -> None:
    slots = (Slot(7, 5, (0, MIB), (0, 0), 0, index=0), Slot(8, 5, (0, 0), (MIB, 0), 0, index=1))
    assert Usage(slots, (0, 0)).claiming() == list(slots)


def test_of_programs_that_are_gone_no_context_costs_anything() -> None:
    cost = ContextCost()
    assert [cost.look(now) for now in ({(7, 5, 1): 420}, {}, {(7, 5, 1): 400})] == [(0, False)] * 3


def test_the_middle_of_many_looks_is_what_a_context_costs_of_programs_that_always_change() -> None:
    cost = ContextCost()
    looks = [20, 420, 420, 900, 420, 20, 420, 420, 420]  # they took or gave back while one looked
    found = [cost.look({(7, 5, changes): size}) for changes, size in enumerate(looks, 1)]
    assert found == [(0, False), (420, False), *[(0, False)] * 6, (420, True)]


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
    assert min(context_costs(usage, 0, used).values(), default=0) == cost
    shared = Usage(usage.slots, (MIB,))
    assert context_costs(shared, 0, used) == {}


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
        (f"0::/kubepods-pod{UID.replace('-', '_')}.slice/crio-{IN_POD}.scope/container\n", (UID, IN_POD)),
        # CRI-O's monitor is in the pod's group, and in no container.
        (f"0::/kubepods-pod{UID.replace('-', '_')}.slice/crio-conmon-{IN_POD}.scope\n", (UID, "")),
        (f"4:memory:/kubepods/pod{UID}/crio-conmon-{IN_POD}\n", (UID, "")),
        # Version 2, read in a container: it has a cgroup namespace of its own.
        (f"0::/../../kubepods-burstable-pod{UID.replace('-', '_')}.slice/cri-containerd-{IN_POD}.scope\n",
         (UID, IN_POD)),
        (f"0::/../../../../vc-egpu/t1-4a856e49/t1-node-0/kubepods/pod{UID}/{IN_POD}\n", (UID, IN_POD)),
        ("0::/../../../../init.scope\n", ("", "")),
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


def test_pids_of_the_processs_own_namespace_are_found(tmp_path: Path) -> None:
    proc = Proc(tmp_path)
    proc.put(700, UID, IN_POD, own=12)
    proc.put(12, "", "", flags=0x0020_8040)  # a thread of the kernel
    (tmp_path / "self").mkdir()
    proc.put(800, "", "", own=12)  # in somebody's container, and in no pod
    found = ContainerOfProcess(tmp_path).hosts([700, 12, 99])
    assert (found[700].pod_uid, found[700].own_pid, found[12].pid) == (UID, 12, 700)
    assert 99 not in found
    (tmp_path / "702").mkdir()
    (tmp_path / "702" / "cgroup").write_text((tmp_path / "700" / "cgroup").read_text())
    here = ContainerOfProcess(tmp_path).in_pod(UID)
    assert [host.pid for host in here] == [700], "the other one ends while it is looked at"
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
    nowhere = 1 << 22  # above all that the kernel gives
    other.put(nowhere, "", "", start=1)
    assert "not in the host's PID namespace" in ContainerOfProcess(tmp_path).kill(nowhere, 1)
    assert hosts.kill(sleeper.pid, host.start_ticks) == ""
    assert sleeper.wait(30) == -9
    assert hosts.kill(sleeper.pid, host.start_ticks) == ""
