"""vDCUs: one file each, which the vendor's library reads in the container.

The file names the compute units by a mask, and the memory. No call of the driver makes a vDCU, so none can
hang. A tenant with a library of their own may ignore the file, so strangers get whole cards.
"""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vc_egpu_node.files import write_atomically
from vc_egpu_node.vendors.base import CardReading
from vc_egpu_node.vendors.hygon.words import MOST_ON_NODE, MOST_PIPES, MOST_SLICES
from vc_egpu_node.vendors.slices import HeldSlice, SliceError, SliceWish

WORD_BITS: Final = 64
_TEMPLATE: Final = re.compile(r"^cu([1-9][0-9]{0,2})$")
_LINE: Final = re.compile(r"^([A-Za-z_]+): ?(.*)$")


class HygonSlicer:
    """Templates are called ``cu<compute units>``; their memory stands in the wish."""

    def __init__(self, folder: Path, card: Callable[[str], CardReading], others: Path) -> None:
        """``card`` asks the library of the card, and raises :class:`SliceError`. ``others``: where other
        tools leave files of their vDCUs, whose numbers stay theirs."""
        self._folder = folder
        self._card = card
        self._others = others
        self._lock = threading.Lock()

    def slices(self, uuid: str) -> tuple[HeldSlice, ...]:
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.slices`."""
        return tuple(held for owner, held in self._all() if owner == uuid)

    def make(self, wish: SliceWish) -> HeldSlice | None:
        """Write the file. Masks of one card have no unit in common."""
        found = _TEMPLATE.fullmatch(wish.template)
        if found is None or wish.memory_mib < 1:
            raise SliceError("not-supported", f"{wish.template} of {wish.memory_mib} MiB is no vDCU")
        with self._lock:
            card, wanted = self._card(wish.uuid), int(found[1])
            if card.others:
                raise SliceError("busy", f"card {wish.uuid} has vDCUs of another tool")
            everywhere = self._all()
            here = [held for owner, held in everywhere if owner == wish.uuid]
            taken = 0
            for held in here:
                taken |= _mask_of(held)
            free = [bit for bit in range(card.numbers.get("cu", 0)) if not taken >> bit & 1]
            left_mib = card.memory_mib - sum(held.memory_mib for held in here)
            if len(here) >= MOST_SLICES or len(free) < wanted or left_mib < wish.memory_mib:
                raise SliceError(
                    "no-room",
                    f"card {wish.uuid} has {len(here)} of {MOST_SLICES} vDCUs, {len(free)} compute units and "
                    f"{left_mib} MiB left",
                )
            number = _first({int(held.id) for _, held in everywhere} | self._foreign(), MOST_ON_NODE)
            pipe = _first({held.numbers["pipe"] for held in here}, MOST_PIPES)
            mask = sum(1 << bit for bit in free[:wanted])
            self._write(card, number, pipe, mask, wish)
        return next(held for held in self.slices(wish.uuid) if held.id == str(number))

    def _write(self, card: CardReading, number: int, pipe: int, mask: int, wish: SliceWish) -> None:
        low, high = mask & (1 << WORD_BITS) - 1, mask >> WORD_BITS
        text = "\n".join((
            f"PciBusId: {card.pci_bus_id}", f"cu_mask: 0x{low:016x}", f"cu_mask: 0x{high:016x}",
            f"cu_count: {mask.bit_count()}", f"mem: {wish.memory_mib} MiB",
            "device_id: 0",  # the index inside the container, not the host's
            f"vdev_id: {number}", f"pipe_id: {pipe}", "enable: 1", "",
        ))  # fmt: skip
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        path = self.file_of(number)
        path.with_suffix(".card").write_text(card.uuid, encoding="utf-8")
        write_atomically(path, text, flush=True)
        path.chmod(0o644)

    def file_of(self, number: int) -> Path:
        """The file of the vDCU with that number."""
        return self._folder / f"vdev{number}.conf"

    def destroy(self, uuid: str, slice_id: str) -> None:  # noqa: ARG002 - the protocol's
        """See :meth:`vc_egpu_node.vendors.slices.Slicer.destroy`."""
        path = self.file_of(int(slice_id))
        path.unlink(missing_ok=True)
        path.with_suffix(".card").unlink(missing_ok=True)

    def _all(self) -> list[tuple[str, HeldSlice]]:
        """(card's UUID, slice) of each file; a broken one is refused, for its mask is not known."""
        found = []
        for path in sorted(self._folder.glob("vdev*.conf")):
            try:
                uuid = path.with_suffix(".card").read_text(encoding="utf-8")
                found.append((uuid, _parsed(path.read_text(encoding="utf-8"))))
            except (OSError, ValueError, KeyError) as error:
                raise SliceError("failed", f"{path} is broken: {error}") from error
        return found

    def _foreign(self) -> set[int]:
        names = (re.fullmatch(r"vdev([0-9]+)\.conf", path.name) for path in self._others.glob("vdev*.conf"))
        return {int(name[1]) for name in names if name is not None}


def _parsed(text: str) -> HeldSlice:
    lines = [found for line in text.splitlines() if (found := _LINE.match(line))]
    values = {found[1]: found[2] for found in lines}
    low, high = (int(found[2], 16) for found in lines if found[1] == "cu_mask")
    numbers = {"vdev": int(values["vdev_id"]), "pipe": int(values["pipe_id"]), "low": low, "high": high}
    memory_mib = int(values["mem"].removesuffix("MiB"))
    template = f"cu{int(values['cu_count'])}"
    return HeldSlice(values["vdev_id"], template, memory_mib=memory_mib, numbers=numbers)


def _mask_of(held: HeldSlice) -> int:
    return held.numbers["low"] | held.numbers["high"] << WORD_BITS


def _first(taken: set[int], most: int) -> int:
    number = next((one for one in range(most) if one not in taken), None)
    if number is None:
        raise SliceError("no-room", f"all {most} numbers of vDCUs are taken")
    return number
