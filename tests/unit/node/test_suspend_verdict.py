"""Whether a pod can be suspended, and the first reason against it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from vc_egpu_node.suspension.room import Limited, MemoryLimits, free_mib
from vc_egpu_node.suspension.verdict import Facts, HostRoom, MemoryRoom, judge

GOOD = Facts(
    driver_version="570.124.06",
    started=True,
    isolated=True,
    known=True,
    managed_mib=0,
    shared_mib=0,
    processes=1,
    several_allowed=False,
    mps=False,
    device_mib=40_000,
    book_mib=60_000,
    rooms=(MemoryRoom("the pod", 64_000, 20_000, 40_000),),
    host=HostRoom(free_mib=41_024, budget_mib=100_000, booked_mib=40_000),
)


def test_nothing_against_it_is_suspendable() -> None:
    assert judge(GOOD).suspendable
    assert judge(replace(GOOD, processes=0, device_mib=0)).suspendable
    assert judge(replace(GOOD, processes=8, several_allowed=True)).suspendable
    assert judge(replace(GOOD, rooms=())).suspendable
    assert judge(replace(GOOD, processes=8, shared_mib=64, signal="SIGUSR1")).suspendable


@pytest.mark.parametrize(
    ("change", "topic", "words"),
    [
        ({"driver_version": "550.54.14"}, "driver", ("550.54.14", "570")),
        ({"driver_version": ""}, "driver", ("unknown version",)),
        ({"driver_version": "1e9.0"}, "driver", ("1e9.0",)),
        ({"ending": True}, "end", ()),
        ({"started": False}, "start", ()),
        ({"isolated": False}, "library", ()),
        ({"known": False}, "page", ()),
        ({"managed_mib": 7}, "managed", ("7 MiB",)),
        ({"shared_mib": 2}, "shared", ("2 MiB",)),
        ({"mps": True}, "mps", ("MPS",)),
        ({"processes": 2}, "processes", ("2 of its processes", "suspendSeveralProcesses")),
        ({"signal": "SIGKILL"}, "signal", ("'SIGKILL'", "SIGUSR1, SIGUSR2, SIGTSTP")),
        ({"signal": "SIGUSR2", "deaf_pid": 71}, "signal", ("process 71", "SIGUSR2")),
        ({"signal": "SIGUSR2", "managed_mib": 7}, "managed", ("7 MiB",)),
        ({"host": HostRoom(10**6, 0, 0)}, "budget", ("hostMemoryMiB",)),
        ({"host": HostRoom(10**6, 100_000, 40_001)}, "budget", ("60000", "40001", "100000")),
        ({"host": HostRoom(41_023, 100_000, 0)}, "host", ("41023", "41024")),
        ({"rooms": (MemoryRoom("container main", 59_999, 20_000, 40_000),)}, "limit", ("59999", "40000")),
    ],
)
def test_reasons_name_field_number_and_limit(
    change: dict[str, Any], topic: str, words: tuple[str, ...]
) -> None:
    verdict = judge(replace(GOOD, **change))
    assert (verdict.suspendable, verdict.topic) == (False, topic)
    assert all(word in verdict.reason for word in words), verdict.reason


# --- what the kernel says --------------------------------------------------------------------------

UID = "0b5f1f0e-0000-4000-8000-000000000001"
CONTAINER = "ab" * 32


def limited(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_limits_of_version_1(tmp_path: Path) -> None:
    pod = tmp_path / "memory" / "kubepods" / "burstable" / f"pod{UID}"
    stat = "cache 1\ntotal_inactive_file 104857600\n"
    limited(pod, memory__limit_in_bytes="9223372036854771712", memory__usage_in_bytes="1", memory__stat=stat)
    limited(
        pod / CONTAINER,
        memory__limit_in_bytes=str(4096 << 20),
        memory__usage_in_bytes=str(1100 << 20),
        memory__stat=stat,
    )
    limited(pod / ("cd" * 32), memory__limit_in_bytes="1048576")  # the sandbox
    found = MemoryLimits(tmp_path).of_pod(UID, frozenset({CONTAINER}))
    assert found == (Limited(CONTAINER, 4096, 1000),)


def test_limits_of_version_2(tmp_path: Path) -> None:
    limited(tmp_path, cgroup__controllers="memory")
    name = f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    pod = tmp_path / "kubepods.slice" / "kubepods-burstable.slice" / name
    stat = "inactive_file 0\n"
    limited(pod, memory__max=str(8192 << 20), memory__current=str(300 << 20), memory__stat=stat)
    limited(pod / f"cri-containerd-{CONTAINER}.scope", memory__max="max\n", memory__current="1")
    limits = MemoryLimits(tmp_path)
    assert limits.of_pod(UID, frozenset({CONTAINER})) == (Limited("", 8192, 300),)
    assert limits.of_pod("other", frozenset()) == ()


def test_of_what_lies_in_a_pod_only_containers_count_each_with_its_own_limit(tmp_path: Path) -> None:
    """A sandbox may have a limit too, of a few MiB: what the pod has on its cards is not to fit into that."""
    limited(tmp_path, cgroup__controllers="memory")
    pod = tmp_path / "kubepods" / f"pod{UID}"
    ids = {"ab" * 32: 4_000, "cd" * 32: 2_000}
    for name, mib in {**ids, "ef" * 32: 16}.items():
        stat = "inactive_file 0\n"
        limited(pod / name, memory__max=str(mib << 20), memory__current="1048576", memory__stat=stat)
    limits = MemoryLimits(tmp_path)
    expected = tuple(Limited(name, mib, 1) for name, mib in ids.items())
    assert limits.of_pod(UID, frozenset(ids)) == expected
    limits.forget(frozenset({UID}))
    assert limits.known == {UID: pod}
    limits.forget(frozenset())
    assert limits.known == {}
    assert limits.of_pod(UID, frozenset(ids)) == expected


@pytest.mark.parametrize("version", [1, 2])
def test_what_all_pods_may_have_together_is_a_limit_too(tmp_path: Path, version: int) -> None:
    """The kubelet's limit. There files count as on the host: all can be read again."""
    if version == 1:
        above = tmp_path / "memory" / "kubepods"
        pod = above / "burstable" / f"pod{UID}"
        files = ("memory__limit_in_bytes", "memory__usage_in_bytes", "total_")
    else:
        limited(tmp_path, cgroup__controllers="memory")
        above = tmp_path / "kubepods.slice"
        pod = above / "kubepods-burstable.slice" / f"kubepods-burstable-pod{UID.replace('-', '_')}.slice"
        files = ("memory__max", "memory__current", "")
    limit, use, total = files
    stat = f"{total}inactive_file {100 << 20}\n{total}active_file {700 << 20}\n"
    for folder in (above, pod):
        mib = {limit: str(9_000 << 20), use: str(5_000 << 20)}
        limited(folder, **mib, memory__stat=stat)
    limited(above.parent, **{limit: str(1 << 20), use: "1"}, memory__stat=stat)  # of the tree itself
    assert MemoryLimits(tmp_path).of_pod(UID, frozenset()) == (
        Limited("", 9_000, 4_200, above=above.name),
        Limited("", 9_000, 4_900),
    )


def test_free_memory_of_the_host(tmp_path: Path) -> None:
    assert free_mib(tmp_path) == 0
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   2097152 kB\n")
    assert free_mib(tmp_path) == 2048
