"""The entry points as ``egpu_cuda_*.def`` declare them, and those that the library wraps."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).resolve().parents[2] / "device-plugin" / "native"
_FILES: Final = ("egpu_cuda_api.def", "egpu_cuda_memory.def", "egpu_cuda_rest.def")
_ROW: Final = re.compile(r"^EGPU_API(_T[SD][ZS])?\((\w+), (\w*) ?, (\d+), \(([^;]*?)\)\)\n", re.M | re.S)

LEFT_OUT: Final = frozenset({"cuInit", "cuGLInit", "cuGetExportTable"})
"""Not called by the tests: what every program calls before anything else, and private tables."""


@dataclass(frozen=True, slots=True)
class Row:
    """One exported symbol."""

    symbol: str
    base: str
    """What cuGetProcAddress calls it."""
    since: int
    """First CUDA version for which that name means this symbol, 12040 for 12.4."""
    per_thread: bool
    arguments: tuple[str, ...]
    """C types."""


@cache
def rows() -> dict[str, Row]:
    """All of them by symbol."""
    found: dict[str, Row] = {}
    for name in _FILES:
        for twin, base, suffix, since, text in _ROW.findall((NATIVE / "include" / name).read_text()):
            types = tuple(re.sub(r"\s+", " ", part).strip() for part in text.split(",") if part != "void")
            symbol = base + suffix
            found[symbol] = Row(symbol, base, int(since), False, types)
            if twin:
                symbol += twin.lower().replace("_t", "_pt")
                found[symbol] = Row(symbol, base, max(int(since), 7000), True, types)
    return found


@cache
def found_by_threads() -> frozenset[str]:
    """What cuGetProcAddress answers a program whose default stream is per thread: where a name has an entry
    point for that, no other. The look-up itself has one in the headers alone: no driver answers with it."""
    twins = {row.base for row in rows().values() if row.per_thread} - {"cuGetProcAddress"}
    return frozenset(name for name, row in rows().items() if row.per_thread == (row.base in twins))


@cache
def wrapped() -> frozenset[str]:
    """Symbols of libcuda that the library has a function for."""
    text = "".join((NATIVE / "lib" / f"symbols_{part}.def").read_text() for part in ("memory", "time"))
    return frozenset(re.findall(r"^EGPU_WRAP\((\w+)\)", text, re.M))
