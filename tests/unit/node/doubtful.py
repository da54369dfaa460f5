"""Pages as containers write them, and a host's /proc, for tests of who looks at them."""

import shutil
from pathlib import Path

from vc_egpu_node.isolation import abi

CARD = "GPU-0"
MIB = 1 << 20


def usage_page(*slots: tuple[int, int, int, int, int], magic: int = abi.USAGE_MAGIC) -> bytearray:
    """(pid, start, contexts, device MiB, managed MiB) on card 0."""
    page = abi.UsagePage(magic=magic, abi_major=1, bytes=abi.USAGE_BYTES, slots_used=len(slots))
    for target, (pid, start, contexts, device, managed) in zip(page.slots, slots, strict=False):
        target.owner, target.contexts = pid | start << 32, contexts
        target.cards[0].device, target.cards[0].managed = device * MIB, managed * MIB
    return bytearray(bytes(page))


def activity_page(**fields: int) -> bytes:
    data = bytearray(abi.ACTIVITY_BYTES)
    page = abi.ActivityPage.from_buffer(data)
    page.magic = abi.ACTIVITY_MAGIC
    for name, value in fields.items():
        setattr(page.cards[0], name, value)
    return bytes(data)


class Proc:
    """A host's /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(
        self,
        pid: int,
        uid: str,
        container: str,
        *,
        own: int | None = None,
        start: int = 5,
        flags: int = 0,
        state: str = "S",
    ) -> None:
        target = self.folder / str(pid)
        target.mkdir(exist_ok=True)
        (target / "cgroup").write_text(f"0::/kubepods/pod{uid}/{container}\n" if uid else "0::/\n")
        (target / "stat").write_text(f"{pid} (x) {state} {'0 ' * 5}{flags} {'0 ' * 12}{start} 0")
        (target / "status").write_text(f"NSpid:\t{pid}\t{own or pid}\n")

    def remove(self, pid: int) -> None:
        """It has ended."""
        shutil.rmtree(self.folder / str(pid))
