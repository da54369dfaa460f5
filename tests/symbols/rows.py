"""The entry points as ``egpu_cuda_*.def`` declare them, and those that the library wraps."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).resolve().parents[2] / "device-plugin" / "native"
_FILES: Final = ("egpu_cuda_api.def", "egpu_cuda_memory.def", "egpu_cuda_rest.def")
_ROW: Final = re.compile(r"^EGPU_API(_T[SD][ZS])?\((\w+), (\w*) ?, (\d+), \(([^;]*?)\)\)\n", re.M | re.S)

NEWEST: Final = 99_999
"""Later than any CUDA."""
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
def _by_name(driver: int, per_thread: bool) -> dict[str, tuple[Row, ...]]:
    """Entry points that cuGetProcAddress of a driver of that version may answer, by name, to programs whose
    default stream is per thread (or is not): where a name has one for that, no other. The look-up itself has
    one in the headers alone: no driver answers with it."""
    known = [row for row in rows().values() if row.since <= driver]
    twins = {row.base for row in known if row.per_thread} - {"cuGetProcAddress"} if per_thread else set()
    found: dict[str, tuple[Row, ...]] = {}
    for row in known:
        if row.per_thread == (row.base in twins):
            found[row.base] = (*found.get(row.base, ()), row)
    return found


def meant(name: str, version: int, *, per_thread: bool, driver: int = NEWEST) -> str:
    """The symbol that a name means to a program of that CUDA version; empty: none that headers tell of."""
    fit = [row for row in _by_name(driver, per_thread).get(name, ()) if row.since <= version]
    return max(fit, key=lambda row: row.since).symbol if fit else ""


@cache
def found_by_threads() -> frozenset[str]:
    """What cuGetProcAddress answers some program whose default stream is per thread."""
    return frozenset(row.symbol for entries in _by_name(NEWEST, True).values() for row in entries)


@cache
def wrapped() -> frozenset[str]:
    """Symbols of libcuda that the library has a function for."""
    base = NATIVE / "lib" / "base"
    text = "".join((base / f"symbols_{part}.def").read_text() for part in ("memory", "time"))
    return frozenset(re.findall(r"^EGPU_WRAP\((\w+)\)", text, re.M))
