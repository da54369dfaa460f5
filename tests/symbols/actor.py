"""A program that calls every entry point of the driver, found in one way, and says of each what came of it.

    python -m symbols.actor WAY FOLDER KERNELS CONTROL

WAY is ``direct``, ``dlsym``, ``procaddress`` or ``procaddress-threads``; FOLDER holds the driver that tells
who called it (``make trace``); CONTROL is the page of limits, which is changed for what is called a second
time, with nothing left. One line of JSON for each call, see :class:`Outcome`.
"""

import ctypes
import json
import sys
import time
from ctypes import byref, c_int, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from unit.native.memory_worlds import UUIDS, Share, control_page

from symbols.arguments import arguments, ctype
from symbols.rows import LEFT_OUT, Row, found_by_threads, rows, wrapped
from symbols.scene import Scene

SOFT: Final = 2
"""Launches are looked at; nothing else limits them here."""
WANTED_AT: Final = 88
"""In the page of activity: when a launch on the first card was last made, or waited for its turn."""

TICK_S: Final = 0.0015
"""More than the page of activity tells launches apart by."""

PLENTY: Final = 3 << 30
"""Bytes of each of two cards."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one call."""

    symbol: str
    full: bool
    """The container's share was used up."""
    code: int
    by: str
    """Who entered the driver under that name: "library", "program"; "": nobody did."""
    bytes: int
    """That the card gave for it; less than 0: got back."""
    charged: int
    """The same by what the container is told is free."""
    ns: int
    """That the card worked for it."""
    gated: bool
    """It went through the gate for work."""


class Program:
    """Finds the driver in one way, and calls it."""

    def __init__(self, way: str, folder: Path, kernels: bytes, control: Path) -> None:
        self.way = way
        self.driver = ctypes.CDLL(str(folder / "libcuda.so.1"), mode=ctypes.RTLD_GLOBAL)
        self.direct = ctypes.CDLL(str(folder / "libdirect.so")) if way == "direct" else None
        self.program = ctypes.CDLL(None)
        self.kernels = kernels
        self.control = control
        self.sequence = 2
        self.text = ctypes.create_string_buffer(1 << 16)
        for name in ("trace_used", "trace_busy", "trace_end"):
            getattr(self.driver, name).restype = c_int64
        self.driver.trace_end.argtypes = [c_void_p, c_size_t]

    def limit(self, bytes_: int) -> None:
        """On both cards, in place as the agent does."""
        self.sequence += 2
        page = control_page(
            (Share(uuid, bytes_, core_policy=SOFT) for uuid in UUIDS[:2]), sequence=self.sequence
        )
        with self.control.open("r+b") as file:
            file.write(page)

    def address(self, row: Row) -> int | None:
        """Where the program finds it; none: not in this way."""
        if self.way.startswith("procaddress"):
            return self._asked(row)
        if self.direct is not None:
            look = self.direct.direct_function
            found: tuple[object, ...] = (row.symbol.encode(),)
            look.argtypes = [ctypes.c_char_p]
        else:
            look = getattr(self.program, self.way)
            found = (self.driver._handle, row.symbol.encode())
            look.argtypes = [c_void_p, ctypes.c_char_p]
        look.restype = c_void_p
        address = look(*found)
        return address if isinstance(address, int) else None

    def _asked(self, row: Row) -> int | None:
        """A name means one of two symbols, by the default stream of who asks; or a newer one."""
        threads = self.way == "procaddress-threads"
        if row.symbol not in found_by_threads() if threads else row.per_thread:
            return None
        found, status = c_void_p(), c_int()
        flags = c_uint64(2 if threads else 0)
        ask = self.driver.cuGetProcAddress_v2
        ask(row.base.encode(), byref(found), row.since, flags, byref(status))
        return found.value

    def call(self, name: str, *values: object) -> int:
        """As any program in the container, by dlsym."""
        row = rows()[name]
        function = getattr(self.driver, name)
        function.argtypes, function.restype = [ctype(kind) for kind in row.arguments], c_int
        return int(function(*values))

    def again(self) -> None:
        """The primary context is current, whatever the last call did to it, and nothing is under way."""
        context, active, flags = c_uint64(), c_int(), c_int()
        self.call("cuDevicePrimaryCtxGetState", 0, ctypes.addressof(flags), ctypes.addressof(active))
        self.call("cuDevicePrimaryCtxRetain", ctypes.addressof(context), 0)
        if active.value:
            self.call("cuDevicePrimaryCtxRelease_v2", 0)
        self.call("cuCtxSetCurrent", context.value)
        self.call("cuCtxSynchronize")

    def free(self) -> int:
        """Bytes, as the container sees it."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.addressof(free), ctypes.addressof(total))
        return free.value

    def wanted(self) -> bytes:
        """Changes with each launch."""
        page = self.control.parents[2] / "run/egpu/activity"
        with page.open("rb") as file:
            file.seek(WANTED_AT)
            return file.read(8)

    def tried(self, row: Row, address: int, *, full: bool) -> Outcome:
        """Calls it once."""
        scene = Scene(self.call, self.kernels)
        values = arguments(scene, row)
        function = ctypes.CFUNCTYPE(c_int, *map(ctype, row.arguments))(address)
        self.call("cuCtxSynchronize")
        time.sleep(TICK_S)
        free, wanted = self.free(), self.wanted()
        used, busy = self.driver.trace_used(0), self.driver.trace_busy(0)
        if full:
            self.limit(1 << 20)
        self.driver.trace_begin()
        code = function(*values)
        self.driver.trace_end(self.text, len(self.text))
        if full:
            self.limit(PLENTY)
        entered = dict(line.split() for line in self.text.value.decode().splitlines())
        gated = self.wanted() != wanted
        self.again()
        given, charged = self.driver.trace_used(0) - used, free - self.free()
        worked = self.driver.trace_busy(0) - busy
        scene.close()
        self.again()
        by = entered.get(row.symbol, "")
        return Outcome(row.symbol, full, code, by, given, charged, worked, gated)


def main(way: str, folder: str, kernels: str, control: str) -> None:
    """All of them, in the order of their names."""
    program = Program(way, Path(folder), Path(kernels).read_bytes(), Path(control))
    assert program.call("cuInit", 0) == 0
    program.again()
    for symbol, row in sorted(rows().items()):
        address = None if symbol in LEFT_OUT else program.address(row)
        if address:
            print(json.dumps(asdict(program.tried(row, address, full=False))))
            if symbol in wrapped():
                print(json.dumps(asdict(program.tried(row, address, full=True))))


if __name__ == "__main__":
    main(*sys.argv[1:5])
