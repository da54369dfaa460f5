"""Every entry point of the driver, called in every way: what is limited is, and the rest need not be.

The fake driver of these tests tells who entered it. What is called, and with what, is in ``tests/symbols``.
"""

import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from symbols.actor import PLENTY, SOFT, Outcome
from symbols.headers import committed, from_wheels
from symbols.rows import LEFT_OUT, NATIVE, found_by_threads, rows, wrapped
from symbols.table import DOCUMENT, DONE, REPOSITORY, Group, document, groups
from unit.native.memory_worlds import BUILD, OK, OUT_OF_MEMORY, UUIDS, Share, World

TESTS = REPOSITORY / "tests"
WAYS = ("direct", "dlsym", "procaddress", "procaddress-threads")
ACTIVITY_BYTES = 40960
ONLY_REFERENCES = frozenset({"cuMemFree", "cuIpcCloseMemHandle"})
"""Of memory that these tests cannot make: addresses of 32 bits, and what another process passed on."""

OTHER_CARD = frozenset({"cuDevicePrimaryCtxRetain", "cuGreenCtxCreate"})
"""Called for a card that has no context yet, where nobody looks."""

GROUPS = groups(wrapped())
KERNELS = NATIVE / "programs" / "kernels.ptx"
Outcomes = dict[tuple[str, bool], Outcome]
"""By symbol, and whether nothing was left when it was called."""


def _said(way: str, folder: Path, scratch: Path) -> str:
    """What a program says that finds the driver of ``folder``, which tells who called it, in that way."""
    world = World(scratch, [Share(uuid, PLENTY, core_policy=SOFT) for uuid in UUIDS[:2]])
    (world.usage.parent / "activity").write_bytes(bytes(ACTIVITY_BYTES))
    run = subprocess.run(
        [sys.executable, "-m", "symbols.actor", way, folder, KERNELS, world.control],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env=world.environment(
            preload=str(folder / "libvgpu-egpu.so"), LD_LIBRARY_PATH=str(folder), PYTHONPATH=str(TESTS)
        ),
    )
    world.close()
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module", params=WAYS)
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Of all calls by a program that finds the driver in that way: run once for all test processes."""
    ours = tmp_path_factory.getbasetemp()
    common = ours.parent if os.environ.get("PYTEST_XDIST_WORKER") else ours
    file = common / f"symbols-{request.param}"
    with (common / "symbols.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            subprocess.run(["make", "-s", "-C", NATIVE, f"OUT={BUILD}", "trace"], check=True, timeout=280)
            file.write_text(_said(request.param, BUILD / "trace", tmp_path_factory.mktemp("symbols")))
    said = [Outcome(**json.loads(line)) for line in file.read_text().splitlines()]
    return {(one.symbol, one.full): one for one in said}


def _way(request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["outcomes"])


def _of(outcomes: Outcomes, group: Group, *, full: bool = False) -> list[Outcome]:
    return [outcomes[(one.name, full)] for one in group.symbols if (one.name, full) in outcomes]


def test_each_is_called_in_each_way_that_leads_to_it(
    outcomes: Outcomes, request: pytest.FixtureRequest
) -> None:
    called = {symbol for symbol, _ in outcomes}
    expected = {one.name for one in committed()} - LEFT_OUT
    if _way(request).startswith("procaddress"):
        if _way(request).endswith("threads"):
            expected &= found_by_threads()
        else:
            expected = {name for name in expected if not rows()[name].per_thread}
    assert called >= expected


LIMITED = [group for group in GROUPS if group.limited]
HARMLESS = [group for group in GROUPS if not group.limited]


def test_what_is_limited_goes_through_the_library(outcomes: Outcomes) -> None:
    for group in LIMITED:
        for one in (*_of(outcomes, group), *_of(outcomes, group, full=True)):
            refused = one.code == OUT_OF_MEMORY and one.by == "" and group.effect == "taken"
            assert one.by == "library" or (one.full and refused), one


def test_what_is_limited_has_its_effect(outcomes: Outcomes) -> None:
    for group in LIMITED:
        _has_its_effect(outcomes, group)


def _has_its_effect(outcomes: Outcomes, group: Group) -> None:
    for one in _of(outcomes, group):
        if group.effect == "taken" and one.code == OK and one.symbol not in OTHER_CARD:
            assert one.charged > 0, one
            assert one.charged >= one.bytes, one
        if group.effect == "returned" and one.symbol not in ONLY_REFERENCES:
            assert one.code == OK, one
            assert one.charged < 0, one
        assert one.gated == (group.effect == "gated"), one
    for one in _of(outcomes, group, full=True):
        if group.effect == "taken":
            assert one.code == OUT_OF_MEMORY, one
            assert (one.charged, one.bytes) == (0, 0), one


def test_the_rest_takes_neither_memory_nor_time_of_the_card(outcomes: Outcomes) -> None:
    for group in HARMLESS:
        for one in _of(outcomes, group):
            assert one.by == "program", one
            assert one.ns == 0, one
            assert one.charged == 0, one
            assert one.bytes == 0 or (group.resident and one.bytes > 0), one


def test_what_the_fake_driver_did_is_what_the_table_says(
    outcomes: Outcomes, request: pytest.FixtureRequest
) -> None:
    """A refused call shows less. After a change: names into tests/symbols/done.txt, then the table."""
    done = {one.symbol for one in outcomes.values() if one.code == OK and not one.full}
    expected = set(DONE.read_text().split())
    if _way(request) in ("direct", "dlsym"):
        assert done - {"cuGetProcAddress_ptsz"} == expected
    assert len(expected) > 400


def test_the_table_is_of_these_symbols() -> None:
    assert DOCUMENT.read_text() == document(wrapped()), "run `make driver-symbols`"
    listed = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text(), re.MULTILINE))
    assert listed == {one.name for one in committed()}


def test_each_symbol_is_declared_and_each_wrapper_is_of_one() -> None:
    names = {one.name for one in committed()}
    assert names <= rows().keys()
    assert wrapped() <= rows().keys()
    assert wrapped() - names == {"cuGetProcAddress_ptsz"}  # of CUDA 11.3, whose headers no wheel has any more


def test_the_tests_that_the_table_names_exist() -> None:
    for group in GROUPS:
        assert group.symbols, group.name
        for test in group.tests:
            path, name = test.split("::")
            assert f"def {name}(" in (REPOSITORY / path).read_text(), test


@pytest.mark.skipif(os.environ.get("VC_EGPU_LONG") != "1", reason="fetches wheels: make test-long")
@pytest.mark.long
def test_the_list_is_that_of_the_newest_headers() -> None:
    assert from_wheels() == committed()
