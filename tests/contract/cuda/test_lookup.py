"""cuGetProcAddress: what a name means to programs of a CUDA version, on the fake and real drivers alike."""

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_int, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from contract.cuda.binding import INVALID_VALUE, NOT_FOUND
from contract.cuda.libraries import DRIVERS, name_of
from symbols.rows import meant, rows

FOUND, NO_SUCH_NAME, TOO_OLD = 0, 1, 2
DEFAULT, LEGACY, PER_THREAD, BOTH = 0, 1, 2, 3
UNTOUCHED: Final = 7
NOWHERE: Final = frozenset({"cuEventCreateFromEGLSync"})
"""The headers name it; no driver for x86-64 that we have seen exports it or finds it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Of the first call of that name, from 11.3, or of the second, from 12.0 (which tells a status)."""

    code: int
    address: int | None
    status: int | None = None


class LookUp:
    """The calls of one library that look names up."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        version = c_int()
        assert self.library.cuDriverGetVersion(byref(version)) == 0
        self.version = version.value
        self._old = self.library.cuGetProcAddress
        self._old.argtypes = [ctypes.c_char_p, c_void_p, c_int, c_uint64]
        self._new = getattr(self.library, "cuGetProcAddress_v2", None)
        if self._new:
            self._new.argtypes = [*self._old.argtypes, c_void_p]

    def old(self, name: str, version: int, flags: int = DEFAULT) -> Answer:
        """cuGetProcAddress as in 11.3."""
        at = c_void_p(UNTOUCHED)
        code = self._old(name.encode(), byref(at), version, flags)
        return Answer(code, at.value)

    def new(self, name: str, version: int, flags: int = DEFAULT) -> Answer:
        """cuGetProcAddress as in 12.0; skips where the driver has only the old one."""
        if not self._new:
            pytest.skip("this driver is older than 12.0")
        at, status = c_void_p(UNTOUCHED), c_int(-1)
        code = self._new(name.encode(), byref(at), version, flags, byref(status))
        return Answer(code, at.value, status.value)

    def export(self, symbol: str) -> int | None:
        """Where it is; None: not exported."""
        function = getattr(self.library, symbol, None)
        return ctypes.cast(function, c_void_p).value if function else None


@pytest.fixture(scope="module", params=[None, *DRIVERS], ids=lambda path: name_of(path) if path else "fake")
def driver(
    request: pytest.FixtureRequest, fake_library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LookUp]:
    state = tmp_path_factory.mktemp("lookup") / "nvml.state"
    state.write_text(
        "driver=580.65.06\ncuda=13000\ncard=GPU-00000000-0000-4000-8000-000000000001\nmemory_mib=16384\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FAKE_NVML_STATE", str(state))
        yield LookUp(request.param or fake_library)


def _names(version: int) -> list[str]:
    """Those of a driver of that version."""
    return sorted({row.base for row in rows().values() if row.since <= version} - NOWHERE)


@pytest.mark.parametrize("flags", [DEFAULT, LEGACY, PER_THREAD, BOTH])
def test_a_name_means_the_newest_entry_point_of_the_version(driver: LookUp, flags: int) -> None:
    names = _names(driver.version)
    since = {row.since for row in rows().values() if row.since <= driver.version}
    wrong = []
    for name in names:
        for version in sorted(since | {1000, 6050, driver.version}):
            symbol = meant(name, version, per_thread=bool(flags & PER_THREAD), driver=driver.version)
            answer = driver.old(name, version, flags)
            wanted = Answer(0, driver.export(symbol)) if symbol else Answer(NOT_FOUND, UNTOUCHED)
            if answer != wanted or (symbol and not answer.address):
                wrong.append((name, version, symbol, answer))
    assert wrong == []


def test_the_second_call_tells_why_there_is_nothing(driver: LookUp) -> None:
    assert driver.new("cuMemAlloc", 12000) == Answer(0, driver.export("cuMemAlloc_v2"), FOUND)
    assert driver.new("cuMemAlloc", 1000) == Answer(0, None, TOO_OLD)
    assert driver.new("cuLaunchKernel", 6050, PER_THREAD) == Answer(0, None, TOO_OLD)
    for unknown in ("cuNothingOfTheKind", "cuMemAlloc_v2", "cuLaunchKernel_ptsz", ""):
        assert driver.new(unknown, 12000) == Answer(0, None, NO_SUCH_NAME)
        assert driver.old(unknown, 12000) == Answer(NOT_FOUND, UNTOUCHED)


def test_a_version_that_is_not_yet_gets_the_drivers_newest(driver: LookUp) -> None:
    """Minus one too: versions have no sign."""
    for name in _names(driver.version):
        symbol = meant(name, driver.version, per_thread=False, driver=driver.version)
        assert symbol
        for version in (driver.version + 10, 99000, -1):
            assert driver.old(name, version) == Answer(0, driver.export(symbol)), (name, version)


@pytest.mark.parametrize("flags", [4, 8, 1 << 40])
def test_flags_that_nobody_knows(driver: LookUp, flags: int) -> None:
    assert driver.old("cuMemAlloc", 12000, flags) == Answer(INVALID_VALUE, UNTOUCHED)
    assert driver.new("cuMemAlloc", 12000, flags) == Answer(INVALID_VALUE, UNTOUCHED, -1)


def test_the_five_arguments_of_graphs_stay_with_their_name(driver: LookUp) -> None:
    """Headers of 12.0 call another function so, with three arguments; who asks for it asks for WithFlags."""
    for version in (11000, 11040, 12000, driver.version):
        assert driver.old("cuGraphInstantiate", version).address == driver.export("cuGraphInstantiate_v2")
