"""Control pages as files: changed in place under readers, whatever a writer before left."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from unit.node.granted import grant, page_of
from vc_egpu_node.isolation import abi
from vc_egpu_node.isolation.control import Control, Limit, encode
from vc_egpu_node.isolation.pages import ControlFile


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
from unit.node.test_page_files import small
from vc_egpu_node.isolation.pages import ControlFile
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
