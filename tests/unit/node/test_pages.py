"""Control pages: their layout against a C compiler's, what they say, and how they change under readers."""

import ctypes
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.node.granted import grant, page_of
from vc_egpu_node import abi
from vc_egpu_node.beyond import Beyond
from vc_egpu_node.control import (
    CardFacts,
    Control,
    ControlError,
    Limit,
    decode,
    encode,
    neighbours,
)
from vc_egpu_node.pages import ControlFile

ABI = Path(__file__).resolve().parents[3] / "device-plugin" / "native" / "abi"
NATIVE = ABI.parent
CONSTANTS = {
    "EGPU_CONTROL_MAGIC": abi.CONTROL_MAGIC,
    "EGPU_ABI_MAJOR": abi.ABI_MAJOR,
    "EGPU_ABI_MINOR": abi.ABI_MINOR,
    "EGPU_MAX_CARDS": abi.MAX_CARDS,
    "EGPU_MAX_PEERS": abi.MAX_PEERS,
    "EGPU_NAME_BYTES": abi.NAME_BYTES,
    "EGPU_CLASS_UNSET": abi.CLASS_UNSET,
    "EGPU_CLASS_LOW": abi.CLASS_LOW,
    "EGPU_CLASS_HIGH": abi.CLASS_HIGH,
    "EGPU_CORES_FREE": abi.CORES_FREE,
    "EGPU_CORES_HARD": abi.CORES_HARD,
    "EGPU_CORES_SOFT": abi.CORES_SOFT,
    "EGPU_CARD_SPILL": abi.CARD_SPILL,
    "EGPU_CARD_HIGH_HERE": abi.CARD_HIGH_HERE,
    "EGPU_USAGE_MAGIC": abi.USAGE_MAGIC,
    "EGPU_USAGE_SLOTS": abi.USAGE_SLOTS,
    "EGPU_USAGE_SHARED": abi.USAGE_SHARED,
    "EGPU_ACTIVITY_MAGIC": abi.ACTIVITY_MAGIC,
    "EGPU_ACTIVITY_CARDS": abi.MAX_CARDS,
    "EGPU_ACTIVITY_BYTES": abi.ACTIVITY_BYTES,
}
PATHS = {
    "EGPU_CONTROL_PATH": abi.CONTROL_PATH,
    "EGPU_SEED_PATH": abi.SEED_PATH,
    "EGPU_USAGE_PATH": abi.USAGE_PATH,
    "EGPU_ACTIVITY_PATH": abi.ACTIVITY_PATH,
    "EGPU_PEERS_FOLDER": abi.PEERS_FOLDER,
}
PARTS = {"egpu_activity": 0, "egpu_activity_card": abi.ACTIVITY_CARD_BYTES}
"""Mirrored from the start, not to the end; of those in arrays the size has to be right all the same."""
MIRRORS: dict[str, dict[str, type[ctypes.Structure]]] = {
    "control.h": {
        "egpu_control_card": abi.ControlCard,
        "egpu_control_peer": abi.ControlPeer,
        "egpu_control": abi.ControlPage,
    },
    "usage.h": {
        "egpu_usage_bytes": abi.UsageBytes,
        "egpu_usage_slot": abi.UsageSlot,
        "egpu_usage_shared": abi.UsageShared,
        "egpu_usage": abi.UsagePage,
    },
    "activity.h": {
        "egpu_activity_card": abi.ActivityCard,
        "egpu_activity": abi.ActivityPage,
    },
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Compiles a C program and gives its path; with the compiler that the native parts are built with."""
    folder = tmp_path_factory.mktemp("c")
    found = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    zig = NATIVE / "build" / "zig" / "bin" / "python"
    compiler = [found] if found else [str(zig), "-m", "ziglang", "cc"]

    def build(text: str) -> str:
        source = folder / f"{abs(hash(text))}.c"
        source.write_text(text)
        target = source.with_suffix("")
        flags = ["-std=c17", "-O1", "-Wall", "-Werror", f"-I{NATIVE}"]
        subprocess.run([*compiler, *flags, "-o", target, source], check=True)
        return str(target)

    return build


# --- layout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", sorted(MIRRORS))
def test_the_mirror_has_the_layout_of_the_header(header: str, compiled: Callable[[str], str]) -> None:
    expected, lines = [], []
    for name, mirror in MIRRORS[header].items():
        if PARTS.get(name, 1):
            expected.append(f"{name} {ctypes.sizeof(mirror)}")
            lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        for field_name, *_ in mirror._fields_:
            if field_name == "rest":
                continue
            own = getattr(mirror, field_name)
            expected.append(f"{name}.{field_name} {own.offset} {own.size}")
            lines.append(f'printf("{name}.{field_name} %zu %zu\\n", offsetof(struct {name}, {field_name}), '
                         f"sizeof(((struct {name} *)0)->{field_name}));")  # fmt: skip
    body = "\n".join(lines)
    program = compiled(
        f'#include <stdio.h>\n#include "abi/{header}"\nint main(void) {{ {body} return 0; }}\n'
    )
    assert subprocess.run([program], check=True, capture_output=True, text=True).stdout.split("\n") == [
        *expected,
        "",
    ]


def test_no_field_of_the_header_is_missing() -> None:
    for header, mirrors in MIRRORS.items():
        text = re.sub(r"/\*.*?\*/", "", (ABI / header).read_text(), flags=re.DOTALL)
        for name, mirror in mirrors.items():
            body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.DOTALL)
            assert body is not None
            declared = re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", body[1])
            mirrored = [entry[0] for entry in mirror._fields_ if entry[0] != "rest"]
            assert declared[: len(mirrored)] == mirrored, name
            assert name in PARTS or len(declared) == len(mirrored), name


def test_constants(compiled: Callable[[str], str]) -> None:
    lines = [f'printf("%lld\\n", (long long){name});' for name in CONSTANTS]
    lines += [f'printf("%s\\n", {name});' for name in PATHS]
    program = compiled(
        '#include <stdio.h>\n#include "abi/usage.h"\n#include "abi/activity.h"\nint main(void) {'
        + "\n".join(lines)
        + "return 0; }\n"
    )
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert said == [*(str(value) for value in CONSTANTS.values()), *PATHS.values()]
    assert abi.ControlPage.sequence.offset == abi.SEQUENCE_OFFSET
    assert abi.SEQUENCE_OFFSET % 8 == 0


# --- what a page says --------------------------------------------------------------------------------


def test_limits_of_each_card() -> None:
    one = grant("a", ("GPU-1", 1000, 25), ("GPU-0", 2000, 0), core_policy="soft", share_class="low")
    page = page_of([one], "a", facts={("a", "GPU-0"): CardFacts("00000000:1A:00.0", 77)})
    assert [limit.uuid for limit in page.limits] == ["GPU-1", "GPU-0"]
    first, second = page.limits
    assert (first.memory_bytes, first.physical_bytes) == (1000 << 20, 1000 << 20)
    assert (first.core_policy, first.cores_percent, first.weight) == (abi.CORES_SOFT, 25, 25)
    assert (second.core_policy, second.cores_percent, second.weight) == (abi.CORES_FREE, 100, 1)
    assert (second.pci_bus_id, second.context_bytes) == ("00000000:1A:00.0", 77)
    assert page.own_class == abi.CLASS_LOW
    assert page.peers == ()


def test_what_may_spill_is_told_how_much_lies_on_the_card() -> None:
    plain = grant("a", ("GPU-0", 2000, 0), ("GPU-1", 1000, 0))
    first, second = plain.shares
    parted = first.model_copy(update={"physical_mib": 500})
    page = page_of([dataclasses.replace(plain, shares=(parted, second))], "a")
    spills, stays = page.limits
    assert (spills.memory_bytes, spills.physical_bytes) == (2000 << 20, 500 << 20)
    assert spills.flags & abi.CARD_SPILL
    assert not stays.flags & abi.CARD_SPILL
    assert page.host_memory_mib == 1500


def test_peers_by_card_and_by_pod() -> None:
    low = grant("low", ("GPU-0", 1, 10), ("GPU-1", 1, 10), share_class="low", pod_uid="P")
    sibling = grant("sibling", ("GPU-2", 1, 10), share_class="low", pod_uid="P")
    beside = grant("beside", ("GPU-9", 1, 10), ("GPU-1", 1, 10), ("GPU-0", 1, 10))
    high = grant("high", ("GPU-2", 1, 10), share_class="high")
    far = grant("far", ("GPU-8", 1, 10))
    everyone = [low, sibling, beside, high, far]
    page = page_of(everyone, "low")
    assert [peer.name for peer in page.peers] == ["high", "beside"]
    held_by, shares = page.peers
    assert (held_by.peer_class, held_by.cards, held_by.pod_cards) == (abi.CLASS_HIGH, 0, 0b1)
    assert (shares.cards, shares.pod_cards, shares.card_of) == (0b11, 0b110, (2, 1))
    assert not any(limit.flags & abi.CARD_HIGH_HERE for limit in page.limits)
    on_high = page_of(everyone, "sibling")
    assert on_high.limits[0].flags & abi.CARD_HIGH_HERE
    assert [peer.name for peer in on_high.peers] == ["high", "beside"]
    assert page_of(everyone, "far").peers == ()


def test_containers_of_one_pod_on_one_card_are_peers() -> None:
    pair = [grant("a", ("GPU-0", 1, 10), pod_uid="P"), grant("b", ("GPU-0", 1, 10), pod_uid="P")]
    assert [peer.name for peer in page_of(pair, "a").peers] == ["b"]
    assert page_of(pair, "a", paged=frozenset({"a"})).peers == ()


def test_who_has_to_hear_of_a_change() -> None:
    low = grant("low", ("GPU-0", 1, 10), pod_uid="P")
    sibling = grant("sibling", ("GPU-1", 1, 10), pod_uid="P")
    other, far = grant("other", ("GPU-0", 1, 10)), grant("far", ("GPU-5", 1, 1))
    came = grant("came", ("GPU-1", 1, 10), share_class="high")
    assert neighbours([low, sibling, other, far, came], [came]) == {"low", "sibling", "came"}
    assert neighbours([low, sibling, other, far], [came]) == {"low", "sibling"}


def test_too_many_peers_keep_the_high_ones() -> None:
    many = [grant(f"n{n:03}", ("GPU-0", 1, 0), share_class="low") for n in range(150)]
    high = grant("z-high", ("GPU-0", 1, 0), share_class="high")
    page = page_of([*many, high], "n000")
    assert len(page.peers) == abi.MAX_PEERS
    assert page.peers[0].name == "z-high"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ([(f"GPU-{n}", 1, 0) for n in range(17)], "17 cards for one container, the library knows 16"),
        ([("G" * 48, 1, 0)], "more than 47 bytes"),
    ],
)
def test_what_does_not_fit_a_page_is_refused(changed: list[tuple[str, int, int]], text: str) -> None:
    with pytest.raises(ControlError, match=text):
        page_of([grant("a", *changed)], "a")


def test_pages_are_read_back() -> None:
    everyone = [
        grant("a", ("GPU-1", 10, 5), ("GPU-0", 20, 0)),
        grant("b", ("GPU-0", 1, 1), share_class="high"),
    ]
    beyond = Beyond((0, 6 << 20), ((5 << 32 | 71, 1, 4 << 20),))
    page = dataclasses.replace(page_of(everyone, "a"), suspended=True, host_memory_mib=7, beyond=beyond)
    data = encode(page, sequence=4, generation=9)
    assert len(data) == abi.CONTROL_BYTES
    assert decode(data) == page
    assert decode(data[:-1]) is None
    assert decode(b"\0" * len(data)) is None
    assert decode(data[:4] + b"\x02" + data[5:]) is None
    odd = abi.ControlPage.from_buffer_copy(data)
    odd.card_count = abi.MAX_CARDS + 1
    assert decode(bytes(odd)) is None


def test_only_who_is_suspended_waits() -> None:
    everyone = [grant("a", ("GPU-0", 1, 10)), grant("b", ("GPU-0", 1, 10))]
    assert [page_of(everyone, name, suspended=frozenset({"b"})).suspended for name in ("a", "b")] == [
        False, True,
    ]  # fmt: skip


def test_of_peers_of_one_class_those_on_the_containers_own_cards_come_first() -> None:
    everyone = [
        grant("own", ("GPU-0", 1, 10), pod_uid="P"),
        grant("sibling", ("GPU-1", 1, 10), pod_uid="P"),
        grant("a-beside-the-sibling", ("GPU-1", 1, 10)),
        grant("z-beside", ("GPU-0", 1, 10)),
    ]
    assert [peer.name for peer in page_of(everyone, "own").peers] == ["z-beside", "a-beside-the-sibling"]


# --- its file ----------------------------------------------------------------------------------------


def small(mib: int, peers: int = 0) -> Control:
    limits = tuple(Limit(f"GPU-{n}", "", mib << 20, mib << 20, 0, 100, 0, 1, 0) for n in range(16))
    return Control("c", 0, limits, page_of([grant("x", ("GPU-0", 1, 1))], "x").peers * peers)


def test_a_page_is_changed_in_place_and_counted(tmp_path: Path) -> None:
    file = ControlFile(tmp_path / "control")
    assert file.read() is None
    assert file.put(small(1))
    inode = file.path.stat().st_ino
    assert not file.put(small(1))
    assert file.put(small(2))
    assert file.read() == small(2)
    status = file.path.stat()
    assert (status.st_ino, status.st_size, status.st_mode & 0o777) == (inode, abi.CONTROL_BYTES, 0o644)
    page = abi.ControlPage.from_buffer_copy(file.path.read_bytes())
    assert (page.sequence, page.generation) == (2, 2)


def test_a_page_whose_writer_died_is_finished(tmp_path: Path) -> None:
    file = ControlFile(tmp_path / "control")
    file.path.write_bytes(encode(small(5), sequence=7, generation=3))
    assert file.put(small(5))
    page = abi.ControlPage.from_buffer_copy(file.path.read_bytes())
    assert (page.sequence, page.generation) == (8, 4)
    with file.path.open("r+b") as raw:
        raw.truncate(100)
    assert file.put(small(5))
    assert file.read() == small(5)


def test_a_page_of_another_agents_is_made_ours(tmp_path: Path) -> None:
    """A later one's is longer; one of the same length may say another version."""
    file = ControlFile(tmp_path / "control")
    file.put(small(1))
    wanted = encode(small(1), sequence=0, generation=0)
    ours = file.path.read_bytes()
    file.path.write_bytes(ours + bytes(4096))
    assert not file.says(wanted)
    file.put(small(1))
    assert file.path.read_bytes() == ours
    older = abi.ControlPage.from_buffer_copy(ours)
    older.abi_minor += 1
    file.path.write_bytes(bytes(older))
    assert not file.says(wanted)
    assert file.put(small(1))
    assert file.says(wanted)
    file.path.write_bytes(encode(small(1), sequence=7, generation=1))
    assert not file.says(wanted), "its writer died in the middle"


ON_A_FULL_DISK = """
import pathlib, subprocess, sys
from unit.node.test_pages import small
from vc_egpu_node.pages import ControlFile
folder = pathlib.Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder], check=True)
file = ControlFile(folder / "control")
file.put(small(1))
with file.path.open("r+b") as raw:
    raw.truncate(4096)
try:
    (folder / "others").write_bytes(bytes(1 << 20))
except OSError:
    pass
try:
    file.put(small(2))
except OSError as error:
    print(error.strerror)
(folder / "others").unlink()
file.put(small(2))
print(file.read() == small(2))
"""
PRIVATE = ["unshare", "--mount", "--map-root-user"]


@pytest.mark.skipif(
    subprocess.run([*PRIVATE, "true"], capture_output=True, check=False).returncode != 0,
    reason="no mount namespaces here",
)
def test_a_page_that_has_to_grow_on_a_full_disk_is_an_error_and_no_signal(tmp_path: Path) -> None:
    """As after an upgrade, by which pages became longer: it would end the agent again and again."""
    run = subprocess.run(
        [*PRIVATE, sys.executable, "-c", ON_A_FULL_DISK, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (run.returncode, run.stdout) == (0, "No space left on device\nTrue\n"), run.stderr


READER = """
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "abi/control.h"
/* Copies the page under its lock until told "enough" memory; every copy must be of one piece. */
int main(int argc, char **argv) {
    (void)argc;
    int fd = open(argv[1], O_RDONLY);
    const struct egpu_control *page = mmap(0, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
    const _Atomic uint64_t *lock = (const _Atomic uint64_t *)&page->sequence;
    static struct egpu_control copy;
    uint64_t last = 0, changes = 0;
    if (write(1, "r", 1) != 1) return 5;
    for (time_t began = time(0); time(0) - began < 60;) {
        uint64_t before = atomic_load_explicit(lock, memory_order_acquire);
        if (before & 1) continue;
        memcpy(&copy, (const void *)page, sizeof copy);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(lock, memory_order_relaxed) != before) continue;
        uint64_t mib = copy.cards[0].memory_bytes >> 20;
        for (int i = 1; i < 16; i++)
            if (copy.cards[i].memory_bytes >> 20 != mib) return 1;
        if (copy.reserved[0] || mib < last) return 2;
        changes += mib != last;
        last = mib;
        if (mib >= 1000) return changes > 2 ? 0 : 3;
    }
    return 4;
}
"""


def test_a_reader_never_sees_half_a_change(tmp_path: Path, compiled: Callable[[str], str]) -> None:
    file = ControlFile(tmp_path / "control")
    file.put(small(1))
    program = compiled(READER)
    with subprocess.Popen([program, file.path], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.read(1) == b"r"
        for mib in range(2, 1001):
            file.put(small(mib))
        assert reader.wait(60) == 0
